"""Continuous authorization of slow responses: a stream or a long request stops when its session, its user's credentials
or its permission is revoked. Changes are reported by callbacks; nothing is polled.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import aclosing, contextmanager, suppress
from http import HTTPStatus
from typing import Any, Final, TypeVar

import msgspec

from chronik.console.rest.errors import RestError
from chronik.metadata.delta import Delta
from chronik.principals import Principal
from chronik.protocol.permissions import AclOperation, AclResourceType

T = TypeVar("T")

MonitoredPermission = tuple[AclOperation, AclResourceType, str]

SESSION_ENDED: Final = "the session has expired or was ended: log in again"


class Authentication(msgspec.Struct, frozen=True, eq=False):
    """The principal of an authenticated HTTP request, and the session or credentials that it used."""

    principal: Principal
    session: str = ""
    """The session token; empty if the request was authenticated by password, http_token or certificate."""
    credentials: object = None
    """The user's stored SCRAM credentials against which the password was verified."""


class ResponseAccess:
    """A client's authorization to receive an HTTP response in progress, which ends when a permission is revoked."""

    def __init__(self, why_ended: Callable[[], RestError | None]) -> None:
        self._why_ended = why_ended
        self.ended: Final[asyncio.Future[None]] = asyncio.get_running_loop().create_future()

    def recheck(self) -> None:
        """Check the authorization again, and complete the future `ended` if the permission was revoked."""
        if not self.ended.done() and self._why_ended() is not None:
            self.ended.set_result(None)

    def check(self) -> None:
        """Raise RestError if the client's authorization was revoked."""
        revocation = self._why_ended()
        if revocation is not None:
            raise revocation


class AccessMonitor:
    """A monitor that rechecks the authorization of all HTTP responses in progress when users or ACLs change."""

    def __init__(self) -> None:
        self._accesses: set[ResponseAccess] = set()
        self.acl_listeners: Final[set[Callable[[], None]]] = set()

    def __len__(self) -> int:
        return len(self._accesses)

    @contextmanager
    def monitor(
        self, why_ended: Callable[[], RestError | None], seconds_max: float | None = None
    ) -> Iterator[ResponseAccess]:
        """Monitor the authorization of an HTTP response until the context exits, and recheck it after `seconds_max`."""
        access = ResponseAccess(why_ended)
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

    def on_delta(self, delta: Delta) -> None:
        """Recheck the authorization of all responses in progress when users or ACLs have changed."""
        if delta.users or delta.acls:
            self.recheck()
        if delta.acls:
            for listener in list(self.acl_listeners):
                listener()

    def recheck(self) -> None:
        """Recheck the authorization of all responses in progress."""
        for access in list(self._accesses):
            access.recheck()


async def run_while_authorized(access: ResponseAccess, operation_result: Awaitable[T]) -> T:
    """Await an operation's result. Raise RestError if the client's authorization is revoked before it is available."""
    task = asyncio.ensure_future(operation_result)
    try:
        await _wait_for_any(task, access.ended)
        if not task.done() or task.exception() is None:
            access.check()
        return await task
    finally:
        task.cancel()


async def stream_while_authorized(
    access: ResponseAccess, events: AsyncGenerator[bytes, None], error_event: Callable[[RestError], bytes]
) -> AsyncGenerator[bytes, None]:
    """Yield the events of a stream until the client's authorization is revoked, then yield an error event."""
    pending: asyncio.Future[bytes | None] | None = None
    async with aclosing(events):
        try:
            while True:
                pending = asyncio.ensure_future(anext(events, None))
                await _wait_for_any(pending, access.ended)
                try:
                    access.check()
                except RestError as error:
                    yield error_event(error)
                    return
                data = await pending
                if data is None:
                    return
                yield data
        finally:
            if pending is not None and not pending.done():
                pending.cancel()
                with suppress(asyncio.CancelledError):
                    await pending


async def _wait_for_any(*futures: asyncio.Future[Any]) -> None:
    await asyncio.wait(futures, return_when=asyncio.FIRST_COMPLETED)


def build_permission_revoked_error(principal: Principal, right: MonitoredPermission) -> RestError:
    """Return the error for a permission that was revoked while a response was in progress."""
    operation, resource, name = right
    message = f"{principal} is no longer authorized: {operation.name} on {resource.name} {name}"
    return RestError(HTTPStatus.FORBIDDEN, message)
