"""What a request uses of a share of the loop, and what becomes of its answer meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from types import SimpleNamespace
from typing import Any

import pytest

from chronik import scheduler
from chronik.api.routing import throttling
from chronik.api.routing.handlers import replying
from chronik.api.routing.throttling import limited
from chronik.clock import ManualClock
from chronik.exchange import Peer, Reply
from chronik.metadata.security.quotas import Entity, Values
from chronik.protocol.messages.heartbeat import HeartbeatResponse
from chronik.protocol.messages.sasl_handshake import SaslHandshakeResponse
from chronik.security.quotas.limiter import Limiter, Usage

BUSY_SECONDS = 0.02
EVERYBODY: Entity = (("client-id", ""),)

loop_clock = ManualClock()
"""By which it is measured how long the loop is busy, so that a busy machine makes no difference."""


@pytest.fixture(autouse=True)
def _time_passes_only_as_told(monkeypatch: pytest.MonkeyPatch) -> None:
    loop_clock.advance(1.0)  # requests do not come at 0: that stands for one whose time is not counted
    monkeypatch.setattr(throttling, "time", SimpleNamespace(perf_counter=loop_clock.monotonic))
    monkeypatch.setattr(scheduler, "perf_counter", loop_clock.monotonic)


def a_usage(**quotas: float) -> Usage:
    values: dict[Entity, Values] = {EVERYBODY: quotas or {"request_percentage": 100.0}}
    limiter = Limiter(ManualClock(), lambda: values)
    limiter.look()
    usage = limiter.usage("u", "c")
    assert usage is not None
    usage.began = loop_clock.monotonic()
    return usage


def used_seconds(usage: Usage) -> float:
    """A full bucket of a quota of 100 % holds a second."""
    (bucket,) = usage._limiter.request._buckets.values()
    return 1.0 - bucket.held / 100


def be_busy() -> None:
    loop_clock.advance(BUSY_SECONDS)


def busily(answer: Any) -> Callable[[], Any]:
    def handle() -> Any:
        be_busy()
        return answer

    return handle


def limited_reply(handle: Callable[[], Any], usage: Usage, peer: Peer | None = None) -> Reply[Any]:
    nothing: Any = None
    return limited(lambda: _with_arguments(handle)(nothing, nothing, nothing), usage, peer or Peer("h", 1, 1))


def _with_arguments(handle: Callable[[], Any]) -> Callable[..., Reply[Any]]:
    if asyncio.iscoroutinefunction(handle):

        async def later(*_: object) -> Any:
            return await handle()

        return replying(later)
    return replying(lambda *_: handle())


def awaited(handle: Callable[[], Any], usage: Usage, peer: Peer | None = None) -> Any:
    async def run() -> Any:
        return await limited_reply(handle, usage, peer)

    return asyncio.run(run())


def test_only_the_time_in_which_the_loop_is_busy_counts() -> None:
    async def handle() -> HeartbeatResponse:
        be_busy()
        asyncio.get_running_loop().call_soon(loop_clock.advance, 10 * BUSY_SECONDS)  # before it is its turn again
        await asyncio.sleep(0)
        be_busy()
        return HeartbeatResponse()

    usage = a_usage()
    assert awaited(handle, usage) == HeartbeatResponse()
    assert used_seconds(usage) == pytest.approx(2 * BUSY_SECONDS)


def test_what_fails_counts_too() -> None:
    async def later() -> None:
        be_busy()
        await asyncio.sleep(0)
        raise ZeroDivisionError

    def at_once() -> None:
        be_busy()
        raise ZeroDivisionError

    for handle in (later, at_once):
        usage = a_usage()
        with pytest.raises(ZeroDivisionError):
            awaited(handle, usage)
        assert used_seconds(usage) == pytest.approx(BUSY_SECONDS)


def test_a_request_whose_client_is_gone_ends() -> None:
    ended = []

    async def handle() -> None:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            ended.append(True)
            raise

    async def run() -> None:
        coroutine = limited_reply(handle, a_usage()).coroutine
        assert coroutine is not None
        task = asyncio.ensure_future(coroutine)
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(run())
    assert ended == [True]


def test_an_answer_that_others_share_stays_as_it_is() -> None:
    shared = HeartbeatResponse()
    peer = Peer("h", 1, 1)
    told = awaited(busily(shared), a_usage(request_percentage=1e-6), peer)
    assert told.throttle_time_ms == 1000
    assert shared.throttle_time_ms == 0
    assert peer.throttled_seconds == 1.0


def test_response_made_of_steps_and_one_without_the_field() -> None:
    def steps() -> Generator[None, None, HeartbeatResponse]:
        be_busy()
        yield
        return HeartbeatResponse()

    told = awaited(lambda: Reply.of_steps(steps()), a_usage(request_percentage=1e-6))
    assert told == HeartbeatResponse(throttle_time_ms=1000)
    plain = SaslHandshakeResponse()
    assert awaited(busily(plain), a_usage(request_percentage=1e-6)) is plain


def test_a_pipelined_answer_is_told_what_is_left() -> None:
    async def run() -> None:
        clock = ManualClock()
        values: dict[Entity, Values] = {EVERYBODY: {"producer_byte_rate": 100.0}}
        limiter = Limiter(clock, lambda: values)
        limiter.look()
        usage = limiter.usage("u", "c")
        assert usage is not None
        usage.produced(550)
        peer = Peer("h", 1, 1)
        reply: Reply[Any] = Reply(is_pipelined=True)
        assert limited(lambda: reply, usage, peer) is reply
        assert peer.throttled_seconds == pytest.approx(5.0), "the requests behind it wait from now on"
        clock.advance(2.0)
        reply.resolve(HeartbeatResponse())
        assert await reply == HeartbeatResponse(throttle_time_ms=3000)

    asyncio.run(run())
