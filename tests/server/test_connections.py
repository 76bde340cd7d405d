"""Client connections: response order, limits at their maximum and one above, back-pressure, idle and slow clients."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest

from chronik.config import Address
from chronik.limits import REQUESTS_QUEUED_MAX, RESPONSE_RATE_BYTES_MIN, RESPONSES_UNSENT_BYTES_MAX
from chronik.request_reply import ConnectedClient, Disconnect, EarlyCompletion, Reply
from chronik.server import connection
from chronik.server.connection import ListenerLimits
from chronik.server.listener import ClientListeners

DEADLINE_SECONDS = 20.0
MUCH_BYTES = 16 << 20
"""More bytes than the kernel buffers: the rest counts as unsent."""


class Echo:
    """A handler that responds with the request's own bytes; some responses are held until `release`."""

    def __init__(self) -> None:
        self.handled: list[bytes] = []
        self.held: dict[bytes, Reply[Any]] = {}
        self.answer_bytes = 0
        self.completed_early: list[bytes] = []
        """Requests that were asked to complete early because others wait behind them."""

    def __call__(self, frame: bytearray, peer: ConnectedClient) -> Reply[Any]:
        request = bytes(frame)
        self.handled.append(request)
        if request == b"disconnect":
            raise Disconnect("as asked")
        if request == b"bug":
            raise ZeroDivisionError
        if request.startswith((b"wait", b"pipelined")):
            reply: Reply[Any] = Reply(is_pipelined=request.startswith(b"pipelined"))
            self.held[request] = reply
            reply.early_completion = EarlyCompletion(lambda: True)
            reply.early_completion.wake = lambda: self.completed_early.append(request)
            return reply
        return Reply.from_frame([framed(request + bytes(self.answer_bytes))])

    def release(self, request: bytes) -> None:
        self.held.pop(request).complete([framed(request)])


def framed(payload: bytes) -> bytes:
    return struct.pack(">i", len(payload)) + payload


async def read_frame(reader: asyncio.StreamReader) -> bytes:
    async with asyncio.timeout(DEADLINE_SECONDS):
        (size,) = struct.unpack(">i", await reader.readexactly(4))
        return await reader.readexactly(size)


async def closed(reader: asyncio.StreamReader) -> bool:
    async with asyncio.timeout(DEADLINE_SECONDS):
        try:
            return await reader.read(1) == b""
        except ConnectionResetError:
            return True


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(DEADLINE_SECONDS):
        while not condition():
            await asyncio.sleep(0.001)


def reading(writer: asyncio.StreamWriter) -> asyncio.ReadTransport:
    return cast(asyncio.ReadTransport, writer.transport)  # the class depends on the event loop


async def not_reading(address: Address) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection(*address, limit=1 << 30)
    reading(writer).pause_reading()
    return reader, writer


@asynccontextmanager
async def listening(echo: Echo, limits: ListenerLimits | None = None) -> AsyncIterator[tuple[ClientListeners, Address]]:
    listener = ClientListeners({"PLAINTEXT": Address("127.0.0.1", 0)}, echo, limits)
    address = (await listener.bind())["PLAINTEXT"]
    await listener.serve()
    try:
        yield listener, address
    finally:
        await listener.stop()


