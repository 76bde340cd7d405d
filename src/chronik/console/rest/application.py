"""The admin API and the console's files, as the HTTP port sees them: a request in, a response out.

Operations run in a few threads, by Chronik's own client library: see `inside`. The loop only takes turns.
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
"""They wait more than they work. Each is made when it is first needed."""
THREADS_PER_ACCOUNT: Final = 4
"""Threads that one account may use at once: operations that wait for a slow node leave some to others."""
WAITING_MAX: Final = 64
"""Operations that wait for a thread. Beyond it, one of the account that has most is rejected."""

DOING: Final = "chronik.console.rest.doing"


class AsyncCall(Call):
    """That of an operation which runs on the loop: it may look at what belongs to the API itself."""

    application: RestApplication
    request: HttpRequest
    caller: Caller
    right: WatchedRight | None = None
    """What the principal has to be allowed for as long as the response is being sent."""


class RestApplication:
    def __init__(self, side: NodeSide, door: Door) -> None:
        """Is made on the loop of the node."""
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
        """What operations keep from one request to the next."""

    def close(self) -> None:
        self.loop.close()
        self.streams.close()
        self.identity.close()
        self._work.close()

    async def check_looking(self, request: HttpRequest, caller: Caller) -> Viewer:
        """Authenticate a client that asks for a page with neither token nor certificate. Raises BadRequest."""
        try:
            found = await self.identity.authenticate(request, caller)
        except Refusal as error:
            raise BadRequest(error.status, str(error)) from None
        if found is None:
            expected = "expected Authorization: Bearer, and this node's http_token"
            if self.side.asks_who:
                expected = "expected a login, a token or a certificate"
            raise BadRequest(HTTPStatus.UNAUTHORIZED, expected)
        right = (Right.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME) if self.side.asks_who else None
        if self.identity.why_ended(found, caller.host, right) is not None:
            raise BadRequest(HTTPStatus.FORBIDDEN, f"{found.principal} may not describe the cluster")
        return Viewer(found.principal, lambda: self.identity.why_ended(found, caller.host, right) is None)

    async def prepare(self, request: HttpRequest, caller: Caller) -> Prepared:
        """Route and authenticate a request before its body is read. Never raises."""
        if self._assets.knows(request.path):
            return Prepared(self.identity.principal_of_session(request), self._assets.answer(request))
        prepared = await self._guarded(request, self._prepare(request, caller))
        return prepared if isinstance(prepared, Prepared) else Prepared(None, prepared)

    async def _guarded(self, request: HttpRequest, answering: Awaitable[T]) -> T | HttpResponse:
        """Return what is awaited, or the response to a request that fails."""
        try:
            return await answering
        except WrongMethod as error:
            return refused(error, ("Allow", error.allowed))
        except Refusal as error:
            return refused(error, *((CHALLENGE,) if error.status is HTTPStatus.UNAUTHORIZED else ()))
        except ChronikError as error:
            return refused(refusal_of(error))
        except Exception:
            logger.exception("%s %s failed", request.method, request.path)
            told = "this operation is broken; the node's log says why"
            return refused(Refusal(HTTPStatus.INTERNAL_SERVER_ERROR, told))

    async def _prepare(self, request: HttpRequest, caller: Caller) -> Prepared:
        """Raises Refusal."""
        if not request.target.startswith(f"{BASE}/"):
            raise Refusal(HTTPStatus.NOT_FOUND, f"there is no such page; there are / and {BASE}/openapi.json")
        _check_origin(request)
        operation, path = find(request.method, request.target)
        authentication = None if operation.is_open else await self.identity.authenticate(request, caller)
        if authentication is None and not operation.is_open:
            raise Refusal(HTTPStatus.UNAUTHORIZED, "log in first")
        _check_content(operation, request)
        asked = read_query(operation, request.query)

        async def answer(body: bytes) -> HttpResponse:
            given = read_body(operation, body)
            what = given if given is not None else asked
            call = self._call(operation, request, caller, path, authentication)
            return await self._answer(operation, call, authentication, what)

        async def guarded(body: bytes) -> HttpResponse:
            return await self._guarded(request, answer(body))

        if authentication is None:
            return Prepared(self.identity.principal_of_session(request), answer=guarded)
        return Prepared(authentication.principal, answer=guarded)

    def _call(
        self,
        operation: Operation,
        request: HttpRequest,
        caller: Caller,
        path: dict[str, Any],
        authentication: Authentication | None,
    ) -> AsyncCall:
        principal = ANONYMOUS if authentication is None else authentication.principal
        call = AsyncCall(self.side, self.loop, principal, caller.host, path, changes=operation.changes)
        call.application, call.request, call.caller = self, request, caller
        return call

    async def _answer(
        self, operation: Operation, call: AsyncCall, authentication: Authentication | None, asked: msgspec.Struct
    ) -> HttpResponse:
        if operation.reads_topic:
            topic = call.path.get(operation.reads_topic) or getattr(asked, operation.reads_topic)
            call.right = Right.READ, ResourceType.TOPIC, topic
        if authentication is None or operation.changes:
            return await self._perform(operation, call, asked)
        with self.identity.watch(authentication, call.host, call.right) as access:
            try:
                response = await result_while_allowed(access, self._perform(operation, call, asked))
            except BaseException:
                call.abandon()
                raise
        if response.events is None:
            return response
        events = self._watched(response.events, call, authentication)
        return msgspec.structs.replace(response, events=events)

    async def _perform(self, operation: Operation, call: AsyncCall, asked: msgspec.Struct) -> HttpResponse:
        function = await self._function(operation)
        if inspect.iscoroutinefunction(function):
            found = await function(call, asked)
            return found if isinstance(found, HttpResponse) else encoded(operation, found)
        if operation.events is not None:
            self.streams.reserve(call)
            try:
                made = await self.in_thread(function, call, asked)
            except BaseException:
                self.streams.release(call)
                raise
            return HttpResponse(operation.status, EVENTS, events=self.streams.events(call, made))
        return encoded(operation, await self.in_thread(function, call, asked))

    async def _watched(
        self, events: AsyncGenerator[bytes, None], call: AsyncCall, authentication: Authentication
    ) -> AsyncGenerator[bytes, None]:
        """Yield the events of a stream until its access ends."""
        with self.identity.watch(authentication, call.host, call.right) as access:
            try:
                async with aclosing(events_while_allowed(access, events, error_event)) as watched:
                    async for piece in watched:
                        yield piece
            finally:
                call.abandon()

    async def in_thread(self, function: Callable[..., Any], call: Call, asked: Any) -> Any:
        """Run an operation in a thread; accounts take turns. Raises Refusal when too many wait."""
        seconds = 0.0

        def run() -> Any:
            nonlocal seconds
            began = thread_time()
            try:
                return function(call, asked)
            finally:
                seconds = thread_time() - began

        try:
            return await self._work.do(call.account, run)
        except Disconnect:
            raise Refusal(HTTPStatus.TOO_MANY_REQUESTS, "too many operations are under way") from None
        finally:
            self.side.services.scheduler.charge_thread(call.account, seconds)

    async def _function(self, operation: Operation) -> Callable[..., Any]:
        """Return the function that performs an operation, imported when it is first needed."""
        function = self._functions.get(operation.does)
        if function is None:
            module, _, name = operation.does.partition(":")
            loaded = await asyncio.to_thread(import_module, f"{DOING}.{module}")
            function = self._functions[operation.does] = getattr(loaded, name)
        return function


def encoded(operation: Operation, found: Any, *headers: tuple[str, str]) -> HttpResponse:
    return HttpResponse(operation.status, JSON, msgspec.json.encode(found) + b"\n", headers=headers)


def _check_origin(request: HttpRequest) -> None:
    """Reject a request that a browser sends on behalf of another site's page. Raises Refusal."""
    origin = request.header(b"origin")
    if origin and _authority(origin) != request.host.lower():
        raise Refusal(HTTPStatus.FORBIDDEN, "requests of other sites' pages are refused")
    if request.header(b"sec-fetch-site") == "cross-site":
        raise Refusal(HTTPStatus.FORBIDDEN, "requests of other sites' pages are refused")


def _authority(origin: str) -> str | None:
    """Return the host and port of an Origin header, or None if it is not a valid URL."""
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:  # for example an unclosed bracket: "http://["
        return None


def _check_content(operation: Operation, request: HttpRequest) -> None:
    """A page of another site can make browsers send forms and texts, but no JSON. Raises Refusal."""
    kind = request.header(b"content-type").partition(";")[0].strip().lower()
    if operation.body is not None and kind != JSON:
        raise Refusal(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, f"expected a body with Content-Type: {JSON}")
    if operation.body is None and request.body_bytes:
        raise Refusal(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "this takes no body")
