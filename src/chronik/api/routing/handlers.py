"""API handlers by API key. Each API is handled by the module of `chronik.api` that has its name."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from functools import partial, wraps
from importlib import import_module
from typing import Any, Final, NamedTuple

from chronik.api.routing.audited import audited
from chronik.api.shared.context import Context, Services
from chronik.exchange import Reply
from chronik.kept_modules import KEPT
from chronik.protocol.apis import APIS
from chronik.protocol.errors import ErrorCode
from chronik.protocol.failures import failed
from chronik.protocol.message_types import RESPONSES
from chronik.protocol.schema import Response

Handle = Callable[[Services, Any, Context], Reply[Any]]


class Handler(NamedTuple):
    """The functions of an API module that the router calls."""

    handle: Handle
    failure: Callable[[Any, ErrorCode], Response]
    """Return the error response to a request that failed as a whole.

    A module defines its own `failure` only if it cannot be derived from the response schema.
    """


class _LazyHandlers(dict[int, Handler]):
    """Handlers by API key, imported on first use to shorten the start of a node."""

    def __missing__(self, key: int) -> Handler:
        api = APIS[key]
        module = import_module(f"chronik.api.{api.module}")
        handler = self[key] = Handler(
            audited(api.name, replying(module.handle)), getattr(module, "failure", partial(failed, RESPONSES[key]))
        )
        return handler


def replying(handle: Callable[[Services, Any, Context], Any]) -> Handle:
    """Return the module's `handle` function as one that returns a `Reply`.

    A module may define a coroutine function, or a plain function that returns the response.
    """
    if str(handle.__annotations__.get("return")).startswith("Reply["):
        return handle
    if inspect.iscoroutinefunction(handle):
        return wraps(handle)(lambda services, request, context: Reply.of_coroutine(handle(services, request, context)))

    @wraps(handle)
    def reply(services: Services, request: Any, context: Context) -> Reply[Any]:
        outcome = handle(services, request, context)
        return outcome if isinstance(outcome, Reply) else Reply.of(outcome)

    return reply


HANDLERS = _LazyHandlers()

COMMON: Final = frozenset(
    (
        *("Produce", "Fetch", "ListOffsets", "Metadata", "ApiVersions", "CreateTopics", "InitProducerId"),
        *("FindCoordinator", "JoinGroup", "SyncGroup", "Heartbeat", "LeaveGroup", "OffsetCommit", "OffsetFetch"),
    )
)
"""APIs that ordinary producers and consumers use. Their handlers are imported soon after the start of the node."""


async def import_the_rest() -> None:
    """Import the handlers of common APIs, and keep the source of the others in memory.

    Installing another version of Chronik then does not affect the running node. Runs in small steps after the start.
    """
    for key, api in APIS.items():
        if api.name in COMMON:
            HANDLERS[key]
            await asyncio.sleep(0)
    for _ in KEPT.keep(
        f"chronik.{package}.{api.module}" for package in ("api", "protocol.messages") for api in APIS.values()
    ):
        await asyncio.sleep(0)
