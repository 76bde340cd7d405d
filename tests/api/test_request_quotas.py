"""Request quotas count the time that a request occupies the event loop, and set its throttle time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from chronik import scheduler
from chronik.api.routing import throttling
from chronik.api.routing.handlers import wrap_as_reply_handler
from chronik.api.routing.router import Router
from chronik.api.routing.throttling import handle_throttled
from chronik.api.shared.context import RequestContext
from chronik.clock import ManualClock
from chronik.metadata.records import Entity, QuotaValues
from chronik.protocol.codec import RequestHeader
from chronik.protocol.messages.heartbeat import HeartbeatResponse
from chronik.protocol.messages.sasl_handshake import SaslHandshakeResponse
from chronik.request_reply import ConnectedClient, Reply
from chronik.security.quotas.limiter import QuotaLimiter, QuotaUsage

BUSY_SECONDS = 0.02
DEFAULT_CLIENT: Entity = (("client-id", ""),)

loop_clock = ManualClock()
"""A virtual clock for the event loop's busy time, so that the load of the machine makes no difference."""


@pytest.fixture(autouse=True)
def use_virtual_time(monkeypatch: pytest.MonkeyPatch) -> None:
    loop_clock.advance(1.0)  # a start time of 0 means that the time is not counted
    monkeypatch.setattr(throttling, "time", SimpleNamespace(perf_counter=loop_clock.monotonic))
    monkeypatch.setattr(scheduler, "perf_counter", loop_clock.monotonic)


def new_usage(**quotas: float) -> QuotaUsage:
    values: dict[Entity, QuotaValues] = {DEFAULT_CLIENT: quotas or {"request_percentage": 100.0}}
    limiter = QuotaLimiter(ManualClock(), lambda: values)
    limiter.reload()
    usage = limiter.usage("u", "c")
    assert usage is not None
    usage.started_at = loop_clock.monotonic()
    return usage


def used_seconds(usage: QuotaUsage) -> float:
    """Return the time used of a quota of 100 %, whose full bucket holds one second."""
    (bucket,) = usage._limiter.request._buckets.values()
    return 1.0 - bucket.tokens / 100


def spend_time() -> None:
    loop_clock.advance(BUSY_SECONDS)


def spending_time(answer: Any) -> Callable[[], Any]:
    def handle() -> Any:
        spend_time()
        return answer

    return handle


def limited_reply(handle: Callable[[], Any], usage: QuotaUsage, peer: ConnectedClient | None = None) -> Reply[Any]:
    nothing: Any = None
    return handle_throttled(
        lambda: _with_arguments(handle)(nothing, nothing, nothing), usage, peer or ConnectedClient("h", 1, 1)
    )


def _with_arguments(handle: Callable[[], Any]) -> Callable[..., Reply[Any]]:
    if asyncio.iscoroutinefunction(handle):

        async def later(*_: object) -> Any:
            return await handle()

        return wrap_as_reply_handler(later)
    return wrap_as_reply_handler(lambda *_: handle())


def awaited(handle: Callable[[], Any], usage: QuotaUsage, peer: ConnectedClient | None = None) -> Any:
    async def run() -> Any:
        return await limited_reply(handle, usage, peer)

    return asyncio.run(run())


def test_only_event_loop_time_counts_against_request_quota() -> None:
    async def handle() -> HeartbeatResponse:
        spend_time()
        asyncio.get_running_loop().call_soon(loop_clock.advance, 10 * BUSY_SECONDS)  # before the handler continues
        await asyncio.sleep(0)
        spend_time()
        return HeartbeatResponse()

    usage = new_usage()
    assert awaited(handle, usage) == HeartbeatResponse()
    assert used_seconds(usage) == pytest.approx(2 * BUSY_SECONDS)


def test_failed_requests_count_against_request_quota() -> None:
    async def later() -> None:
        spend_time()
        await asyncio.sleep(0)
        raise ZeroDivisionError

    def at_once() -> None:
        spend_time()
        raise ZeroDivisionError

    for handle in (later, at_once):
        usage = new_usage()
        with pytest.raises(ZeroDivisionError):
            awaited(handle, usage)
        assert used_seconds(usage) == pytest.approx(BUSY_SECONDS)


def test_cancelled_request_cancels_its_handler() -> None:
    ended = []

    async def handle() -> None:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            ended.append(True)
            raise

    async def run() -> None:
        coroutine = limited_reply(handle, new_usage()).coroutine
        assert coroutine is not None
        task = asyncio.ensure_future(coroutine)
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(run())
    assert ended == [True]


def test_shared_response_is_copied_before_throttle_time_is_set() -> None:
    shared = HeartbeatResponse()
    peer = ConnectedClient("h", 1, 1)
    response = awaited(spending_time(shared), new_usage(request_percentage=1e-6), peer)
    assert response.throttle_time_ms == 1000
    assert shared.throttle_time_ms == 0
    assert peer.throttle_seconds == 1.0


def test_throttle_time_is_set_only_if_response_has_the_field() -> None:
    def steps() -> Generator[None, None, HeartbeatResponse]:
        spend_time()
        yield
        return HeartbeatResponse()

    response = awaited(lambda: Reply.from_steps(steps()), new_usage(request_percentage=1e-6))
    assert response == HeartbeatResponse(throttle_time_ms=1000)
    plain = SaslHandshakeResponse()
    assert awaited(spending_time(plain), new_usage(request_percentage=1e-6)) is plain


def test_pipelined_response_contains_remaining_throttle_time() -> None:
    async def run() -> None:
        clock = ManualClock()
        values: dict[Entity, QuotaValues] = {DEFAULT_CLIENT: {"producer_byte_rate": 100.0}}
        limiter = QuotaLimiter(clock, lambda: values)
        limiter.reload()
        usage = limiter.usage("u", "c")
        assert usage is not None
        usage.charge_produce(550)
        peer = ConnectedClient("h", 1, 1)
        reply: Reply[Any] = Reply(is_pipelined=True)
        assert handle_throttled(lambda: reply, usage, peer) is reply
        assert peer.throttle_seconds == pytest.approx(5.0), "later requests are throttled from now on"
        clock.advance(2.0)
        reply.resolve(HeartbeatResponse())
        assert await reply == HeartbeatResponse(throttle_time_ms=3000)

    asyncio.run(run())


def test_unauthenticated_connection_uses_no_quota() -> None:
    lookups: list[tuple[str, str]] = []
    router = SimpleNamespace(limiter=SimpleNamespace(usage=lambda *who: lookups.append(who)))
    for is_let_in in (False, True):
        context = RequestContext(0, "payments", ConnectedClient("127.0.0.1", 1, 1, is_authenticated=is_let_in))
        header = RequestHeader(18, 0, 1, "payments")
        assert Router._add_quota_usage(cast(Any, router), header, context, 10, 1.0) is context
    assert lookups == [("ANONYMOUS", "payments")]
