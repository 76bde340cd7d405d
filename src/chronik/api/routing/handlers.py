"""Who handles which API: the module of `chronik.api` that has its name."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from importlib import import_module
from typing import Any, NamedTuple

from chronik.api.routing.audited import audited
from chronik.api.shared.context import Context, Pipelined, Services
from chronik.api.shared.long_answers import Long
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


async def import_the_rest() -> None:
    """Imports them bit by bit once the node has started: installing another version then changes nothing in it."""
    for key in APIS:
        HANDLERS[key]
        await asyncio.sleep(0)
