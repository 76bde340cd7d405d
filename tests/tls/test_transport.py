"""The TLS transport: limits on unfinished handshakes, and records of any size."""

from __future__ import annotations

import asyncio
import ssl
import struct
from collections.abc import Awaitable, Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest
import uvloop

from chronik.limits import TLS_HANDSHAKE_BYTES_MAX
from chronik.scheduler import Account, AccountBudget, EventLoopBudget, Scheduler, Work
from chronik.tls.contexts import ReloadableTlsContext
from chronik.tls.transport import READ_BUFFER_BYTES, SMALL_RECORD_BYTES_MAX, TlsTransport
from tests.server.test_connections import DEADLINE_SECONDS, Echo
from tests.server.tls_server import connect_tls, exchange, in_thread, tls_server
from tests.tls.certificates import client_context, server_settings

RECORD_BYTES_MAX = 16384


class ExhaustedShare(AccountBudget):
    """A loop share without budget: work is queued until the test resumes it."""

    def __init__(self) -> None:
        self._scheduler = Scheduler(lambda callback: None)
        self._owner = Account(is_authenticated=False)
        super().__init__(self._scheduler, lambda: self._owner)

    def run(self, work: Work) -> None:
        self.submit(work)

    def may_continue(self) -> bool:
        return False

    def resume_all(self) -> None:
        while self._owner.requests.work:
            self._owner.requests.work.pop().resume()

    @property
    def queued_count(self) -> int:
        return len(self._owner.requests.work)


class FakeTlsOwner:
    handshake_seconds = 3600.0

    def __init__(self, share: EventLoopBudget | None = None) -> None:
        self._share = share or AccountBudget(Scheduler(clock=lambda: 0.0), Account)
        self.failures: list[str | None] = []

    def on_handshake_started(self, transport: TlsTransport) -> bool:
        transport.loop_share = self._share
        return True

    def on_handshake_done(self, transport: TlsTransport) -> asyncio.BufferedProtocol:
        raise AssertionError("the handshake must not complete")

    def on_handshake_failed(self, transport: TlsTransport, reason: str | None) -> None:
        self.failures.append(reason)


class FakeSocketTransport(asyncio.Transport):
    """A socket transport to which the test delivers bytes while reading is not paused."""

    def __init__(self, protocol: TlsTransport) -> None:
        super().__init__()
        self.protocol = protocol
        self.is_read = True
        self.is_closed = False
        protocol.connection_made(self)

    def deliver(self, data: bytes) -> int:
        """Deliver bytes, and return how many were accepted before reading was paused or the socket was closed."""
        accepted = 0
        while accepted < len(data) and self.is_read and not self.is_closed:
            buffer = self.protocol.get_buffer(-1)
            chunk = data[accepted : accepted + len(buffer)]
            buffer[: len(chunk)] = chunk
            self.protocol.buffer_updated(len(chunk))
            accepted += len(chunk)
        return accepted

    def pause_reading(self) -> None:
        self.is_read = False

    def resume_reading(self) -> None:
        self.is_read = True

    def is_closing(self) -> bool:
        return self.is_closed

    def close(self) -> None:
        if not self.is_closed:
            self.is_closed = True
            self.protocol.connection_lost(None)

    abort = close

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None: ...

    def write(self, data: Any) -> None: ...


def long_hello() -> bytes:
    """Return an endless ClientHello in TLS records, for which OpenSSL waits beyond the limit."""
    size = TLS_HANDSHAKE_BYTES_MAX
    hello = b"\x01" + size.to_bytes(3, "big") + b"\x03\x03" + bytes(size)
    records = [hello[begin : begin + 16384] for begin in range(0, len(hello), 16384)]
    return b"".join(b"\x16\x03\x01" + struct.pack(">H", len(each)) + each for each in records)


def run(scenario: Callable[[], Awaitable[None]], loops: Callable[[], Any] = asyncio.new_event_loop) -> None:
    with asyncio.Runner(loop_factory=loops) as runner:
        runner.run(asyncio.wait_for(scenario(), 3 * DEADLINE_SECONDS))


