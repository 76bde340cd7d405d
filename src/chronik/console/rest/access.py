"""Access of responses that take time: a stream or a long request stops when its session, its user's credentials or its
permission ends. Changes of the metadata image and of sessions are reported as they happen; nothing is polled."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import aclosing, contextmanager, suppress
from http import HTTPStatus
from typing import Any, Final, TypeVar

import msgspec

from chronik.console.rest.refusals import Refusal
from chronik.metadata.delta import Delta
from chronik.principals import Principal
from chronik.protocol.permissions import Operation, ResourceType

T = TypeVar("T")

Right = tuple[Operation, ResourceType, str]

SESSION_ENDED: Final = "the session has ended: log in again"


class Authentication(msgspec.Struct, frozen=True, eq=False):
    """How a request was authenticated."""

    principal: Principal
    session: str = ""
    """The token of its session; empty if it brought a password, the node's token or a certificate."""
    credentials: object = None
    """The stored credentials that a password was checked against."""


class Access:
    """The access of one response in progress."""

    def __init__(self, why_ended: Callable[[], Refusal | None]) -> None:
        self._why_ended = why_ended
        self.ended: Final[asyncio.Future[None]] = asyncio.get_running_loop().create_future()

    def recheck(self) -> None:
        """Set `ended` if the access has ended."""
        if not self.ended.done() and self._why_ended() is not None:
            self.ended.set_result(None)

    def check(self) -> None:
        """Raise Refusal if the access has ended."""
        why = self._why_ended()
        if why is not None:
            raise why


class AccessWatches:
    """The accesses of all responses in progress."""

    def __init__(self) -> None:
        self._accesses: set[Access] = set()
        self.when_acls_change: Final[set[Callable[[], None]]] = set()

    def __len__(self) -> int:
        return len(self._accesses)

    @contextmanager
    def watch(self, why_ended: Callable[[], Refusal | None], seconds_max: float | None = None) -> Iterator[Access]:
        """Watch an access until the response is sent. It is also checked when `seconds_max` have passed."""
        access = Access(why_ended)
        timer = None
        if seconds_max is not None:
            timer = asyncio.get_running_loop().call_later(max(0.0, seconds_max), access.recheck)
        self._accesses.add(access)
        try:
            yield access
        finally:
            self._accesses.discard(access)
            if timer is not None:
                timer.cancel()

    def follow(self, delta: Delta) -> None:
        """Check all accesses after users or ACLs have changed."""
        if delta.users or delta.acls:
            self.recheck()
        if delta.acls:
            for listener in list(self.when_acls_change):
                listener()

    def recheck(self) -> None:
        for access in list(self._accesses):
            access.recheck()


async def result_while_allowed(access: Access, working: Awaitable[T]) -> T:
    """Return the result of an operation, unless its access ends before. Raises Refusal."""
    task = asyncio.ensure_future(working)
    try:
        await _first_of(task, access.ended)
        if not task.done() or task.exception() is None:
            access.check()
        return await task
    finally:
        task.cancel()


async def events_while_allowed(
    access: Access, events: AsyncGenerator[bytes, None], error_event: Callable[[Refusal], bytes]
) -> AsyncGenerator[bytes, None]:
    """Yield the events of a stream. When its access ends, yield an error event instead of the next one, and stop."""
    pending: asyncio.Future[bytes | None] | None = None
    async with aclosing(events):
        try:
            while True:
                pending = asyncio.ensure_future(anext(events, None))
                await _first_of(pending, access.ended)
                try:
                    access.check()
                except Refusal as error:
                    yield error_event(error)
                    return
                piece = await pending
                if piece is None:
                    return
                yield piece
        finally:
            if pending is not None and not pending.done():
                pending.cancel()
                with suppress(asyncio.CancelledError):
                    await pending


async def _first_of(*futures: asyncio.Future[Any]) -> None:
    await asyncio.wait(futures, return_when=asyncio.FIRST_COMPLETED)


def permission_lost(principal: Principal, right: Right) -> Refusal:
    operation, resource, name = right
    told = f"{principal} may no longer {operation.name.lower()} {resource.name.lower()} {name}"
    return Refusal(HTTPStatus.FORBIDDEN, told)
