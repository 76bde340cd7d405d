"""The HTTP port of a node: accepts connections and enforces the limits that they share.

Status pages are rendered on the event loop, one request of a connection per iteration, and long pages in chunks as the
client reads them. A connection therefore buffers at most one read and the unsent part of one chunk.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from typing import TYPE_CHECKING, Final

from chronik.config import Address
from chronik.console.connection import HttpApplication, HttpConnection, HttpLimits
from chronik.console.http import is_loopback_host
from chronik.console.shared_limits import ConnectionSlots, RequestBodyBudget
from chronik.console.status_pages import NoStatusPages, PageAuthorizer, StatusPages
from chronik.console.status_source import StatusSource
from chronik.limits import KIB
from chronik.listeners import explain_bind_error
from chronik.scheduler import Scheduler

if TYPE_CHECKING:
    from chronik.console.https import HttpAcceptor, HttpTls

logger = logging.getLogger("chronik.console")

READ_BUFFER_BYTES: Final = 16 * KIB
"""Size of the read buffer that all connections share: twice the maximum size of a request's headers."""


class HttpListener:
    """The HTTP listener of a node."""

    def __init__(
        self,
        address: Address,
        source: StatusSource | None,
        limits: HttpLimits | None = None,
        token: str | None = None,
        tls: HttpTls | None = None,
        application: HttpApplication | None = None,
        *,
        requires_login: bool = False,
        scheduler: Scheduler | None = None,
    ) -> None:
        """Create an unbound listener.

        Args:
            address: The host and port to listen on.
            source: The source of the status pages; None for a listener without status pages.
            limits: Limits on connections and requests.
            token: The bearer token that gives access to the status pages.
            tls: The TLS configuration; None for plain HTTP.
            application: The handler of all requests that are not for a status page.
            requires_login: Whether clients without a token or certificate must log in, even on loopback addresses.
            scheduler: The scheduler that divides event-loop time between accounts.
        """
        self._address = address
        self.limits = limits or HttpLimits()
        self.pages = NoStatusPages() if source is None else StatusPages(source)
        self.is_loopback_only = is_loopback_host(str(address))
        requires_credentials = bool(token) or requires_login or (tls is not None and tls.verifies_clients)
        self.page_authorizer = PageAuthorizer(
            token, allows_anonymous=self.is_loopback_only and not requires_credentials
        )
        self.application = application
        self.body_budget: RequestBodyBudget[HttpConnection] = RequestBodyBudget(self.limits.bodies_bytes)
        self.read_buffer = memoryview(bytearray(READ_BUFFER_BYTES))
        self.scheduler = scheduler or Scheduler()
        self.scheme: Final = "http" if tls is None else "https"
        self._tls = tls
        self._acceptor: HttpAcceptor | None = None
        self._server: asyncio.Server | None = None
        self._slots: ConnectionSlots[HttpConnection] = ConnectionSlots(
            self.limits.connections, self.limits.connections_per_account
        )
        self._all_closed = asyncio.Event()

    async def bind(self, listening: socket.socket | None = None) -> Address:
        """Bind the port, or use a socket that is already listening, and return the bound address.

        A port of 0 is replaced by the port that the system assigned.

        Raises:
            OSError: The port cannot be bound.
        """
        loop = asyncio.get_running_loop()
        if self._tls is not None:
            self._acceptor = self._tls.create_acceptor(
                min(self.limits.connections, self.limits.handshakes), self._create_connection, self.scheduler
            )
        accept = self._create_connection if self._acceptor is None else self._acceptor.accept
        host, port = self._address
        with explain_bind_error(f"{self.scheme}://{self._address}"):
            if listening is not None:
                self._server = await loop.create_server(accept, sock=listening, start_serving=False)
            else:
                self._server = await loop.create_server(accept, host, port, start_serving=False)
        return Address(self._address.host, self._server.sockets[0].getsockname()[1])

    def _create_connection(self) -> HttpConnection:
        return HttpConnection(self)

    async def serve(self) -> None:
        """Start to accept connections."""
        assert self._server is not None
        await self._server.start_serving()

    async def stop(self) -> None:
        """Stop accepting connections and close the open ones; do nothing if already stopped."""
        if self._server is None:
            return
        self._server.close()
        self._server = None
        if self._acceptor is not None:
            self._acceptor.stop()
        for connection in self._slots.all():
            connection.close()
        if not await self._wait_until_closed():
            for connection in self._slots.all():
                connection.abort()
            await self._wait_until_closed()

    async def _wait_until_closed(self) -> bool:
        if len(self._slots):
            self._all_closed.clear()
            try:
                await asyncio.wait_for(self._all_closed.wait(), self.limits.linger_seconds)
            except TimeoutError:
                return False
        return True

    @property
    def connection_count(self) -> int:
        """The number of open connections."""
        return len(self._slots)

    # Callbacks of connections

    def on_connection_opened(self, connection: HttpConnection) -> None:
        """Assign a connection slot to a new connection. If all slots are in use, close one of the connections."""
        self._close_connection(self._slots.open(connection, connection.network))
        if self._server is None:
            connection.abort()

    def on_connection_identified(self, connection: HttpConnection) -> None:
        """Assign a connection to the account of its latest request."""
        self._close_connection(self._slots.assign_account(connection, connection.account))

    def on_connection_active(self, connection: HttpConnection) -> None:
        """Mark a connection as the most recently active."""
        self._slots.mark_active(connection)

    def on_connection_closed(self, connection: HttpConnection) -> None:
        """Release the slot of a closed connection."""
        self._slots.close(connection)
        if not len(self._slots):
            self._all_closed.set()

    def _close_connection(self, connection: HttpConnection | None) -> None:
        if connection is not None:
            logger.debug("http connection from %s closed: all connection slots are in use", connection.network)
            connection.abort()