@pytest.mark.parametrize("step", [1000, READ_BUFFER_BYTES])
def test_handshake_above_byte_limit_is_aborted(tmp_path: Path, step: int) -> None:
    async def scenario() -> None:
        owner = FakeTlsOwner()
        socket = FakeSocketTransport(TlsTransport(owner, ReloadableTlsContext("x", server_settings(tmp_path)).context))
        hello = long_hello()
        assert len(hello) > TLS_HANDSHAKE_BYTES_MAX
        for begin in range(0, TLS_HANDSHAKE_BYTES_MAX, step):
            socket.deliver(hello[begin : min(begin + step, TLS_HANDSHAKE_BYTES_MAX)])
        assert not socket.is_closed
        socket.deliver(hello[TLS_HANDSHAKE_BYTES_MAX : TLS_HANDSHAKE_BYTES_MAX + 1])
        assert owner.failures == [f"TLS handshake of more than {TLS_HANDSHAKE_BYTES_MAX} bytes"]

    run(scenario)


def test_reading_is_paused_while_handshake_is_queued(tmp_path: Path) -> None:
    async def scenario() -> None:
        owner = FakeTlsOwner(share := ExhaustedShare())
        socket = FakeSocketTransport(TlsTransport(owner, ReloadableTlsContext("x", server_settings(tmp_path)).context))
        hello = long_hello()
        accepted = socket.deliver(hello)
        assert accepted == READ_BUFFER_BYTES, "a single read"
        assert share.queued_count == 1
        share.resume_all()
        assert socket.is_read
        assert not owner.failures
        assert socket.deliver(hello[accepted:]) == READ_BUFFER_BYTES

    run(scenario)


def test_client_that_disconnects_while_queued_is_released(tmp_path: Path) -> None:
    async def scenario() -> None:
        owner = FakeTlsOwner(share := ExhaustedShare())
        socket = FakeSocketTransport(TlsTransport(owner, ReloadableTlsContext("x", server_settings(tmp_path)).context))
        socket.deliver(b"\x16")
        socket.close()
        assert share.queued_count == 0
        assert owner.failures == [None]

    run(scenario)


