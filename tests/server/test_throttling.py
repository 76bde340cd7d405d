"""Throttling by quotas (KIP-219): the response is sent, then the connection is neither read nor its queue handled."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from chronik.limits import MIB
from chronik.request_reply import ConnectedClient, Reply
from chronik.server.connection import ListenerLimits

from .test_connections import Echo, closed, framed, listening, read_frame, run, until

WAIT_SECONDS = 0.3
LONG_SECONDS = 3600.0


class ThrottlingEcho(Echo):
    """A handler that throttles clients that send `much`."""

    def __init__(self, seconds: float = WAIT_SECONDS) -> None:
        super().__init__()
        self.seconds = seconds
        self.times: list[float] = []

    def __call__(self, frame: bytearray, peer: ConnectedClient) -> Reply[Any]:
        self.times.append(asyncio.get_running_loop().time())
        if b"much" in frame:
            peer.throttle_seconds = self.seconds
        return super().__call__(frame, peer)


def test_throttled_response_is_immediate_and_next_request_is_delayed() -> None:
    async def scenario() -> None:
        echo = ThrottlingEcho()
        async with listening(echo) as (_, address):
            reader, writer = await asyncio.open_connection(*address)
            writer.write(framed(b"much") + framed(b"queued"))
            assert await read_frame(reader) == b"much"
            assert echo.handled == [b"much"]
            writer.write(framed(b"unread"))
            assert [await read_frame(reader), await read_frame(reader)] == [b"queued", b"unread"]
            assert echo.times[1] - echo.times[0] >= WAIT_SECONDS - 0.01
            writer.close()

    run(scenario)


def test_throttling_delays_pipelined_requests_but_not_pending_responses() -> None:
    async def scenario() -> None:
        echo = ThrottlingEcho(LONG_SECONDS)
        async with listening(echo) as (_, address):
            reader, writer = await asyncio.open_connection(*address)
            writer.write(framed(b"pipelined 1") + framed(b"pipelined much") + framed(b"pipelined 3"))
            await until(lambda: len(echo.handled) == 2)
            echo.release(b"pipelined 1")
            echo.release(b"pipelined much")
            assert [await read_frame(reader), await read_frame(reader)] == [b"pipelined 1", b"pipelined much"]
            assert echo.handled == [b"pipelined 1", b"pipelined much"]
            writer.close()

    run(scenario)


def test_late_response_throttles_next_request() -> None:
    """The longest delay applies."""

    async def scenario() -> None:
        echo = ThrottlingEcho()
        async with listening(echo) as (listener, address):
            reader, writer = await asyncio.open_connection(*address)
            writer.write(framed(b"wait"))
            await until(lambda: b"wait" in echo.held)
            (connection,) = listener._connections
            connection.client.throttle_seconds = WAIT_SECONDS
            writer.write(framed(b"next"))
            echo.release(b"wait")
            assert await read_frame(reader) == b"wait"
            answered_at = asyncio.get_running_loop().time()
            assert await read_frame(reader) == b"next"
            assert asyncio.get_running_loop().time() - answered_at >= WAIT_SECONDS - 0.05
            writer.close()

    run(scenario)


def test_throttling_does_not_affect_other_connections() -> None:
    async def scenario() -> None:
        echo = ThrottlingEcho(LONG_SECONDS)
        async with listening(echo) as (_, address):
            reader, writer = await asyncio.open_connection(*address)
            writer.write(framed(b"much"))
            assert await read_frame(reader) == b"much"
            other_reader, other = await asyncio.open_connection(*address)
            other.write(framed(b"other"))
            assert await read_frame(other_reader) == b"other"
            for each in (writer, other):
                each.close()

    run(scenario)


def test_disconnect_of_throttled_client_is_detected() -> None:
    async def scenario() -> None:
        echo = ThrottlingEcho(LONG_SECONDS)
        async with listening(echo, ListenerLimits(frame_receive_seconds=WAIT_SECONDS)) as (listener, address):
            for queued in (b"", framed(b"queued")):
                reader, writer = await asyncio.open_connection(*address)
                writer.write(framed(b"much"))
                assert await read_frame(reader) == b"much"
                writer.write(queued)
                writer.close()
            await until(lambda: listener.connection_count == 0)

    run(scenario)


def test_throttled_large_requests_are_dropped_under_memory_pressure() -> None:
    async def scenario() -> None:
        echo = ThrottlingEcho(LONG_SECONDS)
        limits = ListenerLimits(frames_bytes=MIB, frame_bytes=MIB, frame_rate_seconds=WAIT_SECONDS)
        async with listening(echo, limits) as (listener, address):
            reader, writer = await asyncio.open_connection(*address)
            writer.write(framed(b"wait") + framed(b"much") + 25 * framed(bytes(100_000)))
            await until(lambda: b"wait" in echo.held and listener.reserved_bytes > MIB)
            echo.release(b"wait")
            assert [await read_frame(reader), await read_frame(reader)] == [b"wait", b"much"]
            other_reader, other = await asyncio.open_connection(*address)
            large = bytes(900_000)
            other.write(framed(large) + framed(large))
            assert await read_frame(other_reader) == large
            assert await read_frame(other_reader) == large
            assert await closed(reader)
            for each in (writer, other):
                each.close()

    run(scenario)


@pytest.mark.parametrize("rest", [b"", framed(b"half of it")[:7]])
def test_throttled_connection_is_not_closed_as_idle_or_slow(rest: bytes) -> None:
    async def scenario() -> None:
        echo = ThrottlingEcho()
        limits = ListenerLimits(idle_seconds=WAIT_SECONDS / 4, frame_receive_seconds=WAIT_SECONDS / 4)
        async with listening(echo, limits) as (_, address):
            reader, writer = await asyncio.open_connection(*address)
            writer.write(framed(b"much") + rest)
            assert await read_frame(reader) == b"much"
            writer.write((framed(b"half of it")[7:] if rest else b"") + framed(b"next"))
            expected = [b"half of it", b"next"] if rest else [b"next"]
            assert [await read_frame(reader) for _ in expected] == expected
            assert await closed(reader), "the connection is idle after the throttling"
            writer.close()

    run(scenario)


def test_shutdown_does_not_wait_for_throttled_connections() -> None:
    async def scenario() -> None:
        echo = ThrottlingEcho(LONG_SECONDS)
        async with listening(echo) as (listener, address):
            reader, writer = await asyncio.open_connection(*address)
            writer.write(framed(b"much") + framed(b"queued"))
            assert await read_frame(reader) == b"much"
            began = asyncio.get_running_loop().time()
            await listener.stop()
            assert asyncio.get_running_loop().time() - began < listener.limits.stop_seconds / 2
            assert await closed(reader)
            assert echo.handled == [b"much"]
            writer.close()

    run(scenario)
