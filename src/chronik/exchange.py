"""What a connection and the handler of its requests say to each other."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Generator, Sequence
from typing import Any, Generic, TypeVar

import msgspec

from chronik.addresses import network_of
from chronik.listeners import PLAINTEXT
from chronik.principals import ANONYMOUS, Principal
from chronik.scheduler import Account, Scheduler, Steps, run_in_slices

R = TypeVar("R")

Buffer = bytes | bytearray | memoryview
Response = Sequence[Buffer] | None
"""The buffers of one response frame; None for a request that gets no answer."""


class Disconnect(Exception):
    """The connection cannot go on; the message is its one log line."""


def account_key(principal: Principal, host: str) -> str:
    """Return what a client's use of shared resources is charged to: its principal, or its network if it has no name."""
    return network_of(host) if principal == ANONYMOUS else str(principal)


class Peer(msgspec.Struct, eq=False):
    """The other end of a connection."""

    host: str
    port: int
    number: int
    """Counts connections since the start of the node."""
    listener: str = PLAINTEXT
    """The name of the listener that it came through."""
    principal: Principal = ANONYMOUS
    """Who it is; what it may do is asked for this one. A request is judged by who its connection was when it came."""
    is_let_in: bool = True
    """Whether it need not say who it is before anything else, or has done so."""
    when_let_in: Callable[[], None] | None = None
    """Is called when it has."""
    session: object | None = None
    """What it has said so far of who it is, where that is asked: see `chronik.security.sasl.session`."""
    farewell: str = ""
    """Why its connection ends, once the answers under way are sent. Whoever sets it has the last of them, which is not
    pipelined."""
    throttled_seconds: float = 0.0
    """How long its next request has to wait, from now on: the connection takes it, and sets it to 0."""
    software: str = ""
    """Name and version, once the client has told them."""
    was_answered: bool = False
    """Whether it was told who leads, when this node knew."""
    was_sent_away: bool = False
    """Whether it was told that this node serves nobody, and whom to ask instead."""
    account: Account = msgspec.field(default_factory=Account)
    """What the event loop's time is charged to."""
    connected_at: float = msgspec.field(default_factory=time.monotonic)

    def let_in(self, principal: Principal) -> None:
        self.principal = principal
        if not self.is_let_in:
            self.is_let_in = True
            if self.when_let_in is not None:
                self.when_let_in()


class Outbox(msgspec.Struct, eq=False):
    """How much a node has answered that its clients have not read."""

    unsent_bytes: int = 0
    on_read: Callable[[], None] | None = None
    """Is called when it has become less."""

    def count(self, growth: int) -> None:
        self.unsent_bytes += growth
        if growth < 0 and self.on_read is not None:
            self.on_read()


class Hurry(msgspec.Struct, eq=False):
    """How a connection tells a request that waits by its own choice that other requests wait for it."""

    is_due: Callable[[], bool]
    """Whether that matters now."""
    is_asked: bool = False
    wake: Callable[[], None] | None = None

    @property
    def is_pressing(self) -> bool:
        """Whether others wait and it matters; either may come first."""
        return self.is_asked and self.is_due()

    def ask(self) -> None:
        self.is_asked = True
        self.look()

    def look(self) -> None:
        """Looks again: it may have begun to matter."""
        if self.is_asked and self.wake is not None and self.is_due():
            self.wake()


