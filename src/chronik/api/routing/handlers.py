"""Who handles which API: the module of `chronik.api` that has its name."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from importlib import import_module
from typing import Any, Final, NamedTuple

from chronik.api.routing.audited import audited
from chronik.api.shared.context import Context, Pipelined, Services
from chronik.api.shared.long_answers import Long
from chronik.kept_modules import KEPT
from chronik.protocol.apis import APIS
from chronik.protocol.errors import ErrorCode
from chronik.protocol.failures import failed
from chronik.protocol.message_types import RESPONSES
from chronik.protocol.schema import Response

Answer = Response | Long | None
Outcome = Response | Pipelined | Awaitable[Answer] | None


class Handler(NamedTuple):
    handle: Callable[[Services, Any, Context], Outcome]
    failure: Callable[[Any, ErrorCode], Response]
    """Answers a request that failed as a whole. A module has its own where the messages' declaration cannot say it."""


class _Handlers(dict[int, Handler]):
    """Handlers by API key. A module is imported when its API is first asked for, so that a node starts sooner."""

    def __missing__(self, key: int) -> Handler:
        api = APIS[key]
        module = import_module(f"chronik.api.{api.module}")
        handler = self[key] = Handler(
            audited(api.name, module.handle), getattr(module, "failure", partial(failed, RESPONSES[key]))
        )
        return handler


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
