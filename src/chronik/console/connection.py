"""One connection to a node's HTTP port: one request after the other, each answered before the next is looked at.

Whatever a peer sends at once, and however long a page is, the loop is held for one request, or one piece of a page:
then it is everybody else's turn. What takes time, or goes on as long as the peer listens, is a task of its own.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import aclosing
from http import HTTPStatus
from typing import Final, Protocol, cast, runtime_checkable

import msgspec

from chronik.addresses import network_of, normalized
from chronik.console.body_budget import BodyBudget, OverBudget
from chronik.console.door import OPEN_TO_ALL, Door
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
from chronik.exchange import account_key
from chronik.limits import KIB, MIB
from chronik.principals import ANONYMOUS, Principal
from chronik.scheduler import Account, Callback, Scheduler, timed, working_for

logger = logging.getLogger("chronik.console")


CONNECTIONS_SHARE_OF_ACCOUNT: Final = 4
"""An account may have a quarter of the connections."""


class HttpLimits(msgspec.Struct, frozen=True):
    head_bytes: int = HEAD_BYTES_MAX
    connections: int = 512
    """More than the networks of most attackers: while some network has several connections, one of those is closed for
    a new one (see `slots`), so a client with a single connection keeps it."""
    handshakes: int = 256
    """TLS handshakes in progress; each takes up to 100 kB."""
    silence_seconds: float = 90.0
    """The time between two requests, and for one to arrive or be read whole. Scrapers come every 15 to 60 s."""
    linger_seconds: float = 1.0
    """The time for the last answer to be read: to a request that was refused, or when the node stops."""
    bodies_bytes: int = 32 * MIB
    """The large bodies of all connections together, as far as they have arrived."""
    unauthenticated_body_bytes: int = 16 * KIB
    """A body that is read before the request is authenticated. A login has a name and a password of up to 4 KiB, which
    JSON may escape. It is not counted in `bodies_bytes`: there is one for each connection at most."""

    @property
    def connections_per_account(self) -> int:
        return max(2, self.connections // CONNECTIONS_SHARE_OF_ACCOUNT)


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


class Prepared(msgspec.Struct, frozen=True):
    """A request that was routed and authenticated. Its body may still have to be read."""

    principal: Principal | None
    """None for an unauthenticated request."""
    response: HttpResponse | None = None
    """The response, if it does not depend on the body."""
    answer: Callable[[bytes], Awaitable[HttpResponse]] | None = None
    """Returns the response to a request with this body, if `response` is None. Never raises."""


class Viewer(msgspec.Struct, frozen=True):
    """A client that may look at a page."""

    principal: Principal
    is_allowed: Callable[[], bool]
    """Says whether it still may, while the page is being sent."""


class Application(Protocol):
    """What is behind all paths but those of `Pages`: see `chronik.console.rest.application`."""

    async def prepare(self, request: HttpRequest, caller: Caller) -> Prepared:
        """Route and authenticate a request before its body is read. Never raises."""

    async def check_looking(self, request: HttpRequest, caller: Caller) -> Viewer:
        """Authenticate a client that asks for a page with neither token nor certificate. Raises BadRequest."""


class ConnectionOwner(Protocol):
    """What a connection asks of the listener that it came through."""

    limits: HttpLimits
    local_only: bool
    door: Door
    pages: Pages
    scratch: memoryview
    """Room for one read: those on one loop never overlap."""
    bodies: BodyBudget[HttpConnection]
    scheduler: Scheduler
    application: Application | None
    """What answers all that is no page, if anything does."""

    def opened(self, connection: HttpConnection) -> None: ...

    def identified(self, connection: HttpConnection) -> None: ...

    def heard_of(self, connection: HttpConnection) -> None: ...

    def closed(self, connection: HttpConnection) -> None: ...


BODIES_FULL: Final = "too many large requests are being received: try again"


class _Rejected(Exception):
    """A request is rejected before its body is read."""

    def __init__(self, response: HttpResponse) -> None:
        super().__init__(response.status)
        self.response = response


class HttpConnection(asyncio.BufferedProtocol):
    def __init__(self, listener: ConnectionOwner) -> None:
        self._listener = listener
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport
        self._caller = Caller("")
        self._received = bytearray()
        self._request: HttpRequest | None = None
        """The request whose body is still being received."""
        self._prepared: Prepared | None = None
        """That request, if it was authenticated before its body, which is large."""
        self.network = ""
        """The client's IPv4 address or IPv6 /64 network."""
        self.account: str | None = None
        """The account of the latest request; None until one is authenticated."""
        self._pieces: Iterator[bytes] | None = None
        """What is left of the page under way."""
        self._viewer: Viewer | None = None
        """Who has logged in to look at that page."""
        self._task: asyncio.Task[None] | None = None
        """The answer under way, if it takes time."""
        self._keeps_alive = True
        self._work: Final = Callback(self._resume)
        self._has_more = False
        """Whether the work is queued, or is to be."""
        self.loop_account: Account
        """What the event loop's time is charged to."""
        self._unread = False
        """Whether the peer has yet to read what it was sent."""
        self._was_read = asyncio.Event()
        self._reading_paused = False
        self._refused = False
        self._silence: asyncio.TimerHandle | None = None

    @property
    def is_busy(self) -> bool:
        """Whether a response is being made or sent."""
        return self._task is not None or self._pieces is not None

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
        host = normalized(address[0]) if isinstance(address, tuple) else ""
        self._caller = Caller(host, is_encrypted, has_certificate)
        self.network = network_of(host)
        self.loop_account = self._listener.scheduler.open_account(self.network, is_authenticated=False)
        self._listener.opened(self)
        self._abort_after(self._listener.limits.silence_seconds)

    def connection_lost(self, error: Exception | None) -> None:
        if self._silence is not None:
            self._silence.cancel()
        if self._task is not None:
            self._task.cancel()
        self._pieces = None
        self._listener.scheduler.withdraw(self.loop_account, self._work)
        self._listener.scheduler.close_account(self.loop_account)
        self._listener.bodies.release(self)
        self._listener.closed(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._listener.scratch

    def buffer_updated(self, count: int) -> None:
        if self._refused:
            return
        self._received += self._listener.scratch[:count]
        self._run()

    def pause_writing(self) -> None:
        self._unread = True
        self._was_read.clear()

    def resume_writing(self) -> None:
        self._unread = False
        self._was_read.set()
        self._run()

    # Work for the scheduler

    def _run(self) -> None:
        """Do what there is to do, when the scheduler allows it."""
        if not self._has_more:
            self._listener.scheduler.run(self.loop_account, self._work)
            self._has_more = self._work.is_queued

    def _resume(self) -> None:
        """Send the next piece of a page, or handle the next request. A client that does not read gets no more."""
        self._has_more = False
        if not self._unread and not self._transport.is_closing() and self._task is None:
            did_something = self._send_piece() if self._pieces is not None else self._take_request()
            if did_something:
                self._has_more = True
                self._listener.scheduler.submit(self.loop_account, self._work)
        self._adjust_reading()

    def _adjust_reading(self) -> None:
        """While there is more than a whole request, nothing further is read."""
        room = self._listener.limits.head_bytes + len(HEAD_END)
        if self._request is not None and (self._prepared is not None or not self._is_large(self._request)):
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
            return self._task is None and self._take_body()
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
        self._request = request
        application = self._listener.application
        if self._is_large(request) and application is not None:
            self._later(self._prepare_large(application, request))
        else:
            self._ask_for_body(request)
        return True

    def _is_large(self, request: HttpRequest) -> bool:
        return request.body_bytes > self._listener.limits.unauthenticated_body_bytes

    def _ask_for_body(self, request: HttpRequest) -> None:
        if b"expect" in request.headers and len(self._received) < request.body_bytes:
            self._transport.write(CONTINUE)

    async def _prepare_large(self, application: Application, request: HttpRequest) -> None:
        """Authenticate a request before its body is read. Raises BadRequest or _Rejected."""
        prepared = await application.prepare(request, self._caller)
        self._identify(prepared.principal)
        if prepared.response is not None:
            raise _Rejected(prepared.response)
        if prepared.principal is None:
            why = f"more than {self._listener.limits.unauthenticated_body_bytes} bytes in a body without a login"
            raise BadRequest(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, why)
        self._prepared = prepared
        self._ask_for_body(request)

    def _take_body(self) -> bool:
        request = self._request
        assert request is not None
        if self._is_large(request):
            self._hold_body(min(len(self._received), request.body_bytes))
        if len(self._received) < request.body_bytes:
            return False
        body = bytes(self._received[: request.body_bytes])
        del self._received[: request.body_bytes]
        prepared, self._request, self._prepared = self._prepared, None, None
        self._answer(request, body, prepared)
        return True

    def _hold_body(self, size: int) -> None:
        """Reserve memory for as much of the body as has arrived. Raises BadRequest."""
        try:
            dropped = self._listener.bodies.hold(self, self.account or self.network, size)
        except OverBudget:
            raise BadRequest(HTTPStatus.SERVICE_UNAVAILABLE, BODIES_FULL) from None
        for each in dropped:
            each.drop_body()

    def drop_body(self) -> None:
        """Reject the request whose body is being received: its account holds more memory than others."""
        if self._task is None:
            self._refuse(BadRequest(HTTPStatus.SERVICE_UNAVAILABLE, BODIES_FULL))
        else:
            self.abort()

    # Answers

    def _is_for_application(self, request: HttpRequest) -> bool:
        return not self._listener.pages.knows(request.path) and self._listener.application is not None

    def _identify(self, principal: Principal | None) -> None:
        """Record whose request it is: the only place where the account of a request is decided."""
        self.account = None if principal is None else account_key(principal, self._caller.host)
        self._change_loop_account()
        self._listener.identified(self)

    def _change_loop_account(self) -> None:
        scheduler, before = self._listener.scheduler, self.loop_account
        is_authenticated = self.account is not None
        if (before.key, before.is_authenticated) == (self.account or self.network, is_authenticated):
            return
        was_queued = self._work.is_queued
        scheduler.withdraw(before, self._work)
        self.loop_account = scheduler.open_account(self.account or self.network, is_authenticated=is_authenticated)
        scheduler.close_account(before)
        if was_queued:
            scheduler.submit(self.loop_account, self._work)

    def _answer(self, request: HttpRequest, body: bytes, prepared: Prepared | None) -> None:
        """Raises BadRequest."""
        listener = self._listener
        self._viewer = None
        listener.heard_of(self)
        self._abort_after(listener.limits.silence_seconds)
        application = listener.application
        if application is not None and not listener.pages.knows(request.path):
            self._later(self._answer_by(application, request, body, prepared))
            return
        try:
            listener.door.check(request.path, request.authorization, has_certificate=self._caller.has_certificate)
        except BadRequest:
            if application is None:
                raise
            self._later(self._show_to_logged_in(application, request))
            return
        if request.path not in OPEN_TO_ALL:
            self._identify(ANONYMOUS)
        self._begin(request, listener.pages.answer(request.path))

    async def _answer_by(
        self, application: Application, request: HttpRequest, body: bytes, prepared: Prepared | None
    ) -> None:
        if prepared is None:
            prepared = await application.prepare(request, self._caller)
            self._identify(prepared.principal)
        response = prepared.response
        if response is None:
            assert prepared.answer is not None
            response = await prepared.answer(body)
        self._listener.bodies.release(self)
        if response.events is None or request.method == "HEAD":
            self._begin(request, response)
        else:
            await self._stream(request, response)

    async def _show_to_logged_in(self, application: Application, request: HttpRequest) -> None:
        try:
            self._viewer = await application.check_looking(request, self._caller)
            self._identify(self._viewer.principal)
        except BadRequest:
            self._identify(None)
            raise
        self._begin(request, self._listener.pages.answer(request.path))

    def _later(self, answering: Coroutine[None, None, None]) -> None:
        """Answers in a task, while the peer may be silent."""
        if self._silence is not None:
            self._silence.cancel()
        scheduler = self._listener.scheduler
        with working_for(scheduler, self.loop_account):
            self._task = self._loop.create_task(timed(answering, self._charge))
        self._task.add_done_callback(self._answered)

    def _charge(self, seconds: float) -> None:
        self._listener.scheduler.charge(self.loop_account, seconds)

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
        elif isinstance(error, _Rejected):
            self._refuse_with(error.response)
        elif error is not None or task.cancelled():
            logger.error("an answer broke off", exc_info=error)
            self.abort()
        else:
            self._run()

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
        if self._viewer is not None and not self._viewer.is_allowed():
            logger.debug("a page broke off: %s is no longer allowed to see it", self._viewer.principal)
            self.abort()
            return False
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
        self._refuse_with(error_page(error.status, str(error)))

    def _refuse_with(self, response: HttpResponse) -> None:
        self._refused = True
        self._received.clear()
        self._listener.bodies.release(self)
        self._transport.write(encode_response(response))
        self._adjust_reading()
        if self._transport.can_write_eof():
            self._transport.write_eof()
        self._abort_after(self._listener.limits.linger_seconds)

    def _abort_after(self, seconds: float) -> None:
        if self._silence is not None:
            self._silence.cancel()
        self._silence = self._loop.call_later(seconds, self.abort)
