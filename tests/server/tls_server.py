"""A TLS listener for tests, and blocking clients that run in threads, independent of our event loops."""

from __future__ import annotations

import asyncio
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

import uvloop

from chronik.config import Address
from chronik.security.principal_rules import PrincipalRules
from chronik.security.quotas.connection_limits import ConnectionLimits
from chronik.server.connection import ListenerLimits
from chronik.server.listener import ClientListeners
from chronik.server.tls_listener import TlsListenerConfig, TlsListeners
from chronik.tls.contexts import ReloadableTlsContext
from chronik.tls.settings import TlsSettings
from tests.server.test_connections import DEADLINE_SECONDS, Echo

T = TypeVar("T")


class TlsServer:
    """A TLS listener that is serving, with its components."""

    def __init__(
        self,
        echo: Echo,
        tls: TlsSettings,
        limits: ListenerLimits,
        rules: str | None,
        by_address: ConnectionLimits | None,
    ) -> None:
        self.context = ReloadableTlsContext("listener SSL", tls)
        named = PrincipalRules(rules) if rules is not None else None
        self.securing = TlsListeners({"SSL": TlsListenerConfig(self.context, named)}, limits)
        self.listener = ClientListeners(
            {"SSL": Address("127.0.0.1", 0)}, echo, limits, address_limits=by_address, tls_listeners=self.securing
        )
        self.address = Address("", 0)


@asynccontextmanager
async def tls_server(
    echo: Echo,
    tls: TlsSettings,
    limits: ListenerLimits | None = None,
    rules: str | None = "DEFAULT",
    by_address: ConnectionLimits | None = None,
) -> AsyncIterator[TlsServer]:
    server = TlsServer(echo, tls, limits or ListenerLimits(), rules, by_address)
    server.address = (await server.listener.bind())["SSL"]
    await server.listener.serve()
    try:
        yield server
    finally:
        await server.listener.stop()


def run(scenario: Callable[[], Awaitable[None]]) -> None:
    """Run the scenario on uvloop, which nodes use."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(asyncio.wait_for(scenario(), 3 * DEADLINE_SECONDS))


async def in_thread(call: Callable[[], T]) -> T:
    """Run a blocking function in a thread."""
    return await asyncio.to_thread(call)


def connect_tls(address: Address, context: ssl.SSLContext) -> ssl.SSLSocket:
    """Return a connected TLS client. Raises ssl.SSLError or OSError."""
    raw = socket.create_connection(address, timeout=DEADLINE_SECONDS)
    try:
        return context.wrap_socket(raw, server_hostname="localhost")
    except BaseException:
        raw.close()
        raise


def exchange(client: ssl.SSLSocket, request: bytes) -> bytes:
    """Send a request and return the response. Raises ssl.SSLError or OSError if there is none."""
    client.sendall(struct.pack(">i", len(request)) + request)
    (size,) = struct.unpack(">i", read_exactly(client, 4))
    return read_exactly(client, size)


def read_exactly(client: socket.socket, size: int) -> bytes:
    """Read exactly `size` bytes."""
    found = bytearray()
    while len(found) < size:
        chunk = client.recv(min(size - len(found), 1 << 16))
        if not chunk:
            raise ConnectionResetError("closed")
        found += chunk
    return bytes(found)


def connect_and_exchange(address: Address, context: ssl.SSLContext, request: bytes = b"hello") -> bytes:
    """Connect, send a request, and return the response."""
    with connect_tls(address, context) as client:
        return exchange(client, request)


def is_rejected(address: Address, context: ssl.SSLContext) -> bool:
    """Return whether the connection fails. With TLS 1.3, a rejected certificate is noticed at the first read only."""
    try:
        connect_and_exchange(address, context)
    except (ssl.SSLError, OSError):
        return True
    return False
