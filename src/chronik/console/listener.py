"""The HTTP port of a node: accepts connections and keeps the limits they share.

Pages are made at once and whole, on the node's loop. So a connection holds at most one request's head and what its
peer has not read yet, and there is nothing to queue.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from http import HTTPStatus
from typing import cast

from chronik.config import Address
from chronik.console.http import (
    HEAD_BYTES_MAX,
    HEAD_END,
    BadRequest,
    HttpRequest,
    encode_response,
    names_this_machine,
    parse_head,
)
from chronik.console.pages import Pages, error_page
from chronik.console.source import StatusSource

logger = logging.getLogger("chronik.console")


@dataclass(frozen=True, slots=True)
class HttpLimits:
    head_bytes: int = HEAD_BYTES_MAX
    connections: int = 64
    """A prober, a scraper, some browsers. The next one takes the place of whoever was silent longest: strangers that
    hold connections open cannot make a node look dead."""
    silence_seconds: float = 90.0
    """Between two requests, and for one to arrive or to be read whole. Scrapers come every 15 to 60 s."""
    linger_seconds: float = 1.0
    """For the last answer to be read: to a request that was refused, or when the node stops."""


class HttpListener:
    def __init__(self, address: Address, source: StatusSource, limits: HttpLimits | None = None) -> None:
        self._address = address
        self.limits = limits or HttpLimits()
        self.pages = Pages(source)
        self.local_only = names_this_machine(str(address))
        self._server: asyncio.Server | None = None
        self._connections: dict[_Connection, None] = {}
        """In the order in which they were last heard of."""
        self._all_closed = asyncio.Event()

    async def bind(self) -> Address:
        """Takes the port, and returns its address (a port of 0 becomes a real one). Raises OSError."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            lambda: _Connection(self), self._address.host, self._address.port, start_serving=False
        )
        return Address(self._address.host, self._server.sockets[0].getsockname()[1])

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

    def opened(self, connection: _Connection) -> None:
        if len(self._connections) >= self.limits.connections:
            next(iter(self._connections)).abort()
        self._connections[connection] = None
        if self._server is None:
            connection.abort()

    def heard_of(self, connection: _Connection) -> None:
        if connection in self._connections:
            del self._connections[connection]
            self._connections[connection] = None

    def closed(self, connection: _Connection) -> None:
        self._connections.pop(connection, None)
        if not self._connections:
            self._all_closed.set()


class _Connection(asyncio.Protocol):
    def __init__(self, listener: HttpListener) -> None:
        self._listener = listener
        self._transport: asyncio.Transport
        self._received = bytearray()
        self._unread = False
        """Whether the peer has yet to read what it was sent."""
        self._refused = False
        self._silence: asyncio.TimerHandle | None = None

    def close(self) -> None:
        """After what was written is sent."""
        self._transport.close()

    def abort(self) -> None:
        self._listener.closed(self)
        self._transport.abort()

    # The transport's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._listener.opened(self)
        self._abort_after(self._listener.limits.silence_seconds)

    def connection_lost(self, error: Exception | None) -> None:
        if self._silence is not None:
            self._silence.cancel()
        self._listener.closed(self)

    def data_received(self, data: bytes) -> None:
        if not self._refused:
            self._received += data
            self._answer_all()

    def pause_writing(self) -> None:
        self._unread = True
        self._transport.pause_reading()

    def resume_writing(self) -> None:
        self._unread = False
        if not self._transport.is_closing():
            self._transport.resume_reading()
            self._answer_all()

    # Requests

    def _answer_all(self) -> None:
        """What came whole, in order; a peer that does not read its answers gets no further ones."""
        while self._received and not self._unread and not self._transport.is_closing():
            end = self._received.find(HEAD_END)
            size = len(self._received) if end < 0 else end
            if size > self._listener.limits.head_bytes:
                why = f"more than {self._listener.limits.head_bytes} bytes of headers"
                self._refuse(BadRequest(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, why))
            elif end < 0:
                return
            else:
                head = bytes(self._received[:end])
                del self._received[: end + len(HEAD_END)]
                self._answer(head)

    def _answer(self, head: bytes) -> None:
        try:
            request = parse_head(head)
            self._check_host(request)
        except BadRequest as error:
            self._refuse(error)
            return
        self._listener.heard_of(self)
        self._abort_after(self._listener.limits.silence_seconds)
        response = self._listener.pages.answer(request.path)
        with_body = request.method != "HEAD"
        self._transport.write(encode_response(response, with_body=with_body, keep_alive=request.keep_alive))
        if not request.keep_alive:
            self.close()

    def _check_host(self, request: HttpRequest) -> None:
        if self._listener.local_only and request.host and not names_this_machine(request.host):
            raise BadRequest(HTTPStatus.MISDIRECTED_REQUEST, f"this is not {request.host!r}")

    def _refuse(self, error: BadRequest) -> None:
        """The rest of what the peer sends is read and thrown away: closing at once would reset the connection, and the
        peer would never see why it was refused."""
        logger.debug("a request over HTTP was refused: %s", error)
        self._refused = True
        self._received.clear()
        self._transport.write(encode_response(error_page(error.status, str(error))))
        self._transport.write_eof()
        self._abort_after(self._listener.limits.linger_seconds)

    def _abort_after(self, seconds: float) -> None:
        if self._silence is not None:
            self._silence.cancel()
        self._silence = asyncio.get_running_loop().call_later(seconds, self.abort)