def run(scenario: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(asyncio.wait_for(scenario(), 3 * DEADLINE_SECONDS))


def test_request_waits_for_response_to_previous_one() -> None:
    async def scenario() -> None:
        echo = Echo()
        async with listening(echo) as (_, address):
            reader, writer = await asyncio.open_connection(*address)
            writer.write(framed(b"wait") + framed(b"second"))
            await until(lambda: b"wait" in echo.held)
            await asyncio.sleep(0)
            assert echo.handled == [b"wait"]
            echo.release(b"wait")
            assert [await read_frame(reader), await read_frame(reader)] == [b"wait", b"second"]
            writer.close()

    run(scenario)


def test_pipelined_requests_start_immediately_and_are_answered_in_order() -> None:
    async def scenario() -> None:
        echo = Echo()
        async with listening(echo) as (_, address):
            reader, writer = await asyncio.open_connection(*address)
            writer.write(framed(b"pipelined 1") + framed(b"pipelined 2") + framed(b"third"))
            await until(lambda: echo.handled == [b"pipelined 1", b"pipelined 2", b"third"])
            echo.release(b"pipelined 2")
            echo.release(b"pipelined 1")
            answers = [await read_frame(reader) for _ in range(3)]
            assert answers == [b"pipelined 1", b"pipelined 2", b"third"]
            writer.close()

    run(scenario)


def test_blocking_request_unblocks_when_it_may_be_pipelined() -> None:
    async def scenario() -> None:
        echo = Echo()
        async with listening(echo) as (_, address):
            reader, writer = await asyncio.open_connection(*address)
            writer.write(framed(b"pipelined 1") + framed(b"pipelined 2") + framed(b"wait") + framed(b"next"))
            await until(lambda: b"wait" in echo.held)
            has_capacity = False
            echo.held[b"wait"].may_pipeline = lambda: has_capacity
            echo.release(b"pipelined 1")
            assert await read_frame(reader) == b"pipelined 1"
            assert b"next" not in echo.handled
            has_capacity = True
            echo.release(b"pipelined 2")
            assert await read_frame(reader) == b"pipelined 2"
            await until(lambda: b"next" in echo.handled)
            echo.release(b"wait")
            assert [await read_frame(reader), await read_frame(reader)] == [b"wait", b"next"]
            writer.close()

    run(scenario)


class RejectingEcho(Echo):
    """A handler whose responses to requests ending in `refusal` close the connection."""

    def __call__(self, frame: bytearray, peer: ConnectedClient) -> Reply[Any]:
        self.peer = peer
        return super().__call__(frame, peer)

    def release(self, request: bytes) -> None:
        if request.endswith(b"refusal"):
            self.peer.close_reason = "rejected"
        super().release(request)


@pytest.mark.parametrize("released", [[b"wait for refusal", b"pipelined"], [b"pipelined", b"wait for refusal"]])
def test_rejection_is_sent_after_earlier_responses_and_closes_connection(released: list[bytes]) -> None:
    async def scenario() -> None:
        echo = RejectingEcho()
        async with listening(echo) as (_, address):
            reader, writer = await asyncio.open_connection(*address)
            writer.write(framed(b"pipelined") + framed(b"wait for refusal") + framed(b"behind it"))
            await until(lambda: echo.handled == [b"pipelined", b"wait for refusal"])
            echo.release(released[0])
            await asyncio.sleep(0)
            echo.release(released[1])
            assert await read_frame(reader) == b"pipelined"
            assert await read_frame(reader) == b"wait for refusal"
            assert await closed(reader)
            assert echo.handled == [b"pipelined", b"wait for refusal"], "no further request is handled"
            writer.close()

    run(scenario)


def test_rejection_waits_for_earlier_responses(monkeypatch: pytest.MonkeyPatch) -> None:
    """The connection stays open however long the earlier responses take."""
    monkeypatch.setattr(connection, "CLOSE_DELAY_SECONDS", 0.01)

    async def scenario() -> None:
        echo = RejectingEcho()
        async with listening(echo) as (_, address):
            reader, writer = await asyncio.open_connection(*address)
            writer.write(framed(b"pipelined 1") + framed(b"pipelined 2") + framed(b"wait for refusal"))
            await until(lambda: len(echo.handled) == 3)
            echo.release(b"wait for refusal")
            await asyncio.sleep(0)
            echo.release(b"pipelined 1")
            assert await read_frame(reader) == b"pipelined 1"
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.1):  # ten times the delay before closing
                    await reader.read(1)
            echo.release(b"pipelined 2")
            assert await read_frame(reader) == b"pipelined 2"
            assert await read_frame(reader) == b"wait for refusal"
            assert await closed(reader)
            writer.close()

    run(scenario)


