"""One connection to a node's HTTP port: one request after the other, each answered before the next is looked at.

Whatever a peer sends at once, and however long a page is, the loop is held for one request, or one piece of a page:
then it is everybody else's turn.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from http import HTTPStatus
from typing import Protocol, cast, runtime_checkable

import msgspec

from chronik.console.door import Door
from chronik.console.http import (
    HEAD_BYTES_MAX,
    HEAD_END,
    BadRequest,
    HttpRequest,
    HttpResponse,
    chunk,
    encode_response,
    names_this_machine,
    parse_head,
)
from chronik.console.pages import Pages, error_page, in_one_piece

logger = logging.getLogger("chronik.console")


class HttpLimits(msgspec.Struct, frozen=True):
    head_bytes: int = HEAD_BYTES_MAX
    connections: int = 64
    """A prober, a scraper, some browsers. One more takes the place of whoever was silent longest: strangers that
    hold connections open cannot make a node look dead."""
    silence_seconds: float = 90.0
    """The time between two requests, and for one to arrive or be read whole. Scrapers come every 15 to 60 s."""
    linger_seconds: float = 1.0
    """The time for the last answer to be read: to a request that was refused, or when the node stops."""


@runtime_checkable
class ShowsCertificate(Protocol):
    """A transport with TLS: see `chronik.tls.transport`, which a node without it does not load."""

    @property
    def peer_certificate(self) -> bytes | None: ...


class ConnectionOwner(Protocol):
    """What a connection asks of the listener that it came through."""

    limits: HttpLimits
    local_only: bool
    door: Door
    pages: Pages
    scratch: memoryview
    """Room for one read: those on one loop never overlap."""

    def opened(self, connection: HttpConnection) -> None: ...

    def heard_of(self, connection: HttpConnection) -> None: ...

    def closed(self, connection: HttpConnection) -> None: ...


class HttpConnection(asyncio.BufferedProtocol):
    def __init__(self, listener: ConnectionOwner) -> None:
        self._listener = listener
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport
        self._received = bytearray()
        self._pieces: Iterator[bytes] | None = None
        """What is left of the page under way."""
        self._keeps_alive = True
        self._has_turn = False
        """Whether it goes on in the next turn of the loop."""
        self._unread = False
        """Whether the peer has yet to read what it was sent."""
        self._reading_paused = False
        self._refused = False
        self._has_certificate = False
        """Whether its peer has shown one that is accepted."""
        self._silence: asyncio.TimerHandle | None = None

    def close(self) -> None:
        """Closes the connection when what was written is sent."""
        self._transport.close()

    def abort(self) -> None:
        self._listener.closed(self)
        self._transport.abort()

    # The transport's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._has_certificate = isinstance(transport, ShowsCertificate) and transport.peer_certificate is not None
        self._listener.opened(self)
        self._abort_after(self._listener.limits.silence_seconds)

    def connection_lost(self, error: Exception | None) -> None:
        if self._silence is not None:
            self._silence.cancel()
        self._pieces = None
        self._listener.closed(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._listener.scratch

    def buffer_updated(self, count: int) -> None:
        if self._refused:
            return
        self._received += self._listener.scratch[:count]
        if not self._has_turn:
            self._go_on()

    def pause_writing(self) -> None:
        self._unread = True

    def resume_writing(self) -> None:
        self._unread = False
        if not self._has_turn:
            self._go_on()

    # Turns

    def _go_on(self) -> None:
        """Sends the next piece of a page, or takes the next request; a peer that does not read gets no more."""
        self._has_turn = False
        if not self._unread and not self._transport.is_closing():
            did_something = self._send_piece() if self._pieces is not None else self._take_request()
            if did_something:
                self._has_turn = True
                self._loop.call_soon(self._go_on)
        self._adjust_reading()

    def _adjust_reading(self) -> None:
        """While there is more than a whole request, nothing further is read."""
        wait = self._unread or len(self._received) > self._listener.limits.head_bytes + len(HEAD_END)
        if self._transport.is_closing() or wait == self._reading_paused:
            return
        self._reading_paused = wait
        if wait:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()

    def _take_request(self) -> bool:
        """Says whether there was one, or what can never become one."""
        end = self._received.find(HEAD_END)
        size = len(self._received) if end < 0 else end
        if size > self._listener.limits.head_bytes:
            why = f"more than {self._listener.limits.head_bytes} bytes of headers"
            self._refuse(BadRequest(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, why))
            return False
        if end < 0:
            return False
        head = bytes(self._received[:end])
        del self._received[: end + len(HEAD_END)]
        self._answer(head)
        return True

    # Answers

    def _answer(self, head: bytes) -> None:
        try:
            request = parse_head(head)
            self._check_host(request)
            self._listener.door.check(request.path, request.authorization, has_certificate=self._has_certificate)
        except BadRequest as error:
            self._refuse(error)
            return
        self._listener.heard_of(self)
        self._abort_after(self._listener.limits.silence_seconds)
        self._begin(request, self._listener.pages.answer(request.path))

    def _begin(self, request: HttpRequest, response: HttpResponse) -> None:
        self._keeps_alive = request.keep_alive
        if not request.takes_chunks:
            response = in_one_piece(response)
        with_body = request.method != "HEAD"
        self._transport.write(encode_response(response, with_body=with_body, keep_alive=request.keep_alive))
        if with_body and response.pieces is not None:
            self._pieces = response.pieces
        else:
            self._end()

    def _send_piece(self) -> bool:
        assert self._pieces is not None
        try:
            piece = next(self._pieces, b"")
        except Exception:  # a line in the log, not the end of a node; without its end the peer knows it is not whole
            logger.exception("a page broke off")
            self.abort()
            return False
        self._transport.write(chunk(piece))
        if not piece:
            self._pieces = None
            self._end()
        return True

    def _end(self) -> None:
        if not self._keeps_alive:
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
        if self._transport.can_write_eof():
            self._transport.write_eof()
        self._abort_after(self._listener.limits.linger_seconds)

    def _abort_after(self, seconds: float) -> None:
        if self._silence is not None:
            self._silence.cancel()
        self._silence = self._loop.call_later(seconds, self.abort)
