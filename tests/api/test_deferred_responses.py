"""Deferred responses: large responses wait for memory until clients have read earlier ones."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from types import SimpleNamespace
from typing import Any, cast

import pytest

from chronik.api.routing import deferred_responses
from chronik.api.routing.deferred_responses import DeferredResponses
from chronik.api.routing.router import Router
from chronik.api.shared.context import Services
from chronik.limits import (
    HELD_RESPONSE_SECONDS_MAX,
    HELD_RESPONSES_BYTES_MAX,
    KIB,
    RESPONSE_BYTES_MIN,
    RESPONSE_STALLED_SECONDS_MAX,
    RESPONSES_BYTES_MAX,
)
from chronik.protocol.codec import RequestHeader, encode_request
from chronik.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from chronik.request_reply import ConnectedClient, Disconnect, Reply, UnsentByteCounter
from chronik.scheduler import Scheduler

DESCRIBE_CONFIGS = 32
TOO_FULL = RESPONSES_BYTES_MAX + 1
UNKNOWN_RESOURCE = 99


def run(scenario: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(scenario(), 20))


def defer_response(deferred: DeferredResponses, size: int) -> Reply[Any]:
    reply: Reply[Any] = Reply()
    deferred.defer([bytes(size)], reply)
    return reply


def test_large_response_is_sent_after_clients_have_read() -> None:
    async def scenario() -> None:
        outbox = UnsentByteCounter(TOO_FULL)
        store = SimpleNamespace(is_shared=False)
        services = SimpleNamespace(
            authorizer=None, outbox=outbox, store=store, is_fenced=lambda: False, scheduler=Scheduler()
        )
        router = Router(cast(Services, services), lambda error: None)
        names = [
            DescribeConfigsResource(resource_type=UNKNOWN_RESOURCE, resource_name="n" * 200 + str(n))
            for n in range(500)
        ]
        frame = encode_request(RequestHeader(DESCRIBE_CONFIGS, 4, 7, "test"), DescribeConfigsRequest(resources=names))
        pending = router.dispatch(bytearray(frame[4:]), ConnectedClient("test", 0, 1))
        while not (pending.is_ready or router._deferred._deferred):
            await asyncio.sleep(0)
        assert not pending.is_ready
        outbox.add(-1)
        assert sum(map(len, await pending.wait_for_frame() or ())) > RESPONSE_BYTES_MIN

    run(scenario)


def test_only_large_responses_are_deferred_without_memory() -> None:
    async def scenario() -> None:
        outbox = UnsentByteCounter(TOO_FULL)
        deferred = DeferredResponses(outbox)
        assert deferred.must_defer_response([bytes(RESPONSE_BYTES_MIN), b"x"])
        assert not deferred.must_defer_response([bytes(RESPONSE_BYTES_MIN)])
        assert not deferred.must_defer_response(None)
        outbox.add(-1)
        assert not deferred.must_defer_response([bytes(2 * RESPONSE_BYTES_MIN)])

    run(scenario)


def test_deferred_responses_are_released_within_free_memory() -> None:
    async def scenario() -> None:
        outbox = UnsentByteCounter(TOO_FULL)
        deferred = DeferredResponses(outbox)
        first, second, third = (defer_response(deferred, 100 * KIB) for _ in range(3))
        outbox.add(-150 * KIB)
        await asyncio.sleep(0)
        assert [answer.is_ready for answer in (first, second, third)] == [True, True, False]
        outbox.add(300 * KIB)
        outbox.add(-10 * KIB)
        await asyncio.sleep(0)
        assert not third.is_ready, "clients have not read the released responses yet"
        outbox.add(-290 * KIB)
        await asyncio.sleep(0)
        assert third.is_ready

    run(scenario)


def test_deferred_bytes_beyond_limit_disconnect_client() -> None:
    async def scenario() -> None:
        deferred = DeferredResponses(UnsentByteCounter(TOO_FULL))
        first = defer_response(deferred, HELD_RESPONSES_BYTES_MAX // 2)
        second = defer_response(deferred, HELD_RESPONSES_BYTES_MAX - HELD_RESPONSES_BYTES_MAX // 2)
        rejected = defer_response(deferred, 1)
        assert isinstance(rejected.error, Disconnect)
        assert [first.is_ready, second.is_ready] == [False, False]
        first.cancel()  # its client has disconnected
        assert not defer_response(deferred, 1).is_ready

    run(scenario)


def test_response_deferred_too_long_disconnects_client(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deferred_responses, "HELD_RESPONSE_SECONDS_MAX", 0.01)

    async def scenario() -> None:
        deferred = DeferredResponses(UnsentByteCounter(TOO_FULL))
        with pytest.raises(Disconnect):
            await defer_response(deferred, HELD_RESPONSES_BYTES_MAX).wait_for_frame()
        assert not defer_response(deferred, HELD_RESPONSES_BYTES_MAX).is_ready, (
            "the expired response no longer uses memory"
        )

    run(scenario)


def test_deferral_timeout_exceeds_timeout_of_stuck_connections() -> None:
    assert HELD_RESPONSE_SECONDS_MAX >= 3 * RESPONSE_STALLED_SECONDS_MAX