@pytest.mark.parametrize("loops", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_large_request_sent_with_handshake_is_served_after_queued_handshake(
    tmp_path: Path, loops: Callable[[], Any]
) -> None:
    much = bytes(4 * TLS_HANDSHAKE_BYTES_MAX)

    async def scenario() -> None:
        async with tls_server(Echo(), server_settings(tmp_path)) as server:
            server.listener.scheduler._accepted_max = 0  # unauthenticated clients are served one by one
            context = client_context(tmp_path)

            def ask() -> int:
                with connect_tls(server.address, context) as client:
                    return len(exchange(client, much))

            answer = asyncio.ensure_future(in_thread(ask))
            while not answer.done():
                for each in server.securing._handshakes.all():
                    assert each._incoming.pending <= READ_BUFFER_BYTES
                await asyncio.sleep(0)
            assert await answer == len(much)

    run(scenario, loops)


class Reader(asyncio.BufferedProtocol):
    """A protocol with buffers of the given sizes, in rotation."""

    def __init__(self, sizes: list[int]) -> None:
        self._sizes = sizes
        self._buffer = bytearray()
        self.received = bytearray()

    def get_buffer(self, sizehint: int) -> memoryview:
        self._buffer = bytearray(self._sizes[0])
        self._sizes.append(self._sizes.pop(0))
        return memoryview(self._buffer)

    def buffer_updated(self, nbytes: int) -> None:
        self.received += self._buffer[:nbytes]
        self._buffer.clear()  # raises BufferError if a view of it was kept


class AcceptingOwner(FakeTlsOwner):
    def __init__(self, reader: Reader) -> None:
        super().__init__()
        self._reader = reader

    def on_handshake_done(self, transport: TlsTransport) -> asyncio.BufferedProtocol:
        return self._reader


class RecordingSocket(FakeSocketTransport):
    """A socket transport that keeps what is sent."""

    def __init__(self, protocol: TlsTransport) -> None:
        self.sent = bytearray()
        super().__init__(protocol)

    def write(self, data: Any) -> None:
        self.sent += data


class Client:
    """A TLS client connected in memory; the OpenSSL reads of the server are counted."""

    def __init__(self, folder: Path, reader: Reader) -> None:
        context = ReloadableTlsContext("x", server_settings(folder)).context
        self.reads: list[int] = []
        """Result of each read; 0 if nothing was available."""
        context.sslobject_class = _counting_class(self.reads)
        self.socket = RecordingSocket(TlsTransport(AcceptingOwner(reader), context))
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = client_context(folder).wrap_bio(self._incoming, self._outgoing, server_hostname="localhost")
        while not self._is_handshake_done():
            self.socket.deliver(self._outgoing.read())
            self._incoming.write(bytes(self.socket.sent))
            self.socket.sent.clear()
        self.socket.deliver(self._outgoing.read())
        self.reads.clear()

    def _is_handshake_done(self) -> bool:
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            return False
        return True

    def records(self, data: bytes, sizes: list[int]) -> bytes:
        """Return the data in TLS records of the given sizes."""
        position = 0
        for size in sizes:
            position += self._tls.write(data[position : position + size])
        assert position == len(data)
        return self._outgoing.read()


def _counting_class(reads: list[int]) -> type[ssl.SSLObject]:
    class Counting(ssl.SSLObject):
        def read(self, len: int = 1024, buffer: Any = None) -> Any:
            reads.append(0)
            count: Any = super().read(len, buffer)
            reads[-1] = count
            return count

    return Counting


@pytest.mark.parametrize("seed", range(20))
def test_data_arrives_completely_for_any_record_read_and_buffer_size(tmp_path: Path, seed: int) -> None:
    async def scenario() -> None:
        random = Random(seed)
        kinds = [(1, 60), (1000, 1010), (1, RECORD_BYTES_MAX), (RECORD_BYTES_MAX, RECORD_BYTES_MAX)]
        sizes = [random.randint(*random.choice(kinds)) for _ in range(200)]
        data = random.randbytes(sum(sizes))
        reader = Reader([random.choice([1, 100, 4096, READ_BUFFER_BYTES, 1_000_000]) for _ in range(10)])
        client = Client(tmp_path, reader)
        stream = client.records(data, sizes)
        while stream:
            accepted = client.socket.deliver(stream[: random.choice([1, 500, 5000, READ_BUFFER_BYTES])])
            stream = stream[accepted:]
        assert reader.received == data

    run(scenario)


@pytest.mark.parametrize("size", [10, SMALL_RECORD_BYTES_MAX, RECORD_BYTES_MAX])
def test_single_record_is_decrypted_with_one_call(tmp_path: Path, size: int) -> None:
    async def scenario() -> None:
        client = Client(tmp_path, Reader([READ_BUFFER_BYTES]))
        client.socket.deliver(client.records(bytes(size), [size]))
        assert client.reads == [size]

    run(scenario)


def test_small_records_need_one_extra_call_and_large_records_none(tmp_path: Path) -> None:
    async def scenario() -> None:
        client = Client(tmp_path, Reader([READ_BUFFER_BYTES]))
        for sizes, final_read in (([10, 1000] * 20, [0]), ([RECORD_BYTES_MAX] * 3, [])):
            client.socket.deliver(client.records(bytes(sum(sizes)), sizes))
            assert client.reads == sizes + final_read
            client.reads.clear()

    run(scenario)


def test_records_that_fill_the_buffer_exactly_do_not_close_connection(tmp_path: Path) -> None:
    async def scenario() -> None:
        reader = Reader([SMALL_RECORD_BYTES_MAX])
        client = Client(tmp_path, reader)
        sizes = [SMALL_RECORD_BYTES_MAX // 2] * 4
        for _ in range(2):
            client.socket.deliver(client.records(bytes(sum(sizes)), sizes))
            await asyncio.sleep(0)
        assert len(reader.received) == 2 * sum(sizes)
        assert not client.socket.is_closed

    run(scenario)
