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
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit

import msgspec

from chronik.console.connection import Caller, Prepared, Viewer
from chronik.console.door import Door
from chronik.console.http import BadRequest, HttpRequest, HttpResponse
from chronik.console.rest.access import Authentication, events_while_allowed, result_while_allowed
from chronik.console.rest.access import Right as WatchedRight
from chronik.console.rest.call import Call
from chronik.console.rest.identity import CHALLENGE, Identity
from chronik.console.rest.inside import Loop
from chronik.console.rest.node_side import NodeSide
from chronik.console.rest.operation import BASE, Operation
from chronik.console.rest.refusals import JSON, Refusal, refusal_of, refused
from chronik.console.rest.routes import WrongMethod, find, read_body, read_query
from chronik.console.rest.streams import CONTENT_TYPE as EVENTS
from chronik.console.rest.streams import Streams, error_event
from chronik.console.web.assets import Assets
from chronik.errors import ChronikError
from chronik.exchange import Disconnect
from chronik.principals import ANONYMOUS
from chronik.protocol.permissions import CLUSTER_NAME, ResourceType
from chronik.protocol.permissions import Operation as Right
from chronik.security.sasl.work import Work

logger = logging.getLogger("chronik.console")

T = TypeVar("T")

THREADS: Final = 8
"""Threads of the pool, started on demand. They mostly wait for other nodes."""
THREADS_PER_ACCOUNT: Final = 4
"""Maximum number of threads per account, so that operations waiting for a slow node leave some to other accounts."""
WAITING_MAX: Final = 64
"""Maximum number of queued operations. Beyond it, an operation of the account with the most is rejected."""

DOING: Final = "chronik.console.rest.doing"


class AsyncCall(Call):
    """The context of an operation that runs on the event loop. It may use the application's own state."""

    application: RestApplication
    request: HttpRequest
    caller: Caller
    right: WatchedRight | None = None
    """The permission that the principal needs for as long as the response is being sent."""