class Reply(Generic[R]):
    """The answer to one request, from its handler to its connection.

    The handler resolves the reply with a response message, or fails it with an error. The router encodes the response
    and makes the reply ready with a frame, or with the reason to disconnect. The connection sends ready replies in
    order.
    Every step is reported synchronously, within the same event-loop iteration.

    A handler that needs several iterations returns a reply with `steps` or with a `coroutine`, which the router starts.
    """

    __slots__ = (
        "_filter",
        "_future",
        "_on_ready",
        "coroutine",
        "error",
        "frame",
        "hurry",
        "is_cancelled",
        "is_pipelined",
        "is_ready",
        "is_resolved",
        "may_pipeline",
        "on_cancel",
        "on_resolved",
        "request_bytes",
        "response",
        "steps",
    )

    def __init__(self, *, is_pipelined: bool = False) -> None:
        self.response: R | None = None
        self.frame: Response = None
        self.error: BaseException | None = None
        self.is_resolved = False
        self.is_ready = False
        self.is_cancelled = False
        self.is_pipelined = is_pipelined
        """Whether the connection may handle its next request before this one is answered. The effect of the request,
        such as an append, must be ordered already."""
        self.may_pipeline: Callable[[], bool] | None = None
        """Whether that has become so, for a reply that was not pipelined at first."""
        self.steps: Steps[R | None] | None = None
        self.coroutine: Coroutine[Any, Any, R | None] | None = None
        self.on_resolved: Callable[[Reply[R]], None] | None = None
        self.on_cancel: Callable[[], None] | None = None
        """Is called if the client leaves before the reply is ready."""
        self.hurry: Hurry | None = None
        self.request_bytes = 0
        """What the request takes of the connection's share of memory until it is answered."""
        self._filter: Callable[[R | None], R | None] | None = None
        self._on_ready: Callable[[], None] | None = None
        self._future: asyncio.Future[Response] | None = None

    @classmethod
    def of(cls, response: R | None) -> Reply[R]:
        """Return a reply that is resolved already. None means that the client gets no response."""
        reply = cls()
        reply.response = response
        reply.is_resolved = True
        return reply

    @classmethod
    def of_steps(cls, steps: Steps[R | None]) -> Reply[R]:
        reply = cls()
        reply.steps = steps
        return reply

    @classmethod
    def of_coroutine(cls, coroutine: Coroutine[Any, Any, R | None]) -> Reply[R]:
        reply = cls()
        reply.coroutine = coroutine
        return reply

    @classmethod
    def of_frame(cls, frame: Response) -> Reply[R]:
        """Return a reply that is ready already."""
        reply = cls()
        reply.is_resolved = reply.is_ready = True
        reply.frame = frame
        return reply

    # The handler's side

    def filter(self, function: Callable[[R | None], R | None]) -> None:
        """Apply the function to the response as soon as there is one, before earlier filters' results are sent."""
        if self.is_resolved:
            if self.error is None:
                self.response = function(self.response)
            return
        earlier = self._filter
        self._filter = function if earlier is None else lambda response: function(earlier(response))

    def filtered(self, response: R | None) -> R | None:
        return response if self._filter is None else self._filter(response)

    def resolve(self, response: R | None) -> None:
        if self.is_resolved:
            return
        try:
            self.response = self.filtered(response)
        except Exception as error:
            self.error = error
        self._report_resolved()

    def fail(self, error: BaseException) -> None:
        if not self.is_resolved:
            self.error = error
            self._report_resolved()

    def _report_resolved(self) -> None:
        self.is_resolved = True
        self.on_cancel = None  # the handler is done
        listener, self.on_resolved = self.on_resolved, None
        if listener is not None and not self.is_cancelled:
            listener(self)

    def __await__(self) -> Generator[Any, None, R | None]:
        """Wait for the response. Raises the error with which the request failed."""
        if self.coroutine is not None:
            coroutine, self.coroutine = self.coroutine, None
            return self.filtered((yield from coroutine.__await__()))
        if self.steps is not None:
            steps, self.steps = self.steps, None
            return self.filtered((yield from run_in_slices(steps).__await__()))
        if not self.is_resolved:
            resolved: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self.on_resolved = lambda _: None if resolved.done() else resolved.set_result(None)
            try:
                yield from resolved
            except asyncio.CancelledError:
                self.cancel()
                raise
        if self.error is not None:
            raise self.error
        return self.response

    # The router's and the connection's side

    def ready(self, frame: Response) -> None:
        self.frame = frame
        self._report_ready()

    def disconnect(self, error: BaseException) -> None:
        """End the connection: the request cannot be answered. The error's message is the connection's log line."""
        self.error = error
        self._report_ready()

    def when_ready(self, listener: Callable[[], None]) -> None:
        self._on_ready = listener

    def _report_ready(self) -> None:
        self.is_resolved = self.is_ready = True
        self.response = self.on_cancel = None
        listener, self._on_ready = self._on_ready, None
        if self.is_cancelled:
            return
        if self._future is not None and not self._future.done():
            self._future.set_result(self.frame)
        if listener is not None:
            listener()

    def cancel(self) -> None:
        """Stop working on the request: the client has left."""
        if self.is_ready or self.is_cancelled:
            return
        self.is_cancelled = True
        if self.coroutine is not None:
            self.coroutine.close()
        if self.steps is not None:
            self.steps.close()
        on_cancel, self.on_cancel = self.on_cancel, None
        self.on_resolved = self._on_ready = None  # they would hold each other
        if on_cancel is not None:
            on_cancel()
        if self._future is not None and not self._future.done():
            self._future.cancel()

    def until_ready(self) -> asyncio.Future[Response]:
        """Return a future for the frame, for callers that are not connections. The error is left in `error`."""
        if self._future is None:
            self._future = asyncio.get_running_loop().create_future()
            if self.is_ready:
                self._future.set_result(self.frame)
            elif self.is_cancelled:
                self._future.cancel()
        return self._future

    async def wait(self) -> Response:
        """Wait for the frame. Raises the error that ends the connection."""
        try:
            await self.until_ready()
        except asyncio.CancelledError:
            self.cancel()
            raise
        if self.error is not None:
            raise self.error
        return self.frame


Dispatch = Callable[[bytearray, Peer], Reply[Any]]
"""Handles one request frame. Raises Disconnect."""


async def dispatch_without_connection(
    dispatch: Dispatch, scheduler: Scheduler, frame: bytearray, peer: Peer
) -> Response:
    """Return the frame that answers a request which came over HTTP or from another node. Raises Disconnect.

    The request is charged to the account of `peer`, like those that come over its own connections.
    """
    peer.account = scheduler.open_account(account_key(peer.principal, peer.host))
    try:
        return await dispatch(frame, peer).wait()
    finally:
        scheduler.close_account(peer.account)
