"""Unfinished TLS handshakes: the number of received bytes is limited, even while a handshake is queued."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import uvloop

from chronik.limits import TLS_HANDSHAKE_BYTES_MAX
from chronik.scheduler import Account, AccountShare, LoopShare, Scheduler, Work
from chronik.tls.contexts import ReloadableTlsContext
from chronik.tls.transport import READ_BUFFER_BYTES, TlsTransport
from tests.server.test_connections import DEADLINE_SECONDS, Echo
from tests.server.tls_server import connect_tls, exchange, in_thread, tls_server
from tests.tls.certificates import client_context, server_settings


class ExhaustedShare(AccountShare):
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

    def __init__(self, share: LoopShare | None = None) -> None:
        self._share = share or AccountShare(Scheduler(clock=lambda: 0.0), Account)
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
