"""API handlers by API key. Each API is handled by the module of `chronik.api` that has its name."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from functools import partial, wraps
from importlib import import_module
from typing import Any, NamedTuple

from chronik.api.routing.audit import with_audit_log
from chronik.api.shared.context import RequestContext, Services
from chronik.protocol.apis import APIS
from chronik.protocol.codec import RESPONSES
from chronik.protocol.error_responses import build_error_response
from chronik.protocol.errors import ErrorCode
from chronik.protocol.schema import Response
from chronik.request_reply import Reply

HandlerFunction = Callable[[Services, Any, RequestContext], Reply[Any]]


class ApiHandler(NamedTuple):
    """The functions of an API's module that the router calls: the request handler and the error response."""

    handle: HandlerFunction
    failure: Callable[[Any, ErrorCode], Response]
    """Return the error response to a request that failed as a whole.

    A module defines its own `failure` only if the error response cannot be derived from the response schema.
    """


class _LazyHandlers(dict[int, ApiHandler]):
    """Handlers by API key, imported on first use to shorten the startup of a node."""

    def __missing__(self, key: int) -> ApiHandler:
        api = APIS[key]
        module = import_module(f"chronik.api.{api.module}")
        handler = self[key] = ApiHandler(
            with_audit_log(api.name, wrap_as_reply_handler(module.handle)),
            getattr(module, "failure", partial(build_error_response, RESPONSES[key])),
        )
        return handler


def wrap_as_reply_handler(handle: Callable[[Services, Any, RequestContext], Any]) -> HandlerFunction:
    """Wrap a module's `handle` function so that it returns a `Reply`.

    A module may define a coroutine function, or a plain function that returns the response.
    """
    if str(handle.__annotations__.get("return")).startswith("Reply["):
        return handle
    if inspect.iscoroutinefunction(handle):
        return wraps(handle)(
            lambda services, request, context: Reply.from_coroutine(handle(services, request, context))
        )

    @wraps(handle)
    def reply(services: Services, request: Any, context: RequestContext) -> Reply[Any]:
        outcome = handle(services, request, context)
        return outcome if isinstance(outcome, Reply) else Reply.from_response(outcome)

    return reply


HANDLERS = _LazyHandlers()


async def import_handlers() -> None:
    """Import the handler modules of all APIs, in short event-loop steps.

    A running node then never imports them from another version of Chronik that was installed in its place.
    """
    for key in APIS:
        HANDLERS[key]
        await asyncio.sleep(0)