class RestApplication:
    """The HTTP application that serves the admin API and the console."""

    def __init__(self, side: NodeSide, door: Door) -> None:
        """Create the application. Must be called on the node's event loop."""
        self.side: Final = side
        self.identity: Final = Identity(side, door)
        self._assets = Assets()
        self.loop: Final = Loop(asyncio.get_running_loop())
        self._work = Work(
            ThreadPoolExecutor(THREADS, "console"),
            running_max=THREADS,
            running_per_client_max=THREADS_PER_ACCOUNT,
            waiting_max=WAITING_MAX,
        )
        self._functions: dict[str, Callable[..., Any]] = {}
        self.streams: Final = Streams(self.loop)
        self.kept: Final[dict[str, Any]] = {}
        """State that operations keep between requests, by name."""

    def close(self) -> None:
        """Abandon all operations and stop the threads."""
        self.loop.close()
        self.streams.close()
        self.identity.close()
        self._work.close()

    async def check_looking(self, request: HttpRequest, caller: Caller) -> Viewer:
        """Authenticate a client that requests a status page without a token or certificate.

        Raises:
            HttpError: The client is not authenticated or not authorized.
        """
        try:
            found = await self.identity.authenticate(request, caller)
        except Refusal as error:
            raise BadRequest(error.status, str(error)) from None
        if found is None:
            expected = "send 'Authorization: Bearer' with this node's http_token"
            if self.side.asks_who:
                expected = "authentication required: log in, or send a token or a client certificate"
            raise BadRequest(HTTPStatus.UNAUTHORIZED, expected)
        right = (Right.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME) if self.side.asks_who else None
        if self.identity.why_ended(found, caller.host, right) is not None:
            raise BadRequest(HTTPStatus.FORBIDDEN, f"{found.principal} is not authorized: DESCRIBE on CLUSTER")
        return Viewer(found.principal, lambda: self.identity.why_ended(found, caller.host, right) is None)

    async def prepare(self, request: HttpRequest, caller: Caller) -> Prepared:
        """Route and authenticate a request before its body is read. Never raises."""
        if self._assets.knows(request.path):
            return Prepared(self.identity.principal_of_session(request), self._assets.answer(request))
        prepared = await self._catch_errors(request, self._prepare(request, caller))
        return prepared if isinstance(prepared, Prepared) else Prepared(None, prepared)

    async def _catch_errors(self, request: HttpRequest, awaitable: Awaitable[T]) -> T | HttpResponse:
        """Return the awaited result, or an error response if it raises."""
        try:
            return await awaitable
        except WrongMethod as error:
            return refused(error, ("Allow", error.allowed))
        except Refusal as error:
            return refused(error, *((CHALLENGE,) if error.status is HTTPStatus.UNAUTHORIZED else ()))
        except ChronikError as error:
            return refused(refusal_of(error))
        except Exception:
            logger.exception("admin API request failed: method=%s path=%s", request.method, request.path)
            message = "internal error; see the node's log for details"
            return refused(Refusal(HTTPStatus.INTERNAL_SERVER_ERROR, message))

    async def _prepare(self, request: HttpRequest, caller: Caller) -> Prepared:
        """Route and authenticate a request. Raise RestError if it is rejected."""
        if not request.target.startswith(f"{BASE}/"):
            raise Refusal(HTTPStatus.NOT_FOUND, f"path not found; the console is at /, the API at {BASE}/openapi.json")
        _check_origin(request)
        operation, path = find(request.method, request.target)
        authentication = None if operation.is_public else await self.identity.authenticate(request, caller)
        if authentication is None and not operation.is_public:
            raise Refusal(HTTPStatus.UNAUTHORIZED, "authentication required: log in first")
        _check_content(operation, request)
        params = read_query(operation, request.query)

        async def respond(body: bytes) -> HttpResponse:
            given = read_body(operation, body)
            what = given if given is not None else params
            context = self._create_context(operation, request, caller, path, authentication)
            return await self._respond(operation, context, authentication, what)

        async def respond_safely(body: bytes) -> HttpResponse:
            return await self._catch_errors(request, respond(body))

        if authentication is None:
            return Prepared(self.identity.principal_of_session(request), answer=respond_safely)
        return Prepared(authentication.principal, answer=respond_safely)

    def _create_context(
        self,
        operation: Operation,
        request: HttpRequest,
        caller: Caller,
        path: dict[str, Any],
        authentication: Authentication | None,
    ) -> AsyncCall:
        principal = ANONYMOUS if authentication is None else authentication.principal
        context = AsyncCall(self.side, self.loop, principal, caller.host, path, is_mutation=operation.is_mutation)
        context.application, context.request, context.caller = self, request, caller
        return context

    async def _respond(
        self, operation: Operation, context: AsyncCall, authentication: Authentication | None, params: msgspec.Struct
    ) -> HttpResponse:
        if operation.reads_topic:
            topic = context.path.get(operation.reads_topic) or getattr(params, operation.reads_topic)
            context.right = Right.READ, ResourceType.TOPIC, topic
        if authentication is None or operation.is_mutation:
            return await self._perform(operation, context, params)
        with self.identity.watch(authentication, context.host, context.right) as access:
            try:
                response = await result_while_allowed(access, self._perform(operation, context, params))
            except BaseException:
                context.abandon()
                raise
        if response.events is None:
            return response
        events = self._authorized_events(response.events, context, authentication)
        return msgspec.structs.replace(response, events=events)

    async def _perform(self, operation: Operation, context: AsyncCall, params: msgspec.Struct) -> HttpResponse:
        function = await self._load_function(operation)
        if inspect.iscoroutinefunction(function):
            found = await function(context, params)
            return found if isinstance(found, HttpResponse) else encoded(operation, found)
        if operation.events is not None:
            self.streams.reserve(context)
            try:
                produced = await self.in_thread(function, context, params)
            except BaseException:
                self.streams.release(context)
                raise
            return HttpResponse(operation.status, EVENTS, events=self.streams.events(context, produced))
        return encoded(operation, await self.in_thread(function, context, params))

    async def _authorized_events(
        self, events: AsyncGenerator[bytes, None], context: AsyncCall, authentication: Authentication
    ) -> AsyncGenerator[bytes, None]:
        """Yield the events of a stream until its authorization is revoked."""
        with self.identity.watch(authentication, context.host, context.right) as access:
            try:
                async with aclosing(events_while_allowed(access, events, error_event)) as authorized:
                    async for piece in authorized:
                        yield piece
            finally:
                context.abandon()

    async def in_thread(self, function: Callable[..., Any], context: Call, params: Any) -> Any:
        """Run an operation in a thread. Accounts take turns. Raise RestError if too many operations are queued."""
        seconds = 0.0

        def run() -> Any:
            nonlocal seconds
            started = thread_time()
            try:
                return function(context, params)
            finally:
                seconds = thread_time() - started

        try:
            return await self._work.do(context.account, run)
        except Disconnect:
            raise Refusal(HTTPStatus.TOO_MANY_REQUESTS, "too many operations are queued: try again later") from None
        finally:
            self.side.services.scheduler.charge_thread(context.account, seconds)

    async def _load_function(self, operation: Operation) -> Callable[..., Any]:
        """Return the function that implements an operation, imported on first use."""
        function = self._functions.get(operation.handler)
        if function is None:
            module, _, name = operation.handler.partition(":")
            loaded = await asyncio.to_thread(import_module, f"{DOING}.{module}")
            function = self._functions[operation.handler] = getattr(loaded, name)
        return function


def encoded(operation: Operation, found: Any, *headers: tuple[str, str]) -> HttpResponse:
    """Encode an operation's result as a JSON response."""
    return HttpResponse(operation.status, JSON, msgspec.json.encode(found) + b"\n", headers=headers)


def _check_origin(request: HttpRequest) -> None:
    """Raise RestError for a request that a browser sends on behalf of another site (CSRF)."""
    origin = request.header(b"origin")
    if origin and _authority(origin) != request.host.lower():
        raise Refusal(HTTPStatus.FORBIDDEN, "cross-site requests are rejected")
    if request.header(b"sec-fetch-site") == "cross-site":
        raise Refusal(HTTPStatus.FORBIDDEN, "cross-site requests are rejected")


def _authority(origin: str) -> str | None:
    """Return the host and port of an Origin header, or None if it is not a valid URL."""
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:  # for example an unclosed bracket: "http://["
        return None


def _check_content(operation: Operation, request: HttpRequest) -> None:
    """Raise RestError unless a body is JSON. Another site's page cannot make a browser send JSON without CORS."""
    media_type = request.header(b"content-type").partition(";")[0].strip().lower()
    if operation.body is not None and media_type != JSON:
        raise Refusal(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, f"expected a body with Content-Type: {JSON}")
    if operation.body is None and request.body_bytes:
        raise Refusal(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "this operation takes no body")
