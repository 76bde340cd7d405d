"""The HTTP port of a node: accepts connections and keeps the limits they share.

Pages are made on the node's loop, one request of a connection in a turn of it, and long ones piece by piece as they are
read. So a connection holds at most what one read brought and what its peer has not read yet.
"""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING, Final

from chronik.config import Address
from chronik.console.connection import Application, HttpConnection, HttpLimits
from chronik.console.door import Door
from chronik.console.http import names_this_machine
from chronik.console.pages import Pages
from chronik.console.source import StatusSource
from chronik.limits import KIB
from chronik.listeners import naming

if TYPE_CHECKING:
    from chronik.console.securing import HttpAcceptor, HttpTls

SCRATCH_BYTES: Final = 16 * KIB
"""Twice what the headers of a request may have."""


class HttpListener:
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
    ) -> None:
        """`asks_who`: whoever shows neither token nor certificate has to log in, on loopback too."""
        self._address = address
        self.limits = limits or HttpLimits()
        self.pages = Pages(source)
        self.local_only = names_this_machine(str(address))
        is_shut = bool(token) or asks_who or (tls is not None and tls.knows_certificates)
        self.door = Door(token, is_open=self.local_only and not is_shut)
        self.application = application
        self.bodies_bytes = 0
        self.scratch = memoryview(bytearray(SCRATCH_BYTES))
        self.scheme: Final = "http" if tls is None else "https"
        self._tls = tls
        self._acceptor: HttpAcceptor | None = None
        self._server: asyncio.Server | None = None
        self._connections: dict[HttpConnection, None] = {}
        """In the order in which they were last heard from."""
        self._all_closed = asyncio.Event()

    async def bind(self, listening: socket.socket | None = None) -> Address:
        """Takes the port, unless somebody has for it: `listening`. Returns its address (a port of 0 becomes a real
        one). Raises OSError."""
        loop = asyncio.get_running_loop()
        if self._tls is not None:
            self._acceptor = self._tls.acceptor(self.limits.connections, self._new_connection)
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
        """Answers from now on."""
        assert self._server is not None
        await self._server.start_serving()

    async def stop(self) -> None:
        """Does nothing the second time."""
        if self._server is None:
            return
        self._server.close()
        self._server = None
        if self._acceptor is not None:
            self._acceptor.stop()
        for connection in list(self._connections):
            connection.close()
        if not await self._closed_in_time():
            for connection in list(self._connections):
                connection.abort()
            await self._closed_in_time()

    async def _closed_in_time(self) -> bool:
        if self._connections:
            self._all_closed.clear()
            try:
                await asyncio.wait_for(self._all_closed.wait(), self.limits.linger_seconds)
            except TimeoutError:
                return False
        return True

    @property
    def connection_count(self) -> int:
        return len(self._connections)

    # What connections ask for

    def opened(self, connection: HttpConnection) -> None:
        if len(self._connections) >= self.limits.connections:
            next(iter(self._connections)).abort()
        self._connections[connection] = None
        if self._server is None:
            connection.abort()

    def heard_of(self, connection: HttpConnection) -> None:
        if connection in self._connections:
            del self._connections[connection]
            self._connections[connection] = None

    def closed(self, connection: HttpConnection) -> None:
        self._connections.pop(connection, None)
        if not self._connections:
            self._all_closed.set()