def test_invalid_request_closes_only_its_own_connection() -> None:
    async def scenario() -> None:
        echo = Echo()
        async with listening(echo) as (_, address):
            reader, writer = await asyncio.open_connection(*address)
            other_reader, other_writer = await asyncio.open_connection(*address)
            writer.write(framed(b"disconnect") + framed(b"never handled"))
            assert await closed(reader)
            other_writer.write(framed(b"still here"))
            assert await read_frame(other_reader) == b"still here"
            assert b"never handled" not in echo.handled
            writer.close()
            other_writer.close()

    run(scenario)


@pytest.mark.parametrize(("size", "accepted"), [(1000, True), (1001, False)])
def test_frame_above_size_limit_closes_connection(size: int, accepted: bool) -> None:
    async def scenario() -> None:
        async with listening(Echo(), ListenerLimits(frame_bytes=1000)) as (_, address):
            reader, writer = await asyncio.open_connection(*address)
            writer.write(framed(bytes(size)))
            if accepted:
                assert await read_frame(reader) == bytes(size)
            else:
                assert await closed(reader)
            writer.close()

    run(scenario)


def test_connection_above_limit_is_closed() -> None:
    async def scenario() -> None:
        async with listening(Echo(), ListenerLimits(connections=3)) as (listener, address):
            streams = [await asyncio.open_connection(*address) for _ in range(3)]
            await until(lambda: listener.connection_count == 3)
            extra_reader, extra_writer = await asyncio.open_connection(*address)
            assert await closed(extra_reader)
            for reader, writer in streams:
                writer.write(framed(b"served"))
                assert await read_frame(reader) == b"served"
            streams[0][1].close()
            await until(lambda: listener.connection_count == 2)
            reader, writer = await asyncio.open_connection(*address)
            writer.write(framed(b"slot again"))
            assert await read_frame(reader) == b"slot again"
            for _, each in [*streams, (reader, writer), (extra_reader, extra_writer)]:
                each.close()

    run(scenario)


def test_idle_connection_is_closed_unless_it_waits_for_response() -> None:
    async def scenario() -> None:
        echo = Echo()
        async with listening(echo, ListenerLimits(idle_seconds=0.2)) as (_, address):
            idle_reader, idle_writer = await asyncio.open_connection(*address)
            reader, writer = await asyncio.open_connection(*address)
            writer.write(framed(b"wait"))
            await until(lambda: b"wait" in echo.held)
            assert await closed(idle_reader)
            echo.release(b"wait")
            assert await read_frame(reader) == b"wait"
            writer.close()
            idle_writer.close()

    run(scenario)


def test_connection_with_slowly_arriving_request_is_closed() -> None:
    async def scenario() -> None:
        async with listening(Echo(), ListenerLimits(frame_receive_seconds=0.2)) as (_, address):
            reader, writer = await asyncio.open_connection(*address)
            writer.write(framed(bytes(100))[:50])
            assert await closed(reader)
            writer.close()

    run(scenario)


def test_requests_of_client_that_does_not_read_are_not_handled() -> None:
    async def scenario() -> None:
        echo = Echo()
        echo.answer_bytes = 1 << 20
        async with listening(echo) as (listener, address):
            reader, writer = await asyncio.open_connection(*address, limit=1 << 30)
            transport = reading(writer)
            transport.pause_reading()
            count = 40
            for number in range(count):
                writer.write(framed(b"%d" % number))
            await until(lambda: listener.unsent_bytes.unsent_bytes > RESPONSES_UNSENT_BYTES_MAX)
            handled = -1
            while handled != len(echo.handled):
                handled = len(echo.handled)
                await asyncio.sleep(0.05)
            assert handled < count
            transport.resume_reading()
            answers = [await read_frame(reader) for _ in range(count)]
            assert [answer[: -echo.answer_bytes] for answer in answers] == [b"%d" % n for n in range(count)]
            writer.close()

    run(scenario)


