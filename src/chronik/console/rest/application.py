"""The admin API and the console's static files: the application behind the HTTP port.

Most operations run in a thread pool and use Chronik's own client library; see `internal_client`.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from http import HTTPStatus
from importlib import import_module
from time import thread_time
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

from chronik.console.connection import ClientInfo, PreparedRequest, StatusPageViewer
from chronik.console.http import HttpError, HttpRequest, HttpResponse, ResponseAborted
from chronik.console.rest.access import Authentication, run_while_authorized, stream_while_authorized
from chronik.console.rest.access import MonitoredPermission as WatchedRight
from chronik.console.rest.authentication import AUTHENTICATE_HEADER, HttpAuthenticator
from chronik.console.rest.context import OperationContext
from chronik.console.rest.cross_site import check_origin
from chronik.console.rest.errors import JSON, RestError, error_response, to_rest_error
from chronik.console.rest.internal_client import LoopBridge
from chronik.console.rest.node_interface import NodeInterface
from chronik.console.rest.operation_table import BASE_PATH, RestOperation
from chronik.console.rest.routes import MethodNotAllowed, decode_body, decode_query, match_route
from chronik.console.rest.streams import CONTENT_TYPE as EVENTS
from chronik.console.rest.streams import EventStreams, FileStream, encode_error_event
from chronik.console.web.static_files import StaticFiles
from chronik.errors import ChronikError
from chronik.principals import ANONYMOUS
from chronik.protocol.permissions import CLUSTER_NAME, AclResourceType
from chronik.protocol.permissions import AclOperation as Right
from chronik.request_reply import Disconnect
from chronik.security.sasl.fair_pool import FairThreadPool

if TYPE_CHECKING:
    from chronik.console.rest.single_sign_on import SingleSignOn

logger = logging.getLogger("chronik.console")

T = TypeVar("T")

THREADS: Final = 8
"""Maximum size of the thread pool. Threads are started on demand and mostly wait for other nodes."""
THREADS_PER_ACCOUNT: Final = 4
"""Maximum number of threads per account, so that one account's operations on a slow node do not occupy the whole
pool."""
WAITING_MAX: Final = 64
"""Maximum number of admin API operations that wait for a worker thread. Beyond it, operations are rejected."""

OPERATIONS_PACKAGE: Final = "chronik.console.rest.operations"


class AsyncOperationContext(OperationContext):
    """The context of an admin API operation that runs on the event loop and has access to the application's state."""

    application: RestApplication
    request: HttpRequest
    client: ClientInfo
    permission: WatchedRight | None = None
    """The permission that the principal must keep until the whole response is sent."""


