"""The HTTP application of the schema registry: authentication, quotas, the audit log, metrics and responses."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from http import HTTPStatus
from math import ceil
from time import perf_counter
from typing import Any, Final

import msgspec

from chronik.console.connection import ClientInfo, PreparedRequest
from chronik.console.http import HttpRequest, HttpResponse
from chronik.console.registry import operations
from chronik.console.registry.content_types import check_content_type, choose_content_type
from chronik.console.registry.errors import (
    CONTENT_TYPE,
    MethodNotAllowedError,
    QuotaExceededError,
    build_error_response,
    to_registry_error,
)
from chronik.console.registry.operation_table import OPERATIONS, TEXT, RegistryOperation
from chronik.console.registry.operations import RegistryCall
from chronik.console.registry.routes import Route, decode_body, list_methods, match_route
from chronik.console.rest.authentication import AUTHENTICATE_HEADER, HttpAuthenticator
from chronik.console.rest.cross_site import check_origin
from chronik.console.rest.errors import RestError, error_message
from chronik.console.rest.node_interface import NodeInterface
from chronik.console.status_pages import PageAuthorizer
from chronik.errors import ChronikError
from chronik.limits import KIB
from chronik.metadata.schemas import join_subject
from chronik.principals import Principal
from chronik.protocol.errors import KafkaError
from chronik.registry.access import RegistryAccess
from chronik.registry.entities import SubjectSchema
from chronik.registry.errors import RegistryError, RegistryStoreError, RegistryTimeoutError
from chronik.registry.subjects import normalize_subject
from chronik.request_reply import ConnectedClient
from chronik.scheduler import measure_loop_time, run_in_thread
from chronik.security import audit
from chronik.security.quotas.limiter import QuotaUsage

logger = logging.getLogger("chronik.registry")

CLIENT_ID: Final = "schema-registry"
"""The client id to which quotas apply, because HTTP requests have none."""

THROTTLED_SECONDS_MAX: Final = 10.0
"""Maximum delay of a response because of a quota. HTTP clients would give up if it were longer."""

DECODED_INLINE_BYTES_MAX: Final = 128 * KIB
"""Maximum size of a body that is decoded on the event loop. Decoding takes up to 5 ms per MiB."""

CHUNK_BYTES: Final = 64 * KIB
"""Minimum size of a chunk of a list of schemas."""

ITEMS_ENCODED_AT_ONCE: Final = 1000
"""Maximum number of names or versions in a list that is encoded at once. Names have up to 1,024 characters."""

BASIC_CHALLENGE: Final = ("WWW-Authenticate", 'Basic realm="chronik"')
"""The challenge on the registry's own listener, which no browser page uses."""

UNAUTHENTICATED: Final = "authentication required"

AUDITED_ERROR_CODES: Final = (None, RegistryTimeoutError.error_code, RegistryStoreError.error_code)
"""The error codes after which a change is written to the audit log: none, or those of an unknown outcome."""


class RegistryApplication:
    """Serves the REST API of the schema registry, below a path of the HTTP port and at the root of its own listener."""

    def __init__(self, node: NodeInterface, authenticator: HttpAuthenticator) -> None:
        """Create the application. Must be called on the node's event loop."""
        self._services = node.services
        self._limiter = node.limiter
        self._authenticator = authenticator
        self._registry = node.registry

    async def prepare(
        self, request: HttpRequest, caller: ClientInfo, base_path: str, page_authorizer: PageAuthorizer | None = None
    ) -> PreparedRequest:
        """Route and authenticate a request before its body is read. Never raises.

        Args:
            request: The head of the request.
            caller: The client.
            base_path: The path of the registry on the listener; empty on a listener of its own.
            page_authorizer: The rules for clients without a login, if they are not those of the HTTP port.
        """
        try:
            return await self._prepare(request, caller, base_path, page_authorizer)
        except Exception as error:
            response = _build_early_error_response(error, request, has_own_listener=not base_path)
            return PreparedRequest(None, response)

    async def _prepare(
        self, request: HttpRequest, caller: ClientInfo, base_path: str, page_authorizer: PageAuthorizer | None
    ) -> PreparedRequest:
        """Route and authenticate a request.

        Raises:
            RegistryError, RestError: The request is rejected.
        """
        check_origin(request)
        target = request.target.removeprefix(base_path)
        if request.method == "OPTIONS":
            return PreparedRequest(None, _build_options_response(list_methods(target)))
        route = match_route(request.method, target, request.query)
        content_type = choose_content_type(request.header(b"accept"))
        authentication = await self._authenticator.authenticate(request, caller, page_authorizer)
        if authentication is None:
            raise RestError(HTTPStatus.UNAUTHORIZED, UNAUTHENTICATED)
        if route.operation.body is not None:
            check_content_type(request.header(b"content-type"))

        async def respond(body: bytes) -> HttpResponse:
            return await self._respond(route, request, caller, authentication.principal, body, content_type)

        return PreparedRequest(authentication.principal, respond=respond)

    async def _respond(
        self,
        route: Route,
        request: HttpRequest,
        caller: ClientInfo,
        principal: Principal,
        body: bytes,
        content_type: str,
    ) -> HttpResponse:
        """Perform an operation and return the response. Never raises."""
        operation, began = route.operation, perf_counter()
        client = ConnectedClient(caller.host, 0, 0, principal=principal)
        usage = self._limiter.usage(principal.name, CLIENT_ID) if self._limiter.is_active else None
        error_code = None
        try:
            performed = self._perform(route, client, body, usage)
            result = await (performed if usage is None else measure_loop_time(performed, usage.charge_request_time))
            response = _encode_result(operation, result, content_type)
        except asyncio.CancelledError:  # The connection was closed; the change may be made nevertheless.
            _audit_change(client, route, has_unknown_outcome=True)
            raise
        except Exception as error:
            found = _to_registry_error(error, request)
            error_code = found.error_code
            headers = _build_retry_headers(usage) if isinstance(found, QuotaExceededError) else ()
            response = build_error_response(found, *headers, content_type=content_type)
        if error_code in AUDITED_ERROR_CODES:
            _audit_change(client, route, has_unknown_outcome=error_code is not None)
        self._services.registry_meter.record(operation.api, perf_counter() - began, error_code)
        if usage is not None and usage.throttle_seconds and error_code != QuotaExceededError.error_code:
            await asyncio.sleep(min(usage.throttle_seconds, THROTTLED_SECONDS_MAX))
        return response

    async def _perform(self, route: Route, client: ConnectedClient, body: bytes, usage: QuotaUsage | None) -> Any:
        """Perform an operation and return its result.

        Raises:
            RegistryError: The request is rejected.
        """
        operation = route.operation
        if len(body) > DECODED_INLINE_BYTES_MAX:
            decoded = await run_in_thread(lambda: decode_body(operation, body))
        else:
            decoded = decode_body(operation, body)
        if usage is not None and operation.is_mutation:
            _charge_mutation(usage)
        call = RegistryCall(
            self._registry,
            RegistryAccess(self._services.authorizer, client, operation.api),
            route.path,
            route.query,
            decoded,
            self._services.image.cluster_id,
        )
        return await _FUNCTIONS[operation.function](call)


