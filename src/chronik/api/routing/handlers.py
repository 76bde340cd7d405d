"""Who handles which API: the module of `chronik.api` that has its name."""

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
    handle: Handle
    failure: Callable[[Any, ErrorCode], Response]
    """Answers a request that failed as a whole. A module has its own where the messages' declaration cannot say it."""


class _Handlers(dict[int, Handler]):
    """Handlers by API key. A module is imported when its API is first asked for, so that a node starts sooner."""

    def __missing__(self, key: int) -> Handler:
        api = APIS[key]
        module = import_module(f"chronik.api.{api.module}")
        handler = self[key] = Handler(
            audited(api.name, replying(module.handle)), getattr(module, "failure", partial(failed, RESPONSES[key]))
        )
        return handler


def replying(handle: Callable[[Services, Any, Context], Any]) -> Handle:
    """Return the handler in the form that the router calls. A module may have a coroutine function instead, or a plain
    function that returns the response."""
    if str(handle.__annotations__.get("return")).startswith("Reply["):
        return handle
    if inspect.iscoroutinefunction(handle):
        return wraps(handle)(lambda services, request, context: Reply.of_coroutine(handle(services, request, context)))

    @wraps(handle)
    def reply(services: Services, request: Any, context: Context) -> Reply[Any]:
        outcome = handle(services, request, context)
        return outcome if isinstance(outcome, Reply) else Reply.of(outcome)

    return reply


HANDLERS = _Handlers()

COMMON: Final = frozenset(
    (
        *("Produce", "Fetch", "ListOffsets", "Metadata", "ApiVersions", "CreateTopics", "InitProducerId"),
        *("FindCoordinator", "JoinGroup", "SyncGroup", "Heartbeat", "LeaveGroup", "OffsetCommit", "OffsetFetch"),
    )
)
"""What is asked for by whoever writes and reads."""


async def import_the_rest() -> None:
    """Imports, bit by bit once the node has started, what is common, and keeps all others as they are installed now:
    installing another version then changes nothing in it."""
    for key, api in APIS.items():
        if api.name in COMMON:
            HANDLERS[key]
            await asyncio.sleep(0)
    for _ in KEPT.keep(
        f"chronik.{room}.{api.module}" for room in ("api", "protocol.messages") for api in APIS.values()
    ):
        await asyncio.sleep(0)
