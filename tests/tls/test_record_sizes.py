"""TLS records of any size are received completely, with one OpenSSL call per record."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path
from random import Random
from typing import Any

import pytest

from chronik.tls.contexts import ReloadableTlsContext
from chronik.tls.transport import READ_BUFFER_BYTES, SMALL_RECORD_BYTES_MAX, TlsTransport
from tests.tls.certificates import client_context, server_settings
from tests.tls.test_handshake_limits import FakeSocketTransport, FakeTlsOwner, run

RECORD_BYTES_MAX = 16384


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
