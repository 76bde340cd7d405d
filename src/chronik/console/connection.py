"""One connection to a node's HTTP port. Requests are answered in order, one at a time.

Regardless of how much a client sends or how long a page is, one event-loop iteration handles one request or one chunk
of a page. Slow and open-ended responses run in a task of their own.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import aclosing
from http import HTTPStatus
from typing import Final, Protocol, cast, runtime_checkable

import msgspec

from chronik.console.http import (
    BODYLESS_METHODS,
    CONTINUE_RESPONSE,
    HEAD_BYTES_MAX,
    HEAD_END,
    HttpError,
    HttpRequest,
    HttpResponse,
    ResponseAborted,
    encode_chunk,
    encode_response,
    is_loopback_host,
    parse_head,
)
from chronik.console.shared_limits import BodyBudgetExceeded, RequestBodyBudget
from chronik.console.status_pages import (
    PUBLIC_PATHS,
    NoStatusPages,
    PageAuthorizer,
    StatusPages,
    build_error_page,
    join_chunks,
)
from chronik.ip_addresses import client_network, normalize_host
from chronik.limits import KIB, MIB
from chronik.principals import ANONYMOUS, Principal
from chronik.request_reply import build_account_key
from chronik.scheduler import Account, CallbackWork, Scheduler, charge_tasks_to_account, measure_loop_time

logger = logging.getLogger("chronik.console")


ACCOUNT_CONNECTIONS_DIVISOR: Final = 4
"""Each user, or network of anonymous clients, may hold at most the maximum number of connections divided by this."""


class HttpLimits(msgspec.Struct, frozen=True):
    """Limits on connections, request sizes, memory and waiting times of the HTTP port."""

    head_bytes: int = HEAD_BYTES_MAX
    connections: int = 512
    """Maximum number of connections. If it is exceeded, a connection of the network with the most connections is closed
    (see `ConnectionSlots`).

    The maximum exceeds the number of networks that most attackers control, so a network with a single connection keeps
    it."""
    handshakes: int = 256
    """Maximum number of TLS handshakes in progress. Each uses up to 100 kB of memory."""
    idle_seconds_max: float = 90.0
    """Maximum idle time between requests, and maximum time to receive a request or send a response. Scrapers poll every
    15 to 60 s."""
    linger_seconds: float = 1.0
    """Maximum seconds for which an HTTP connection stays open after its last response, so that the client can read it.
    """
    bodies_bytes: int = 32 * MIB
    """Maximum memory for the partially received large bodies of all connections."""
    unauthenticated_body_bytes: int = 16 * KIB
    """Maximum size of a body that is read before the request is authenticated. It fits a JSON login with a user name
    and a password of up to 4 KiB. These bodies do not count toward `bodies_bytes`, since a connection has at most
    one."""

    @property
    def connections_per_account(self) -> int:
        """Return the maximum number of connections per account."""
        return max(2, self.connections // ACCOUNT_CONNECTIONS_DIVISOR)


class ClientInfo(msgspec.Struct, frozen=True):
    """The address of an HTTP client, and whether it uses TLS and a client certificate."""

    host: str
    is_encrypted: bool = False
    has_certificate: bool = False
    """Whether the client presented a certificate that was verified."""


@runtime_checkable
class TlsConnection(Protocol):
    """The interface of a TLS transport, whose implementation is imported only if TLS is configured."""

    @property
    def peer_certificate(self) -> bytes | None:
        """The verified client certificate, or None."""


class PreparedRequest(msgspec.Struct, frozen=True):
    """An HTTP request that has been routed and authenticated, possibly before its body is received."""

    principal: Principal | None
    """The authenticated principal, or None for an unauthenticated request."""
    response: HttpResponse | None = None
    """The HTTP response, if it is already known before the request body is read."""
    respond: Callable[[bytes], Awaitable[HttpResponse]] | None = None
    """A callback that computes the HTTP response from the request body and never raises. Set if `response` is None."""


class StatusPageViewer(msgspec.Struct, frozen=True):
    """A client that is authorized to read an HTTP status page, such as `/metrics`."""

    principal: Principal
    is_authorized: Callable[[], bool]
    """A callback that returns whether the client may still read the page. It is called before each chunk of a long
    page."""


class HttpApplication(Protocol):
    """The interface of the application that serves all HTTP paths other than status pages, such as the admin API."""

    async def prepare(self, request: HttpRequest, caller: ClientInfo) -> PreparedRequest:
        """Route and authenticate an HTTP request before its body is read. Never raises."""

    async def authorize_viewer(self, request: HttpRequest, caller: ClientInfo) -> StatusPageViewer:
        """Authenticate and authorize a client that requests a status page with neither a token nor a certificate.

        Raises:
            HttpError: The client is not authenticated or not authorized.
        """


class ConnectionOwner(Protocol):
    """The interface of an HTTP listener as seen by its connections."""

    limits: HttpLimits
    is_loopback_only: bool
    page_authorizer: PageAuthorizer
    pages: StatusPages | NoStatusPages
    read_buffer: memoryview
    """A buffer for socket reads that all connections share, since reads on one event loop never overlap."""
    body_budget: RequestBodyBudget[HttpConnection]
    scheduler: Scheduler
    application: HttpApplication | None
    """The handler of requests for paths other than status pages, or None."""

    def on_connection_opened(self, connection: HttpConnection) -> None:
        """Register a new connection with the listener."""

    def on_connection_identified(self, connection: HttpConnection) -> None:
        """Charge an HTTP connection to the account of its latest request."""

    def on_connection_active(self, connection: HttpConnection) -> None:
        """Mark an HTTP connection as the most recently active one."""

    def on_connection_closed(self, connection: HttpConnection) -> None:
        """Unregister a closed connection from the listener."""


BODY_BUDGET_MESSAGE: Final = "too many large requests are being received: try again later"


class _RequestRejected(Exception):
    """Raised to reject a request before its body is read."""

    def __init__(self, response: HttpResponse) -> None:
        super().__init__(response.status)
        self.response = response


class HttpConnection(asyncio.BufferedProtocol):
    """A connection of an HTTP client: it parses the client's requests and sends the responses."""

    def __init__(self, listener: ConnectionOwner) -> None:
        self._listener = listener
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport
        self._caller = ClientInfo("")
        self._received = bytearray()
        self._request: HttpRequest | None = None
        """The request whose body is being received."""
        self._prepared: PreparedRequest | None = None
        """The result of routing and authenticating the request, if this was done before its large body was received."""
        self.network = ""
        """The client's IPv4 address or IPv6 /64 network."""
        self.account: str | None = None
        """The account of the latest request: its user or anonymous network. None while the client is unauthenticated.
        """
        self._chunks: Iterator[bytes] | None = None
        """The remaining chunks of the HTTP response body."""
        self._viewer: StatusPageViewer | None = None
        """The authenticated client that reads the status page being sent, or None."""
        self._task: asyncio.Task[None] | None = None
        """The task that produces the response, if it is asynchronous."""
        self._keeps_alive = True
        self._callback: Final = CallbackWork(self._resume_processing)
        self._is_scheduled = False
        """Whether a call of `_resume_processing` is queued in the event-loop scheduler, or is about to be queued."""
        self.loop_account: Account
        """The event-loop scheduler's account, which is charged for the processing time of the client's requests."""
        self._is_write_paused = False
        """Whether the transport's write buffer is full."""
        self._write_resumed = asyncio.Event()
        self._reading_paused = False
        self._is_rejected = False
        self._idle_timer: asyncio.TimerHandle | None = None

    @property
    def is_busy(self) -> bool:
        """Whether a response is being produced or sent."""
        return self._task is not None or self._chunks is not None

    def close(self) -> None:
        """Close the connection after the buffered data has been sent."""
        self._transport.close()

    def abort(self) -> None:
        """Close the connection immediately."""
        self._listener.on_connection_closed(self)
        self._transport.abort()

    # asyncio.BufferedProtocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        is_encrypted = isinstance(transport, TlsConnection)
        has_certificate = isinstance(transport, TlsConnection) and transport.peer_certificate is not None
        address = transport.get_extra_info("peername")
        host = normalize_host(address[0]) if isinstance(address, tuple) else ""
        self._caller = ClientInfo(host, is_encrypted, has_certificate)
        self.network = client_network(host)
        self.loop_account = self._listener.scheduler.open_account(self.network, is_authenticated=False)
        self._listener.on_connection_opened(self)
        self._schedule_abort(self._listener.limits.idle_seconds_max)

    def connection_lost(self, error: Exception | None) -> None:
        if self._idle_timer is not None:
            self._idle_timer.cancel()
        if self._task is not None:
            self._task.cancel()
        self._chunks = None
        self._listener.scheduler.withdraw(self.loop_account, self._callback)
        self._listener.scheduler.close_account(self.loop_account)
        self._listener.body_budget.release(self)
        self._listener.on_connection_closed(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._listener.read_buffer

    def buffer_updated(self, count: int) -> None:
        if self._is_rejected:
            return
        self._received += self._listener.read_buffer[:count]
        self._schedule_processing()

    def pause_writing(self) -> None:
        self._is_write_paused = True
        self._write_resumed.clear()

    def resume_writing(self) -> None:
        self._is_write_paused = False
        self._write_resumed.set()
        self._schedule_processing()

    # Scheduling

    def _schedule_processing(self) -> None:
        """Queue a callback in the event-loop scheduler that continues to process this connection."""
        if not self._is_scheduled:
            self._listener.scheduler.run(self.loop_account, self._callback)
            self._is_scheduled = self._callback.is_queued

    def _resume_processing(self) -> None:
        """Send the next response chunk or process the next request, unless the transport's write buffer is full."""
        self._is_scheduled = False
        if not self._is_write_paused and not self._transport.is_closing() and self._task is None:
            has_progressed = self._send_chunk() if self._chunks is not None else self._process_request()
            if has_progressed:
                self._is_scheduled = True
                self._listener.scheduler.submit(self.loop_account, self._callback)
        self._adjust_reading()

    def _adjust_reading(self) -> None:
        """Pause reading from the socket while more than one complete request is buffered, and resume it afterwards."""
        buffer_max = self._listener.limits.head_bytes + len(HEAD_END)
        if self._request is not None and (self._prepared is not None or not self._has_large_body(self._request)):
            buffer_max = max(buffer_max, self._request.body_bytes)
        must_pause = self._is_write_paused or len(self._received) > buffer_max
        if self._transport.is_closing() or must_pause == self._reading_paused:
            return
        self._reading_paused = must_pause
        if must_pause:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()

    def _process_request(self) -> bool:
        """Process the next buffered HTTP request, and return whether a complete one was buffered."""
        try:
            if self._request is None and not self._parse_request_head():
                return False
            return self._task is None and self._process_body()
        except HttpError as error:
            self._reject_request(error)
            return False

    def _parse_request_head(self) -> bool:
        """Parse the next request's head. Return False if it is not completely received, and raise HttpError if it is
        invalid.
        """
        end = self._received.find(HEAD_END)
        size = len(self._received) if end < 0 else end
        if size > self._listener.limits.head_bytes:
            reason = f"the request headers exceed {self._listener.limits.head_bytes} bytes"
            raise HttpError(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, reason)
        if end < 0:
            return False
        head = bytes(self._received[:end])
        del self._received[: end + len(HEAD_END)]
        request = parse_head(head)
        self._validate_host_header(request)
        if not self._is_application_request(request) and request.method not in BODYLESS_METHODS:
            raise HttpError(HTTPStatus.METHOD_NOT_ALLOWED, f"{request.method} is not supported for this page")
        self._request = request
        application = self._listener.application
        if self._has_large_body(request) and application is not None:
            self._respond_in_task(self._prepare_large_request(application, request))
        else:
            self._send_continue(request)
        return True

    def _has_large_body(self, request: HttpRequest) -> bool:
        return request.body_bytes > self._listener.limits.unauthenticated_body_bytes

    def _send_continue(self, request: HttpRequest) -> None:
        if b"expect" in request.headers and len(self._received) < request.body_bytes:
            self._transport.write(CONTINUE_RESPONSE)

    async def _prepare_large_request(self, application: HttpApplication, request: HttpRequest) -> None:
        """Authenticate a client before its large request body is read. Raise HttpError or _RequestRejected to reject
        it.
        """
        prepared = await application.prepare(request, self._caller)
        self._charge_account_of_principal(prepared.principal)
        if prepared.response is not None:
            raise _RequestRejected(prepared.response)
        if prepared.principal is None:
            reason = f"bodies over {self._listener.limits.unauthenticated_body_bytes} bytes require a login"
            raise HttpError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, reason)
        self._prepared = prepared
        self._send_continue(request)

    def _process_body(self) -> bool:
        request = self._request
        assert request is not None
        if self._has_large_body(request):
            self._reserve_body_memory(min(len(self._received), request.body_bytes))
        if len(self._received) < request.body_bytes:
            return False
        body = bytes(self._received[: request.body_bytes])
        del self._received[: request.body_bytes]
        prepared, self._request, self._prepared = self._prepared, None, None
        self._respond(request, body, prepared)
        return True

    def _reserve_body_memory(self, size: int) -> None:
        """Reserve memory for the received part of the request body. Raise HttpError if no memory is left."""
        try:
            dropped = self._listener.body_budget.reserve(self, self.account or self.network, size)
        except BodyBudgetExceeded:
            raise HttpError(HTTPStatus.SERVICE_UNAVAILABLE, BODY_BUDGET_MESSAGE) from None
        for each in dropped:
            each.reject_body_in_progress()

    def reject_body_in_progress(self) -> None:
        """Reject the request whose body is being received, because its account uses the most memory for bodies."""
        if self._task is None:
            self._reject_request(HttpError(HTTPStatus.SERVICE_UNAVAILABLE, BODY_BUDGET_MESSAGE))
        else:
            self.abort()

    # Responses

    def _is_application_request(self, request: HttpRequest) -> bool:
        return not self._listener.pages.has_page(request.path) and self._listener.application is not None

    def _charge_account_of_principal(self, principal: Principal | None) -> None:
        """Charge the connection to the account of the principal that sent the request."""
        self.account = None if principal is None else build_account_key(principal, self._caller.host)
        self._change_loop_account()
        self._listener.on_connection_identified(self)

    def _change_loop_account(self) -> None:
        scheduler, before = self._listener.scheduler, self.loop_account
        is_authenticated = self.account is not None
        if (before.key, before.is_authenticated) == (self.account or self.network, is_authenticated):
            return
        was_queued = self._callback.is_queued
        scheduler.withdraw(before, self._callback)
        self.loop_account = scheduler.open_account(self.account or self.network, is_authenticated=is_authenticated)
        scheduler.close_account(before)
        if was_queued:
            scheduler.submit(self.loop_account, self._callback)

    def _respond(self, request: HttpRequest, body: bytes, prepared: PreparedRequest | None) -> None:
        """Respond to a completely received request. Raise HttpError if the request is rejected."""
        listener = self._listener
        self._viewer = None
        listener.on_connection_active(self)
        self._schedule_abort(listener.limits.idle_seconds_max)
        application = listener.application
        if application is not None and not listener.pages.has_page(request.path):
            self._respond_in_task(self._respond_with_application(application, request, body, prepared))
            return
        try:
            listener.page_authorizer.check_access(
                request.path, request.authorization, has_certificate=self._caller.has_certificate
            )
        except HttpError:
            if application is None:
                raise
            self._respond_in_task(self._respond_with_status_page(application, request))
            return
        if request.path not in PUBLIC_PATHS:
            self._charge_account_of_principal(ANONYMOUS)
        if listener.pages.must_prepare(request.path):
            self._respond_in_task(self._respond_with_prepared_page(request))
            return
        self._start_response(request, listener.pages.render(request.path))

    async def _respond_with_prepared_page(self, request: HttpRequest) -> None:
        await self._listener.pages.prepare(request.path)
        self._start_response(request, self._listener.pages.render(request.path))

    async def _respond_with_application(
        self, application: HttpApplication, request: HttpRequest, body: bytes, prepared: PreparedRequest | None
    ) -> None:
        if prepared is None:
            prepared = await application.prepare(request, self._caller)
            self._charge_account_of_principal(prepared.principal)
        response = prepared.response
        if response is None:
            assert prepared.respond is not None
            response = await prepared.respond(body)
        self._listener.body_budget.release(self)
        if response.events is None or request.method == "HEAD":
            self._start_response(request, response)
        else:
            await self._stream_events(request, response)

    async def _respond_with_status_page(self, application: HttpApplication, request: HttpRequest) -> None:
        try:
            self._viewer = await application.authorize_viewer(request, self._caller)
            self._charge_account_of_principal(self._viewer.principal)
        except HttpError:
            self._charge_account_of_principal(None)
            raise
        await self._respond_with_prepared_page(request)

    def _respond_in_task(self, answering: Coroutine[None, None, None]) -> None:
        """Respond to the request in an asyncio task. The connection has no idle timeout while the task runs."""
        if self._idle_timer is not None:
            self._idle_timer.cancel()
        scheduler = self._listener.scheduler
        with charge_tasks_to_account(scheduler, self.loop_account):
            self._task = self._loop.create_task(measure_loop_time(answering, self._charge_loop_time))
        self._task.add_done_callback(self._on_response_done)

    def _charge_loop_time(self, seconds: float) -> None:
        self._listener.scheduler.charge(self.loop_account, seconds)

    def _on_response_done(self, task: asyncio.Task[None]) -> None:
        self._task = None
        if self._transport.is_closing():
            if not task.cancelled():
                task.exception()  # Retrieve the exception: the client is gone and asyncio would log it.
            return
        self._schedule_abort(self._listener.limits.idle_seconds_max)
        error = None if task.cancelled() else task.exception()
        if isinstance(error, HttpError):
            self._reject_request(error)
        elif isinstance(error, _RequestRejected):
            self._reject_with_response(error.response)
        elif isinstance(error, (ResponseAborted, TimeoutError)):
            reason = str(error) or "the client did not read it"
            logger.warning("http response aborted: client=%s: %s; closing the connection", self._caller.host, reason)
            self.abort()
        elif error is not None or task.cancelled():
            logger.error("http response failed: unexpected error; closing the connection", exc_info=error)
            self.abort()
        else:
            self._schedule_processing()

    async def _stream_events(self, request: HttpRequest, response: HttpResponse) -> None:
        """Send server-sent events until the stream ends or the client disconnects."""
        assert response.events is not None
        if not request.accepts_chunked:
            raise HttpError(HTTPStatus.HTTP_VERSION_NOT_SUPPORTED, "event streams require HTTP/1.1")
        self._keeps_alive = request.keep_alive
        self._transport.write(encode_response(response, keep_alive=request.keep_alive))
        async with aclosing(response.events) as pieces:
            async for data in pieces:
                self._listener.on_connection_active(self)
                self._transport.write(encode_chunk(data))
                if self._is_write_paused:
                    async with asyncio.timeout(self._listener.limits.idle_seconds_max):
                        await self._write_resumed.wait()
        self._transport.write(encode_chunk(b""))
        self._finish_response()

    def _start_response(self, request: HttpRequest, response: HttpResponse) -> None:
        self._keeps_alive = request.keep_alive
        if not request.accepts_chunked:
            response = join_chunks(response)
        with_body = request.method != "HEAD"
        self._transport.write(encode_response(response, with_body=with_body, keep_alive=request.keep_alive))
        if with_body and response.chunks is not None:
            self._chunks = response.chunks
        else:
            self._finish_response()

    def _send_chunk(self) -> bool:
        assert self._chunks is not None
        if self._viewer is not None and not self._viewer.is_authorized():
            logger.debug("http page aborted: client is no longer authorized: principal=%s", self._viewer.principal)
            self.abort()
            return False
        try:
            data = next(self._chunks, b"")
        except Exception:  # The missing final chunk tells the client that the page is incomplete.
            logger.exception("http page aborted: rendering failed; closing the connection")
            self.abort()
            return False
        self._transport.write(encode_chunk(data))
        if not data:
            self._chunks = None
            self._finish_response()
        return True

    def _finish_response(self) -> None:
        if not self._keeps_alive:
            self.close()

    def _validate_host_header(self, request: HttpRequest) -> None:
        if self._listener.is_loopback_only and request.host and not is_loopback_host(request.host):
            raise HttpError(HTTPStatus.MISDIRECTED_REQUEST, f"this server is not {request.host!r}")

    def _reject_request(self, error: HttpError) -> None:
        """Reject the current request with an error response.

        The rest of the client's data is read and discarded: closing immediately would reset the connection, and the
        client might not receive the response.
        """
        logger.debug("http request rejected: client=%s status=%d: %s", self._caller.host, error.status, error)
        self._reject_with_response(build_error_page(error.status, str(error)))

    def _reject_with_response(self, response: HttpResponse) -> None:
        self._is_rejected = True
        self._received.clear()
        self._listener.body_budget.release(self)
        self._transport.write(encode_response(response))
        self._adjust_reading()
        if self._transport.can_write_eof():
            self._transport.write_eof()
        self._schedule_abort(self._listener.limits.linger_seconds)

    def _schedule_abort(self, seconds: float) -> None:
        if self._idle_timer is not None:
            self._idle_timer.cancel()
        self._idle_timer = self._loop.call_later(seconds, self.abort)
