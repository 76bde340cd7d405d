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
from chronik.console.body_budget import BodyBudget
from chronik.console.connection import Application, HttpConnection, HttpLimits
from chronik.console.door import Door
from chronik.console.http import names_this_machine
from chronik.console.pages import Pages
from chronik.console.slots import Slots
from chronik.console.source import StatusSource
from chronik.limits import KIB
from chronik.listeners import naming
from chronik.scheduler import Scheduler

if TYPE_CHECKING:
    from chronik.console.securing import HttpAcceptor, HttpTls

logger = logging.getLogger("chronik.console")

SCRATCH_BYTES: Final = 16 * KIB
"""Size of the read buffer that all connections share: twice the maximum size of a request's headers."""


class HttpListener:
    """The HTTP listener of a node."""

    def __init__(
        self,
        address: Address,
        source: StatusSource,
        limits: HttpLimits | None = None,
        token: str | None = None,
        tls: HttpTls | None = None,
        application: Application | None = None,
        *,
        asks_who: bool = False,
        scheduler: Scheduler | None = None,
    ) -> None:
        """Create a listener that is not bound yet.

        Args:
            address: The host and port to listen on.
            source: The source of the status pages.
            limits: Limits on connections and requests.
            token: The bearer token that gives access to the status pages.
            tls: The TLS configuration; None for plain HTTP.
            application: The handler of all requests that are not for a status page.
            requires_login: Whether clients without a token or certificate must log in, even on loopback addresses.
            scheduler: The scheduler that divides event-loop time between accounts.
        """
        self._address = address
        self.limits = limits or HttpLimits()
        self.pages = Pages(source)
        self.local_only = names_this_machine(str(address))
        requires_credentials = bool(token) or asks_who or (tls is not None and tls.knows_certificates)
        self.door = Door(token, is_open=self.local_only and not requires_credentials)
        self.application = application
        self.bodies: BodyBudget[HttpConnection] = BodyBudget(self.limits.bodies_bytes)
        self.scratch = memoryview(bytearray(SCRATCH_BYTES))
        self.scheduler = scheduler or Scheduler()
        self.scheme: Final = "http" if tls is None else "https"
        self._tls = tls
        self._acceptor: HttpAcceptor | None = None
        self._server: asyncio.Server | None = None
        self._slots: Slots[HttpConnection] = Slots(self.limits.connections, self.limits.connections_per_account)
        self._all_closed = asyncio.Event()

    async def bind(self, listening: socket.socket | None = None) -> Address:
        """Bind the port, or use a socket that is already listening, and return the bound address.

        A port of 0 is replaced by the port that the system assigned.

        Raises:
            OSError: The port cannot be bound.
        """
        loop = asyncio.get_running_loop()
        if self._tls is not None:
            self._acceptor = self._tls.acceptor(
                min(self.limits.connections, self.limits.handshakes), self._new_connection, self.scheduler
            )
        accept = self._new_connection if self._acceptor is None else self._acceptor.accept
        host, port = self._address
        with naming(f"{self.scheme}://{self._address}"):
            if listening is not None:
                self._server = await loop.create_server(accept, sock=listening, start_serving=False)
            else:
                self._server = await loop.create_server(accept, host, port, start_serving=False)
        return Address(self._address.host, self._server.sockets[0].getsockname()[1])

    def _new_connection(self) -> HttpConnection:
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

    def opened(self, connection: HttpConnection) -> None:
        """Assign a slot to a new connection, and close another one if all slots are taken."""
        self._close(self._slots.open(connection, connection.network))
        if self._server is None:
            connection.abort()

    def identified(self, connection: HttpConnection) -> None:
        """Assign a connection to the account of its latest request."""
        self._close(self._slots.identify(connection, connection.account))

    def heard_of(self, connection: HttpConnection) -> None:
        """Mark a connection as the most recently active."""
        self._slots.use(connection)

    def closed(self, connection: HttpConnection) -> None:
        """Release the slot of a closed connection."""
        self._slots.close(connection)
        if not len(self._slots):
            self._all_closed.set()

    def _close(self, connection: HttpConnection | None) -> None:
        if connection is not None:
            logger.debug("http connection from %s closed: all connection slots are in use", connection.network)
            connection.abort()