_FUNCTIONS: Final[dict[str, Callable[[RegistryCall], Awaitable[Any]]]] = {
    each.function: getattr(operations, each.function) for each in OPERATIONS
}


def _charge_mutation(usage: QuotaUsage) -> None:
    """Charge a change to the client's mutation quota. Raise QuotaExceededError if it is exceeded."""
    try:
        usage.charge_mutation(1, strict=True)
    except KafkaError as error:
        raise QuotaExceededError(error_message(error)) from None


def _build_retry_headers(usage: QuotaUsage | None) -> tuple[tuple[str, str], ...]:
    return () if usage is None else (("Retry-After", str(ceil(usage.throttle_seconds))),)


def _audit_change(client: ConnectedClient, route: Route, *, has_unknown_outcome: bool) -> None:
    """Write an operation to the audit log if it changes the registry."""
    if route.operation.is_mutation:
        name = _get_resource_name(route) + (" (outcome unknown)" if has_unknown_outcome else "")
        audit.log_changes(client, route.operation.api, [name], 1, 0)


def _get_resource_name(route: Route) -> str:
    """Return the name of the changed subject or context, as in ACLs, for the audit log."""
    context = route.path.get("context")
    if context is not None:
        return join_subject(context, "")
    subject = route.path.get("subject")
    if subject is None:
        return "global"
    version = route.path.get("version")
    return normalize_subject(subject) + (f" version {version}" if version is not None else "")


def _to_registry_error(error: Exception, request: HttpRequest) -> RegistryError:
    """Return the error for the client. Unexpected errors are logged."""
    if isinstance(error, ChronikError | RestError):
        return to_registry_error(error)
    logger.error("request failed: unexpected error: method=%s path=%s", request.method, request.path, exc_info=error)
    return RegistryStoreError("internal error; see the node's log for details")


def _build_early_error_response(error: Exception, request: HttpRequest, *, has_own_listener: bool) -> HttpResponse:
    """Return the response to a request that is rejected before its body is read."""
    if isinstance(error, MethodNotAllowedError):
        return build_error_response(error, ("Allow", error.allowed))
    found = _to_registry_error(error, request)
    if found.status == HTTPStatus.UNAUTHORIZED:
        return build_error_response(found, BASIC_CHALLENGE if has_own_listener else AUTHENTICATE_HEADER)
    return build_error_response(found)


def _build_options_response(methods: list[str]) -> HttpResponse:
    return HttpResponse(HTTPStatus.OK, CONTENT_TYPE, headers=(("Allow", ", ".join(methods)),))


def _encode_result(operation: RegistryOperation, result: Any, content_type: str) -> HttpResponse:
    if operation.response is TEXT:
        return HttpResponse(HTTPStatus.OK, content_type, result.encode())
    if operation.response is None:
        return HttpResponse(HTTPStatus.NO_CONTENT, content_type)
    if operation.response == list[SubjectSchema] or (isinstance(result, list) and len(result) > ITEMS_ENCODED_AT_ONCE):
        return HttpResponse(HTTPStatus.OK, content_type, chunks=_encode_list(result))
    return HttpResponse(HTTPStatus.OK, content_type, msgspec.json.encode(result))


def _encode_list(items: list[Any]) -> Iterator[bytes]:
    """Yield a JSON array in chunks, because a schema may have 1 MiB, and a list 100,000 names."""
    chunk, is_first = bytearray(b"["), True
    for item in items:
        chunk += b"" if is_first else b","
        is_first = False
        chunk += msgspec.json.encode(item)
        if len(chunk) >= CHUNK_BYTES:
            yield bytes(chunk)
            chunk.clear()
    yield bytes(chunk + b"]")
