"""One connection to a node's HTTP port: one request after the other, each answered before the next is looked at.

Whatever a peer sends at once, and however long a page is, the loop is held for one request, or one piece of a page:
then it is everybody else's turn. What takes time, or goes on as long as the peer listens, is a task of its own.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Iterator
from contextlib import aclosing
from http import HTTPStatus
from typing import Protocol, cast, runtime_checkable

import msgspec

from chronik.console.door import Door
from chronik.console.http import (
    CONTINUE,
    HEAD_BYTES_MAX,
    HEAD_END,
    WITHOUT_BODY,
    BadRequest,
    HttpRequest,
    HttpResponse,
    chunk,
    encode_response,
    names_this_machine,
    parse_head,
)
from chronik.console.pages import Pages, error_page, in_one_piece
from chronik.limits import MIB

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
    bodies_bytes: int = 32 * MIB
    """The bodies of all connections together, as long as they are announced or held."""


class Caller(msgspec.Struct, frozen=True):
    """Who asks, as far as the connection knows."""

    host: str
    is_encrypted: bool = False
    has_certificate: bool = False
    """Whether it has shown one that is accepted."""


@runtime_checkable
class ShowsCertificate(Protocol):
    """A transport with TLS: see `chronik.tls.transport`, which a node without it does not load."""

    @property
    def peer_certificate(self) -> bytes | None: ...


class Application(Protocol):
    """What is behind all paths but those of `Pages`: see `chronik.console.rest.application`."""

    async def answer(self, request: HttpRequest, body: bytes, caller: Caller) -> HttpResponse:
        """Never raises."""

    async def check_looking(self, request: HttpRequest, caller: Caller) -> None:
        """Lets somebody look at a page who has neither token nor certificate. Raises BadRequest."""


class ConnectionOwner(Protocol):
    """What a connection asks of the listener that it came through."""

    limits: HttpLimits
    local_only: bool
    door: Door
    pages: Pages
    scratch: memoryview
    """Room for one read: those on one loop never overlap."""
    bodies_bytes: int
    application: Application | None
    """What answers all that is no page, if anything does."""

    def opened(self, connection: HttpConnection) -> None: ...

    def heard_of(self, connection: HttpConnection) -> None: ...

    def closed(self, connection: HttpConnection) -> None: ...


class HttpConnection(asyncio.BufferedProtocol):
    def __init__(self, listener: ConnectionOwner) -> None:
        self._listener = listener
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport
        self._caller = Caller("")
        self._received = bytearray()
        self._request: HttpRequest | None = None
        """The one whose body is still on its way."""
        self._body_bytes = 0
        """What this connection has of the room for bodies."""
        self._pieces: Iterator[bytes] | None = None
        """What is left of the page under way."""
        self._task: asyncio.Task[None] | None = None
        """The answer under way, if it takes time."""
        self._keeps_alive = True
        self._has_turn = False
        """Whether it goes on in the next turn of the loop."""
        self._unread = False
        """Whether the peer has yet to read what it was sent."""
        self._was_read = asyncio.Event()
        self._reading_paused = False
        self._refused = False
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
        is_encrypted = isinstance(transport, ShowsCertificate)
        has_certificate = isinstance(transport, ShowsCertificate) and transport.peer_certificate is not None
        address = transport.get_extra_info("peername")
        self._caller = Caller(address[0] if isinstance(address, tuple) else "", is_encrypted, has_certificate)
        self._listener.opened(self)
        self._abort_after(self._listener.limits.silence_seconds)

    def connection_lost(self, error: Exception | None) -> None:
        if self._silence is not None:
            self._silence.cancel()
        if self._task is not None:
            self._task.cancel()
        self._pieces = None
        self._hold_body(0)
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
        self._was_read.clear()

    def resume_writing(self) -> None:
        self._unread = False
        self._was_read.set()
        if not self._has_turn:
            self._go_on()

    # Turns

    def _go_on(self) -> None:
        """Sends the next piece of a page, or takes the next request; a peer that does not read gets no more."""
        self._has_turn = False
        if not self._unread and not self._transport.is_closing() and self._task is None:
            did_something = self._send_piece() if self._pieces is not None else self._take_request()
            if did_something:
                self._has_turn = True
                self._loop.call_soon(self._go_on)
        self._adjust_reading()

    def _adjust_reading(self) -> None:
        """While there is more than a whole request, nothing further is read."""
        room = self._listener.limits.head_bytes + len(HEAD_END)
        if self._request is not None:
            room = max(room, self._request.body_bytes)
        wait = self._unread or len(self._received) > room
        if self._transport.is_closing() or wait == self._reading_paused:
            return
        self._reading_paused = wait
        if wait:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()

    def _take_request(self) -> bool:
        """Says whether there was one, or what can never become one."""
        try:
            if self._request is None and not self._take_head():
                return False
            return self._take_body()
        except BadRequest as error:
            self._refuse(error)
            return False

    def _take_head(self) -> bool:
        """Says whether there was one. Raises BadRequest."""
        end = self._received.find(HEAD_END)
        size = len(self._received) if end < 0 else end
        if size > self._listener.limits.head_bytes:
            why = f"more than {self._listener.limits.head_bytes} bytes of headers"
            raise BadRequest(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, why)
        if end < 0:
            return False
        head = bytes(self._received[:end])
        del self._received[: end + len(HEAD_END)]
        request = parse_head(head)
        self._check_host(request)
        if not self._is_for_application(request) and request.method not in WITHOUT_BODY:
            raise BadRequest(HTTPStatus.METHOD_NOT_ALLOWED, f"{request.method} is not for this page")
        self._hold_body(request.body_bytes)
        self._request = request
        if b"expect" in request.headers and len(self._received) < request.body_bytes:
            self._transport.write(CONTINUE)
        return True

    def _take_body(self) -> bool:
        request = self._request
        assert request is not None
        if len(self._received) < request.body_bytes:
            return False
        body = bytes(self._received[: request.body_bytes])
        del self._received[: request.body_bytes]
        self._request = None
        self._answer(request, body)
        return True

    def _hold_body(self, size: int) -> None:
        """Raises BadRequest when the bodies of all connections would be too long."""
        listener = self._listener
        if size and listener.bodies_bytes + size - self._body_bytes > listener.limits.bodies_bytes:
            raise BadRequest(HTTPStatus.SERVICE_UNAVAILABLE, "too many long requests are under way")
        listener.bodies_bytes += size - self._body_bytes
        self._body_bytes = size

    # Answers

    def _is_for_application(self, request: HttpRequest) -> bool:
        return not self._listener.pages.knows(request.path) and self._listener.application is not None

    def _answer(self, request: HttpRequest, body: bytes) -> None:
        """Raises BadRequest."""
        listener = self._listener
        listener.heard_of(self)
        self._abort_after(listener.limits.silence_seconds)
        application = listener.application
        if application is not None and not listener.pages.knows(request.path):
            self._later(self._answer_by(application, request, body))
            return
        try:
            listener.door.check(request.path, request.authorization, has_certificate=self._caller.has_certificate)
        except BadRequest:
            if application is None:
                raise
            self._later(self._show_to_logged_in(application, request))
            return
        self._begin(request, listener.pages.answer(request.path))

    async def _answer_by(self, application: Application, request: HttpRequest, body: bytes) -> None:
        response = await application.answer(request, body, self._caller)
        self._hold_body(0)
        if response.events is None or request.method == "HEAD":
            self._begin(request, response)
        else:
            await self._stream(request, response)

    async def _show_to_logged_in(self, application: Application, request: HttpRequest) -> None:
        await application.check_looking(request, self._caller)
        self._begin(request, self._listener.pages.answer(request.path))

    def _later(self, answering: Coroutine[None, None, None]) -> None:
        """Answers in a task, while the peer may be silent."""
        if self._silence is not None:
            self._silence.cancel()
        self._task = self._loop.create_task(answering)
        self._task.add_done_callback(self._answered)

    def _answered(self, task: asyncio.Task[None]) -> None:
        self._task = None
        if self._transport.is_closing():
            if not task.cancelled():
                task.exception()  # it was for nobody
            return
        self._abort_after(self._listener.limits.silence_seconds)
        error = None if task.cancelled() else task.exception()
        if isinstance(error, BadRequest):
            self._refuse(error)
        elif error is not None or task.cancelled():
            logger.error("an answer broke off", exc_info=error)
            self.abort()
        elif not self._has_turn:
            self._go_on()

    async def _stream(self, request: HttpRequest, response: HttpResponse) -> None:
        """Sends what comes until there is no more, or nobody who reads it."""
        assert response.events is not None
        if not request.takes_chunks:
            raise BadRequest(HTTPStatus.HTTP_VERSION_NOT_SUPPORTED, "this goes on and on, which needs HTTP/1.1")
        self._keeps_alive = request.keep_alive
        self._transport.write(encode_response(response, keep_alive=request.keep_alive))
        async with aclosing(response.events) as pieces:
            async for piece in pieces:
                self._listener.heard_of(self)
                self._transport.write(chunk(piece))
                if self._unread:
                    async with asyncio.timeout(self._listener.limits.silence_seconds):
                        await self._was_read.wait()
        self._transport.write(chunk(b""))
        self._end()

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
        self._hold_body(0)
        self._transport.write(encode_response(error_page(error.status, str(error))))
        if self._transport.can_write_eof():
            self._transport.write_eof()
        self._abort_after(self._listener.limits.linger_seconds)

    def _abort_after(self, seconds: float) -> None:
        if self._silence is not None:
            self._silence.cancel()
        self._silence = self._loop.call_later(seconds, self.abort)
