"""KIP-219: the answer goes out, then the connection is neither read nor its queued requests handled for a while."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from chronik.exchange import Peer, Reply
from chronik.limits import MIB
from chronik.server.listener_limits import ListenerLimits

from .test_connections import Echo, closed, framed, listening, read_frame, run, until

WAIT_SECONDS = 0.3
LONG_SECONDS = 3600.0


class Limited(Echo):
    """Whoever sends `much` has to wait."""

    def __init__(self, seconds: float = WAIT_SECONDS) -> None:
        super().__init__()
        self.seconds = seconds
        self.times: list[float] = []

    def __call__(self, frame: bytearray, peer: Peer) -> Reply[Any]:
        self.times.append(asyncio.get_running_loop().time())
        if b"much" in frame:
            peer.throttled_seconds = self.seconds
        return super().__call__(frame, peer)


def test_the_answer_comes_at_once_and_the_next_request_waits() -> None:
    async def scenario() -> None:
        echo = Limited()
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


def test_what_is_pipelined_waits_too_and_what_is_under_way_is_answered_meanwhile() -> None:
    async def scenario() -> None:
        echo = Limited(LONG_SECONDS)
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


def test_an_answer_that_came_late_makes_wait_too() -> None:
    """The longest wait counts."""

    async def scenario() -> None:
        echo = Limited()
        async with listening(echo) as (listener, address):
            reader, writer = await asyncio.open_connection(*address)
            writer.write(framed(b"wait"))
            await until(lambda: b"wait" in echo.held)
            (connection,) = listener._connections
            connection.peer.throttled_seconds = WAIT_SECONDS
            writer.write(framed(b"next"))
            echo.release(b"wait")
            assert await read_frame(reader) == b"wait"
            answered_at = asyncio.get_running_loop().time()
            assert await read_frame(reader) == b"next"
            assert asyncio.get_running_loop().time() - answered_at >= WAIT_SECONDS - 0.05
            writer.close()

    run(scenario)


def test_others_do_not_wait() -> None:
    async def scenario() -> None:
        echo = Limited(LONG_SECONDS)
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


def test_who_leaves_while_it_waits_is_gone_also_with_requests_behind_it() -> None:
    async def scenario() -> None:
        echo = Limited(LONG_SECONDS)
        async with listening(echo, ListenerLimits(frame_receive_seconds=WAIT_SECONDS)) as (listener, address):
            for behind in (b"", framed(b"queued")):
                reader, writer = await asyncio.open_connection(*address)
                writer.write(framed(b"much"))
                assert await read_frame(reader) == b"much"
                writer.write(behind)
                writer.close()
            await until(lambda: listener.connection_count == 0)

    run(scenario)


def test_who_waits_with_large_requests_makes_room_for_others() -> None:
    async def scenario() -> None:
        echo = Limited(LONG_SECONDS)
        limits = ListenerLimits(frames_bytes=MIB, frame_bytes=MIB, frame_rate_seconds=WAIT_SECONDS)
        async with listening(echo, limits) as (listener, address):
            reader, writer = await asyncio.open_connection(*address)
            writer.write(framed(b"wait") + framed(b"much") + 25 * framed(bytes(100_000)))
            await until(lambda: b"wait" in echo.held and listener.bytes_reserved > MIB)
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
def test_whoever_waits_is_neither_idle_nor_slow(rest: bytes) -> None:
    async def scenario() -> None:
        echo = Limited()
        limits = ListenerLimits(idle_seconds=WAIT_SECONDS / 4, frame_receive_seconds=WAIT_SECONDS / 4)
        async with listening(echo, limits) as (_, address):
            reader, writer = await asyncio.open_connection(*address)
            writer.write(framed(b"much") + rest)
            assert await read_frame(reader) == b"much"
            writer.write((framed(b"half of it")[7:] if rest else b"") + framed(b"next"))
            expected = [b"half of it", b"next"] if rest else [b"next"]
            assert [await read_frame(reader) for _ in expected] == expected
            assert await closed(reader), "from then on it is idle"
            writer.close()

    run(scenario)


def test_stopping_does_not_wait_for_it() -> None:
    async def scenario() -> None:
        echo = Limited(LONG_SECONDS)
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