def test_unread_response_bytes_are_counted_until_read_or_disconnected() -> None:
    async def scenario() -> None:
        echo = Echo()
        echo.answer_bytes = MUCH_BYTES
        async with listening(echo) as (listener, address):
            late_reader, leaver = [await not_reading(address) for _ in range(2)]
            for _, writer in (late_reader, leaver):
                writer.write(framed(b"much"))
            await until(lambda: listener.unsent_bytes.unsent_bytes > MUCH_BYTES)
            counted = listener.unsent_bytes.unsent_bytes
            leaver[1].transport.abort()
            await until(lambda: listener.unsent_bytes.unsent_bytes < counted)
            assert listener.unsent_bytes.unsent_bytes > MUCH_BYTES // 2
            reader, writer = late_reader
            reading(writer).resume_reading()
            assert len(await read_frame(reader)) == echo.answer_bytes + len(b"much")
            await until(lambda: listener.unsent_bytes.unsent_bytes == 0)
            writer.close()

    run(scenario)


def test_connections_that_do_not_read_are_closed_under_memory_pressure() -> None:
    async def scenario() -> None:
        echo = Echo()
        echo.answer_bytes = MUCH_BYTES
        limits = ListenerLimits(responses_bytes=20 << 20, response_stalled_seconds=0.2)
        async with listening(echo, limits) as (listener, address):
            connections = [await not_reading(address)]
            connections[0][1].write(framed(b"much"))
            await until(lambda: listener.unsent_bytes.unsent_bytes > 0)
            await asyncio.sleep(3 * limits.response_stalled_seconds)
            assert listener.connection_count == 1, "there is memory for one"
            connections.append(await not_reading(address))
            connections[1][1].write(framed(b"much"))
            idle_reader, idle_writer = await asyncio.open_connection(*address)
            await until(lambda: len(echo.handled) == 2)
            await until(lambda: 0 < listener.unsent_bytes.unsent_bytes <= limits.responses_bytes)
            await until(lambda: listener.connection_count == 2)  # no more of them are closed than necessary
            idle_writer.write(framed(b"disconnect"))
            assert await closed(idle_reader), "it stayed connected until its own request"
            assert b"disconnect" in echo.handled
            for _, writer in (*connections, (idle_reader, idle_writer)):
                writer.close()

    run(scenario)


async def bytes_read_under_memory_pressure(echo: Echo, chunk_bytes: int, stop_bytes: int) -> int:
    """Return how much a client receives that reads 50 chunks per second while other responses wait for memory."""
    limits = ListenerLimits(responses_bytes=1 << 20, response_stalled_seconds=0.5, linger_seconds=0)
    echo.answer_bytes = MUCH_BYTES
    loop = asyncio.get_running_loop()
    async with listening(echo, limits) as (listener, address):
        with socket.socket() as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 << 10)
            client.setblocking(False)
            await loop.sock_connect(client, (address.host, address.port))
            await loop.sock_sendall(client, framed(b"much"))
            await until(lambda: listener.unsent_bytes.unsent_bytes > limits.responses_bytes)
            received_bytes = 0
            while received_bytes < stop_bytes and listener.connection_count:
                received_bytes += len(await loop.sock_recv(client, chunk_bytes))
                await asyncio.sleep(0.02)
            return received_bytes


def test_client_that_reads_slowly_but_steadily_is_not_closed() -> None:
    """It reads less within the timeout than the kernel needs before it reports the socket as writable."""

    async def scenario() -> None:
        enough = 2 << 20
        assert await bytes_read_under_memory_pressure(Echo(), chunk_bytes=16 << 10, stop_bytes=enough) >= enough

    run(scenario)


def test_client_that_reads_below_minimum_rate_is_closed() -> None:
    async def scenario() -> None:
        assert RESPONSE_RATE_BYTES_MIN == 64 << 10
        assert await bytes_read_under_memory_pressure(Echo(), chunk_bytes=500, stop_bytes=1 << 20) < 1 << 20

    run(scenario)


def test_slowly_arriving_request_does_not_keep_stalled_client_connected() -> None:
    async def scenario() -> None:
        echo = Echo()
        echo.answer_bytes = MUCH_BYTES
        limits = ListenerLimits(responses_bytes=1 << 20, response_stalled_seconds=0.3)
        async with listening(echo, limits) as (listener, address):
            _, writer = await not_reading(address)
            writer.write(framed(b"much"))
            await until(lambda: listener.unsent_bytes.unsent_bytes > limits.responses_bytes)
            writer.write(framed(bytes(1000))[:4])
            async with asyncio.timeout(DEADLINE_SECONDS):
                while listener.connection_count:
                    writer.write(b"x")
                    await asyncio.sleep(0.05)
            writer.close()

    run(scenario)