class RestApplication:
    """The HTTP application that serves the admin API and the console."""

    def __init__(
        self, side: NodeInterface, authenticator: HttpAuthenticator, single_sign_on: SingleSignOn | None = None
    ) -> None:
        """Create the application. Must be called on the node's event loop."""
        self.node: Final = side
        self.authenticator: Final = authenticator
        self._assets = StaticFiles()
        self.loop_bridge: Final = LoopBridge(asyncio.get_running_loop())
        self._work = FairThreadPool(
            ThreadPoolExecutor(THREADS, "console"),
            running_max=THREADS,
            running_per_client_max=THREADS_PER_ACCOUNT,
            waiting_max=WAITING_MAX,
        )
        self.single_sign_on: Final = single_sign_on
        self._functions: dict[str, Callable[..., Any]] = {}
        self.streams: Final = EventStreams(self.loop_bridge)
        self.shared_state: Final[dict[str, Any]] = {}
        """State that admin API operations keep between requests, such as caches, by name."""

    def close(self) -> None:
        """Cancel all admin API operations in progress and stop the worker threads."""
        self.loop_bridge.close()
        self.streams.close()
        self._work.close()
        if self.single_sign_on is not None:
            self.single_sign_on.close()

    async def authorize_viewer(self, request: HttpRequest, caller: ClientInfo) -> StatusPageViewer:
        """Authenticate and authorize a client that requests a status page with neither a token nor a certificate.

        Raises:
            HttpError: The client is not authenticated or not authorized.
        """
        try:
            found = await self.authenticator.authenticate(request, caller)
        except RestError as error:
            raise HttpError(error.status, str(error)) from None
        if found is None:
            expected = "send 'Authorization: Bearer' with this node's http_token"
            if self.node.requires_login:
                expected = "authentication required: log in, or send a token or a client certificate"
            raise HttpError(HTTPStatus.UNAUTHORIZED, expected)
        right = (Right.DESCRIBE, AclResourceType.CLUSTER, CLUSTER_NAME) if self.node.requires_login else None
        if self.authenticator.find_revocation_error(found, caller.host, right) is not None:
            raise HttpError(HTTPStatus.FORBIDDEN, f"{found.principal} is not authorized: DESCRIBE on CLUSTER")
        return StatusPageViewer(
            found.principal, lambda: self.authenticator.find_revocation_error(found, caller.host, right) is None
        )

    async def prepare(self, request: HttpRequest, caller: ClientInfo) -> PreparedRequest:
        """Route and authenticate a request before its body is read. Never raises."""
        if self._assets.has_path(request.path):
            return PreparedRequest(
                self.authenticator.find_session_principal(request, caller), self._assets.respond(request)
            )
        single_sign_on = self.single_sign_on
        if single_sign_on is not None and single_sign_on.has_path(request.path):
            found = await self._convert_errors_to_responses(request, single_sign_on.respond(request, caller))
            return PreparedRequest(None, found)
        prepared = await self._convert_errors_to_responses(request, self._prepare(request, caller))
        return prepared if isinstance(prepared, PreparedRequest) else PreparedRequest(None, prepared)

    async def _convert_errors_to_responses(self, request: HttpRequest, awaitable: Awaitable[T]) -> T | HttpResponse:
        """Await a result, and convert an exception to the HTTP error response for the client."""
        try:
            return await awaitable
        except MethodNotAllowed as error:
            return error_response(error, ("Allow", error.allowed))
        except RestError as error:
            return error_response(error, *((AUTHENTICATE_HEADER,) if error.status is HTTPStatus.UNAUTHORIZED else ()))
        except ChronikError as error:
            return error_response(to_rest_error(error))
        except Exception:
            logger.exception("admin API request failed: method=%s path=%s", request.method, request.path)
            message = "internal error; see the node's log for details"
            return error_response(RestError(HTTPStatus.INTERNAL_SERVER_ERROR, message))

    async def _prepare(self, request: HttpRequest, caller: ClientInfo) -> PreparedRequest:
        """Route and authenticate an admin API request. Raise RestError if it is rejected."""
        if not request.target.startswith(f"{BASE_PATH}/"):
            raise RestError(
                HTTPStatus.NOT_FOUND, f"path not found; the console is at /, the API at {BASE_PATH}/openapi.json"
            )
        check_origin(request)
        operation, path = match_route(request.method, request.target)
        authentication = None if operation.is_public else await self.authenticator.authenticate(request, caller)
        if authentication is None and not operation.is_public:
            raise RestError(HTTPStatus.UNAUTHORIZED, "authentication required: log in first")
        _check_content_type(operation, request)
        params = decode_query(operation, request.query)

        async def respond(body: bytes) -> HttpResponse:
            given = decode_body(operation, body)
            what = given if given is not None else params
            context = self._create_context(operation, request, caller, path, authentication)
            return await self._respond(operation, context, authentication, what)

        async def respond_safely(body: bytes) -> HttpResponse:
            return await self._convert_errors_to_responses(request, respond(body))

        if authentication is None:
            return PreparedRequest(self.authenticator.find_session_principal(request, caller), respond=respond_safely)
        return PreparedRequest(authentication.principal, respond=respond_safely)

    def _create_context(
        self,
        operation: RestOperation,
        request: HttpRequest,
        caller: ClientInfo,
        path: dict[str, Any],
        authentication: Authentication | None,
    ) -> AsyncOperationContext:
        principal = ANONYMOUS if authentication is None else authentication.principal
        context = AsyncOperationContext(
            self.node, self.loop_bridge, principal, caller.host, path, is_mutation=operation.is_mutation
        )
        context.application, context.request, context.client = self, request, caller
        return context

    async def _respond(
        self,
        operation: RestOperation,
        context: AsyncOperationContext,
        authentication: Authentication | None,
        params: msgspec.Struct,
    ) -> HttpResponse:
        if operation.reads_topic:
            topic = context.path_parameters.get(operation.reads_topic) or getattr(params, operation.reads_topic)
            context.permission = Right.READ, AclResourceType.TOPIC, topic
        if authentication is None or operation.is_mutation:
            return await self._perform_operation(operation, context, params)
        with self.authenticator.monitor(authentication, context.host, context.permission) as access:
            try:
                response = await run_while_authorized(access, self._perform_operation(operation, context, params))
            except BaseException:
                context.abandon()
                raise
        if response.events is None:
            return response
        encode_error = encode_error_event if response.content_type == EVENTS else _abort_file
        events = self._stream_authorized_events(response.events, context, authentication, encode_error)
        return msgspec.structs.replace(response, events=events)

    async def _perform_operation(
        self, operation: RestOperation, context: AsyncOperationContext, params: msgspec.Struct
    ) -> HttpResponse:
        function = await self._load_function(operation)
        if inspect.iscoroutinefunction(function):
            found = await function(context, params)
            return found if isinstance(found, HttpResponse) else encode_operation_result(operation, found)
        if operation.events is not None or operation.is_streamed:
            self.streams.reserve(context)
            try:
                produced = await self.run_in_thread(function, context, params)
            except BaseException:
                self.streams.release(context)
                raise
            if isinstance(produced, FileStream):
                chunks = self.streams.stream_file(context, produced.chunks)
                return HttpResponse(operation.status, produced.content_type, events=chunks, headers=produced.headers)
            return HttpResponse(operation.status, EVENTS, events=self.streams.stream_events(context, produced))
        found = await self.run_in_thread(function, context, params)
        return found if isinstance(found, HttpResponse) else encode_operation_result(operation, found)

    async def _stream_authorized_events(
        self,
        events: AsyncGenerator[bytes, None],
        context: AsyncOperationContext,
        authentication: Authentication,
        encode_error: Callable[[RestError], bytes],
    ) -> AsyncGenerator[bytes, None]:
        """Yield server-sent events or the chunks of a file until the client's authorization is revoked."""
        with self.authenticator.monitor(authentication, context.host, context.permission) as access:
            try:
                async with aclosing(stream_while_authorized(access, events, encode_error)) as authorized:
                    async for piece in authorized:
                        yield piece
            finally:
                context.abandon()

    async def run_in_thread(self, function: Callable[..., Any], context: OperationContext, params: Any) -> Any:
        """Run an operation in the thread pool, scheduled fairly between accounts.

        Raise RestError if the queue is full.
        """
        seconds = 0.0

        def run() -> Any:
            nonlocal seconds
            started = thread_time()
            try:
                return function(context, params)
            finally:
                seconds = thread_time() - started

        try:
            return await self._work.run(context.account, run)
        except Disconnect:
            raise RestError(HTTPStatus.TOO_MANY_REQUESTS, "too many operations are queued: try again later") from None
        finally:
            self.node.services.scheduler.charge_thread_time(context.account, seconds)

    async def _load_function(self, operation: RestOperation) -> Callable[..., Any]:
        """Return the function that implements an operation, imported on first use."""
        function = self._functions.get(operation.handler)
        if function is None:
            module, _, name = operation.handler.partition(":")
            loaded = await asyncio.to_thread(import_module, f"{OPERATIONS_PACKAGE}.{module}")
            function = self._functions[operation.handler] = getattr(loaded, name)
        return function


def encode_operation_result(operation: RestOperation, found: Any, *headers: tuple[str, str]) -> HttpResponse:
    """Encode an operation's result as a JSON response."""
    return HttpResponse(operation.status, JSON, msgspec.json.encode(found) + b"\n", headers=headers)


def _abort_file(error: RestError) -> bytes:
    """Raise ResponseAborted, which closes the connection: a file with an error at its end would look complete."""
    raise ResponseAborted(str(error))


def _check_content_type(operation: RestOperation, request: HttpRequest) -> None:
    """Raise RestError unless the body has a JSON content type, which other sites cannot send without CORS."""
    media_type = request.header(b"content-type").partition(";")[0].strip().lower()
    if operation.body is not None and media_type != JSON:
        raise RestError(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, f"expected a body with Content-Type: {JSON}")
    if operation.body is None and request.body_bytes:
        raise RestError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "this operation takes no body")
