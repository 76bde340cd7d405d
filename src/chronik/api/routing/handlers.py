"""Who handles which API: the module of this package that has its name, which handles a request and tells of its
failure."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from importlib import import_module
from typing import Any, NamedTuple

from chronik.api.shared.context import Context, Pipelined, Services
from chronik.api.shared.long_answers import Long
from chronik.protocol.apis import APIS
from chronik.protocol.errors import ErrorCode
from chronik.protocol.schema import Response

Answer = Response | Long | None
Outcome = Response | Pipelined | Awaitable[Answer] | None


class Handler(NamedTuple):
    handle: Callable[[Services, Any, Context], Outcome]
    failure: Callable[[Any, ErrorCode], Response]


class _Handlers(dict[int, Handler]):
    """By an API's key. A module is imported when its API is first asked for, so that a node starts that much sooner."""

    def __missing__(self, key: int) -> Handler:
        module = import_module(f"chronik.api.{module_of(APIS[key].name)}")
        handler = self[key] = Handler(module.handle, module.failure)
        return handler


def module_of(api: str) -> str:
    """`OffsetForLeaderEpoch` is handled in `offset_for_leader_epoch`."""
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in api).removeprefix("_")


HANDLERS = _Handlers()


async def import_the_rest() -> None:
    """Once the node has started, bit by bit: whoever installs another version beside it must not change what it is."""
    for key in APIS:
        HANDLERS[key]
        await asyncio.sleep(0)