def test_requests_in_flight_per_connection_are_limited() -> None:
    async def scenario() -> None:
        echo = Echo()
        async with listening(echo) as (_, address):
            reader, writer = await asyncio.open_connection(*address)
            count = 3 * REQUESTS_QUEUED_MAX
            for number in range(count):
                writer.write(framed(b"pipelined %d" % number))
            await until(lambda: len(echo.held) == REQUESTS_QUEUED_MAX)
            writer.write(framed(b"last"))
            await asyncio.sleep(0.05)
            assert len(echo.held) == REQUESTS_QUEUED_MAX
            answered = 0
            while answered < count:
                for request in list(echo.held):
                    echo.release(request)
                assert await read_frame(reader) == b"pipelined %d" % answered
                answered += 1
            assert await read_frame(reader) == b"last"
            writer.close()

    run(scenario)


def half_frame(size: int) -> bytes:
    return struct.pack(">i", size) + bytes(size // 2 - 4)


def test_large_requests_wait_for_shared_memory_budget() -> None:
    """One request may exceed the budget; otherwise, partially received requests would deadlock."""

    async def scenario() -> None:
        echo = Echo()
        size = 1 << 20
        async with listening(echo, ListenerLimits(frames_bytes=size)) as (listener, address):
            streams = [await asyncio.open_connection(*address) for _ in range(3)]
            for _, writer in streams[:2]:
                writer.write(half_frame(size))
            await until(lambda: listener.reserved_bytes > size)
            streams[2][1].write(framed(bytes(size)))
            await asyncio.sleep(0.1)
            assert not echo.handled, "the third waits: one uses the budget, and another exceeds it already"
            for _, writer in streams[:2]:
                writer.write(bytes(size // 2 + 4))
            for reader, writer in streams:
                assert len(await read_frame(reader)) == size
                writer.close()

    run(scenario)


def test_announced_request_size_reserves_no_memory() -> None:
    async def scenario() -> None:
        echo = Echo()
        size = 1 << 20
        async with listening(echo, ListenerLimits(frames_bytes=2 * size)) as (listener, address):
            announcers = [await asyncio.open_connection(*address) for _ in range(6)]
            for _, writer in announcers:
                writer.write(struct.pack(">i", 100 * size) + bytes(68))
            reader, writer = await asyncio.open_connection(*address)
            writer.write(framed(bytes(2 * size)))
            assert len(await read_frame(reader)) == 2 * size
            assert listener.connection_count == 7
            for _, each in [*announcers, (reader, writer)]:
                each.close()

    run(scenario)


def test_slow_sender_of_large_request_is_closed_under_memory_pressure() -> None:
    async def scenario() -> None:
        echo = Echo()
        size = 1 << 20
        limits = ListenerLimits(frames_bytes=size, frame_rate_seconds=0.2)
        async with listening(echo, limits) as (listener, address):
            slow = [await asyncio.open_connection(*address) for _ in range(2)]
            for _, writer in slow:
                writer.write(half_frame(size))
            await until(lambda: listener.reserved_bytes > size)
            await asyncio.sleep(3 * limits.frame_rate_seconds)
            assert listener.connection_count == 2, "no other connection waits for memory"
            reader, writer = await asyncio.open_connection(*address)
            writer.write(framed(bytes(size)))
            assert len(await read_frame(reader)) == size
            assert await closed(slow[0][0]) or await closed(slow[1][0])
            for _, each in [*slow, (reader, writer)]:
                each.close()

    run(scenario)


def test_exception_in_handler_closes_connection_after_earlier_responses() -> None:
    async def scenario() -> None:
        echo = Echo()
        async with listening(echo) as (_, address):
            reader, writer = await asyncio.open_connection(*address)
            writer.write(framed(b"wait") + framed(b"bug"))
            await until(lambda: b"wait" in echo.held)
            echo.release(b"wait")
            assert await read_frame(reader) == b"wait"
            assert await closed(reader)
            writer.close()

    run(scenario)


def test_large_requests_hold_memory_until_answered() -> None:
    async def scenario() -> None:
        echo = Echo()
        size = 1 << 20
        limits = ListenerLimits(frames_bytes=2 * size + size // 2)
        async with listening(echo, limits) as (listener, address):
            _, first = await asyncio.open_connection(*address)
            reader, second = await asyncio.open_connection(*address)
            held = [b"pipelined %d" % number + bytes(size) for number in range(3)]
            for request in held:
                first.write(framed(request))
            await until(lambda: len(echo.held) == 3)
            second.write(framed(b"large" + bytes(size)))
            await asyncio.sleep(0.1)
            assert len(echo.handled) == 3, "unanswered requests hold their memory"
            for request in held[:2]:
                echo.release(request)
            assert (await read_frame(reader)).startswith(b"large")
            echo.release(held[2])
            await until(lambda: listener.reserved_bytes == 0)
            first.close()
            second.close()

    run(scenario)


def test_one_connection_exceeds_memory_budget_by_one_request_at_most() -> None:
    async def scenario() -> None:
        echo = Echo()
        size, count = 1 << 20, 12
        limits = ListenerLimits(frame_bytes=size, frames_bytes=2 * size)
        async with listening(echo, limits) as (listener, address):
            reader, writer = await asyncio.open_connection(*address, limit=1 << 30)
            writer.write(framed(b"wait"))
            for number in range(count):
                writer.write(framed(b"%02d" % number + bytes(size - 2)))
            await until(lambda: listener.reserved_bytes == 3 * size)
            await asyncio.sleep(0.1)
            assert listener.reserved_bytes == 3 * size, "the rest is not read from the socket"
            echo.release(b"wait")
            answers = [await read_frame(reader) for _ in range(count + 1)]
            assert [answer[:2] for answer in answers[1:]] == [b"%02d" % number for number in range(count)]
            await until(lambda: listener.reserved_bytes == 0)
            writer.close()

    run(scenario)


def test_small_request_never_waits_for_memory_budget() -> None:
    async def scenario() -> None:
        echo = Echo()
        size = 1 << 20
        async with listening(echo, ListenerLimits(frames_bytes=size)) as (_, address):
            _, large = await asyncio.open_connection(*address)
            large.write(framed(bytes(size))[: size // 2])
            reader, small = await asyncio.open_connection(*address)
            for chunk in (framed(b"small")[:6], framed(b"small")[6:]):
                small.write(chunk)
                await asyncio.sleep(0.05)
            assert await read_frame(reader) == b"small"
            large.close()
            small.close()

    run(scenario)


def test_closed_connection_releases_its_reserved_memory() -> None:
    async def scenario() -> None:
        echo = Echo()
        size = 1 << 20
        async with listening(echo, ListenerLimits(frames_bytes=size)) as (listener, address):
            for state in ("receiving", "waiting", "answered"):
                _, writer = await asyncio.open_connection(*address)
                request = framed(b"wait" + bytes(size))
                writer.write(request if state != "receiving" else request[: size // 2])
                await until(lambda: listener.reserved_bytes > 0)
                if state == "answered":
                    await until(lambda: bool(echo.held))
                    echo.release(b"wait" + bytes(size))
                writer.close()
                await until(lambda: listener.connection_count == 0)
                assert listener.reserved_bytes == 0
                echo.held.clear()

    run(scenario)


def test_receive_timeout_does_not_apply_while_reading_is_paused() -> None:
    async def scenario() -> None:
        echo = Echo()
        async with listening(echo, ListenerLimits(frame_receive_seconds=0.2)) as (listener, address):
            reader, writer = await asyncio.open_connection(*address)
            count = 3 * REQUESTS_QUEUED_MAX
            writer.write(framed(b"wait") + b"".join(framed(b"%d" % number) for number in range(count)) + b"\0")
            await until(lambda: b"wait" in echo.held)
            await asyncio.sleep(0.5)
            assert listener.connection_count == 1
            writer.write(framed(b"last")[1:])
            echo.release(b"wait")
            answers = [await read_frame(reader) for _ in range(count + 2)]
            assert answers[-1] == b"last"
            writer.close()

    run(scenario)


def test_requests_received_during_shutdown_are_not_handled() -> None:
    async def scenario() -> None:
        echo = Echo()
        async with listening(echo) as (listener, address):
            reader, writer = await asyncio.open_connection(*address)
            writer.write(framed(b"pipelined 1") + framed(b"pipelined 2"))
            await until(lambda: len(echo.held) == 2)
            stopping = asyncio.create_task(listener.stop())
            await asyncio.sleep(0)
            echo.release(b"pipelined 1")
            assert await read_frame(reader) == b"pipelined 1"
            writer.write(framed(b"too late"))
            await asyncio.sleep(0.05)
            echo.release(b"pipelined 2")
            assert await read_frame(reader) == b"pipelined 2"
            await stopping
            assert b"too late" not in echo.handled
            writer.close()

    run(scenario)


def test_shutdown_waits_until_all_responses_are_sent() -> None:
    async def scenario() -> None:
        echo = Echo()
        echo.answer_bytes = 16 << 20
        async with listening(echo) as (listener, address):
            _, first = await asyncio.open_connection(*address)
            first.close()
            await until(lambda: listener._accepted == 1 and listener.connection_count == 0)
            reader, writer = await asyncio.open_connection(*address, limit=1 << 20)
            writer.write(framed(b"large"))
            await until(lambda: echo.handled == [b"large"])
            stopping = asyncio.create_task(listener.stop())
            await asyncio.sleep(0.05)
            assert not stopping.done()
            assert len(await read_frame(reader)) == len(b"large") + echo.answer_bytes
            await stopping
            assert listener.connection_count == 0
            writer.close()

    run(scenario)


def test_shutdown_answers_pending_requests() -> None:
    async def scenario() -> None:
        echo = Echo()
        async with listening(echo) as (listener, address):
            reader, writer = await asyncio.open_connection(*address)
            writer.write(framed(b"wait"))
            await until(lambda: b"wait" in echo.held)
            stopping = asyncio.create_task(listener.stop())
            await asyncio.sleep(0.01)
            assert not stopping.done()
            echo.release(b"wait")
            assert await read_frame(reader) == b"wait"
            assert await closed(reader)
            await stopping
            writer.close()

    run(scenario)


async def _early_completions(*requests: bytes) -> list[bytes]:
    echo = Echo()
    async with listening(echo) as (_, address):
        reader, writer = await asyncio.open_connection(*address)
        writer.write(framed(b"wait"))
        await until(lambda: b"wait" in echo.held)
        for request in requests:
            writer.write(framed(request))
        if requests:
            await until(lambda: bool(echo.completed_early))
        echo.release(b"wait")
        assert [await read_frame(reader) for _ in range(1 + len(requests))] == [b"wait", *requests]
        writer.close()
    return echo.completed_early


def test_waiting_request_completes_early_when_another_request_arrives() -> None:
    assert set(asyncio.run(_early_completions(b"behind it"))) == {b"wait"}
    assert asyncio.run(_early_completions()) == []


def test_request_completes_early_if_requests_were_queued_before_it_started() -> None:
    async def scenario() -> None:
        echo = Echo()
        async with listening(echo) as (_, address):
            reader, writer = await asyncio.open_connection(*address)
            writer.write(framed(b"wait 1") + framed(b"wait 2") + framed(b"behind both"))
            await until(lambda: set(echo.completed_early) == {b"wait 1"})  # repeated if they arrive in two reads
            echo.release(b"wait 1")
            await until(lambda: set(echo.completed_early) == {b"wait 1", b"wait 2"})
            echo.release(b"wait 2")
            assert [await read_frame(reader) for _ in range(3)] == [b"wait 1", b"wait 2", b"behind both"]
            writer.close()

    run(scenario)
