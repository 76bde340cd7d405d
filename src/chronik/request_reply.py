"""Interface between a client connection and the request handlers: the client's state, requests and their replies."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Generator, Sequence
from typing import Any, Generic, TypeVar

import msgspec

from chronik.ip_addresses import client_network
from chronik.listeners import PLAINTEXT
from chronik.principals import ANONYMOUS, Principal
from chronik.scheduler import Account, Scheduler, Steps, run_in_slices

R = TypeVar("R")

Buffer = bytes | bytearray | memoryview
ResponseFrame = Sequence[Buffer] | None
"""Buffers of a response frame; None for a request without a response (Produce with acks=0)."""


class Disconnect(Exception):
    """Raised to close a client's connection. The message is logged as the reason."""


def build_account_key(principal: Principal, host: str) -> str:
    """Return the key of the account that is charged for a client: its principal or, if anonymous, its network."""
    return client_network(host) if principal == ANONYMOUS else str(principal)


class ConnectedClient(msgspec.Struct, eq=False):
    """A connected client: its address, listener, principal and authentication state."""

    host: str
    port: int
    connection_number: int
    """Sequence number of the connection since the node started."""
    listener: str = PLAINTEXT
    """Name of the listener that accepted the connection."""
    principal: Principal = ANONYMOUS
    """Authenticated principal. A request is authorized with the connection's principal at the time the request
    arrived."""
    is_authenticated: bool = True
    """Whether the client has authenticated, or its listener requires no authentication."""
    on_authenticated: Callable[[], None] | None = None
    """Callback that is called after successful authentication."""
    session: object | None = None
    """SASL session, on listeners with SASL (see `chronik.security.sasl.session`)."""
    close_reason: str = ""
    """Reason to close the connection after the pending responses are sent. The response to the request that sets the
    reason is the last one and is not pipelined."""
    throttle_seconds: float = 0.0
    """Throttle time in seconds before the connection handles its next request. The connection resets it to 0."""
    software: str = ""
    """Name and version of the client library, as reported in ApiVersions."""
    has_current_metadata: bool = False
    """Whether this node has sent the client current metadata."""
    was_redirected: bool = False
    """Whether the client was sent the addresses of other brokers because this node is fenced."""
    account: Account = msgspec.field(default_factory=Account)
    """Scheduler account that is charged for the client's event-loop time."""
    connected_at: float = msgspec.field(default_factory=time.monotonic)

    def set_authenticated(self, principal: Principal) -> None:
        """Set the principal of a successful authentication and call `on_authenticated` the first time."""
        self.principal = principal
        if not self.is_authenticated:
            self.is_authenticated = True
            if self.on_authenticated is not None:
                self.on_authenticated()


class UnsentByteCounter(msgspec.Struct, eq=False):
    """A counter of the response bytes that clients have not read yet, over all connections of the node."""

    unsent_bytes: int = 0
    on_decrease: Callable[[], None] | None = None
    """Callback that is called when the counter decreases."""

    def add(self, delta_bytes: int) -> None:
        """Add a number, which may be negative, to the counter. A decrease calls `on_decrease`."""
        self.unsent_bytes += delta_bytes
        if delta_bytes < 0 and self.on_decrease is not None:
            self.on_decrease()


class EarlyCompletion(msgspec.Struct, eq=False):
    """The early completion of a waiting reply, such as a long-polling fetch, because later requests wait behind it."""

    is_useful: Callable[[], bool]
    """Function that returns whether completing the reply early would currently be useful."""
    is_requested: bool = False
    """Whether later requests on the connection wait for the reply."""
    wake: Callable[[], None] | None = None
    """Callback that completes the waiting reply."""

    @property
    def must_complete(self) -> bool:
        """Return whether the waiting reply must complete now, because later requests wait behind it."""
        return self.is_requested and self.is_useful()

    def request(self) -> None:
        """Request the early completion of the waiting reply, because later requests wait behind it."""
        self.is_requested = True
        self.check()

    def check(self) -> None:
        """Complete the waiting reply if its early completion has been requested and is now useful."""
        if self.is_requested and self.wake is not None and self.is_useful():
            self.wake()


class Reply(Generic[R]):
    """The pending response to one request: the handler resolves it, the router encodes it, the connection sends it.

    The handler resolves the reply with a response message or fails it with an error. The router encodes the response
    and completes the reply with a frame, or with the reason to disconnect. The connection sends completed replies in
    request order. Callbacks run synchronously, within the same event-loop iteration.

    A handler that needs several iterations returns a reply with `steps` or a `coroutine`, which the router runs.
    """

    __slots__ = (
        "_filter",
        "_future",
        "_on_ready",
        "coroutine",
        "early_completion",
        "error",
        "frame",
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
        self.frame: ResponseFrame = None
        self.error: BaseException | None = None
        self.is_resolved = False
        self.is_ready = False
        self.is_cancelled = False
        self.is_pipelined = is_pipelined
        """Whether the connection may handle its next request before this reply is ready. The order of this request's
        effects, such as an append, must already be determined."""
        self.may_pipeline: Callable[[], bool] | None = None
        """Callback that returns whether a reply that was initially not pipelined may be pipelined now."""
        self.steps: Steps[R | None] | None = None
        self.coroutine: Coroutine[Any, Any, R | None] | None = None
        self.on_resolved: Callable[[Reply[R]], None] | None = None
        self.on_cancel: Callable[[], None] | None = None
        """Callback that is called if the client disconnects before the reply is ready."""
        self.early_completion: EarlyCompletion | None = None
        self.request_bytes = 0
        """Bytes of the request that count against the connection's memory budget until the reply is sent."""
        self._filter: Callable[[R | None], R | None] | None = None
        self._on_ready: Callable[[], None] | None = None
        self._future: asyncio.Future[ResponseFrame] | None = None

    @classmethod
    def from_response(cls, response: R | None) -> Reply[R]:
        """Create a reply with a response. With None, the client receives no response."""
        reply = cls()
        reply.response = response
        reply.is_resolved = True
        return reply

    @classmethod
    def from_steps(cls, steps: Steps[R | None]) -> Reply[R]:
        """Create a reply whose response is computed in steps, which run in slices on the scheduler."""
        reply = cls()
        reply.steps = steps
        return reply

    @classmethod
    def from_coroutine(cls, coroutine: Coroutine[Any, Any, R | None]) -> Reply[R]:
        """Create a reply whose response is computed by a coroutine in a task."""
        reply = cls()
        reply.coroutine = coroutine
        return reply

    @classmethod
    def from_frame(cls, frame: ResponseFrame) -> Reply[R]:
        """Create a reply with an encoded response frame, ready to be sent."""
        reply = cls()
        reply.is_resolved = reply.is_ready = True
        reply.frame = frame
        return reply

    # Methods for the handler

    def add_filter(self, function: Callable[[R | None], R | None]) -> None:
        """Register a function that transforms the response, after the functions registered before."""
        if self.is_resolved:
            if self.error is None:
                self.response = function(self.response)
            return
        earlier = self._filter
        self._filter = function if earlier is None else lambda response: function(earlier(response))

    def apply_filters(self, response: R | None) -> R | None:
        """Return the response as transformed by all registered filters."""
        return response if self._filter is None else self._filter(response)

    def resolve(self, response: R | None) -> None:
        """Set the response to the request, unless the reply has been resolved already."""
        if self.is_resolved:
            return
        try:
            self.response = self.apply_filters(response)
        except Exception as error:
            self.error = error
        self._report_resolved()

    def fail(self, error: BaseException) -> None:
        """Set the error with which the request failed, unless the reply has been resolved already."""
        if not self.is_resolved:
            self.error = error
            self._report_resolved()

    def _report_resolved(self) -> None:
        self.is_resolved = True
        self.on_cancel = None  # nothing is left to cancel
        listener, self.on_resolved = self.on_resolved, None
        if listener is not None and not self.is_cancelled:
            listener(self)

    def __await__(self) -> Generator[Any, None, R | None]:
        """Wait for the response message, or raise the error with which the request failed."""
        if self.coroutine is not None:
            coroutine, self.coroutine = self.coroutine, None
            return self.apply_filters((yield from coroutine.__await__()))
        if self.steps is not None:
            steps, self.steps = self.steps, None
            return self.apply_filters((yield from run_in_slices(steps).__await__()))
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

    # Methods for the router and the connection

    def complete(self, frame: ResponseFrame) -> None:
        """Set the encoded response frame, so that the connection can send it."""
        self.frame = frame
        self._report_ready()

    def disconnect(self, error: BaseException) -> None:
        """Close the connection instead of sending a response, and log the error's message."""
        self.error = error
        self._report_ready()

    def set_ready_callback(self, listener: Callable[[], None]) -> None:
        """Set the function to call when the reply is ready to be sent."""
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
        """Stop processing the request because the client has disconnected."""
        if self.is_ready or self.is_cancelled:
            return
        self.is_cancelled = True
        if self.coroutine is not None:
            self.coroutine.close()
        if self.steps is not None:
            self.steps.close()
        on_cancel, self.on_cancel = self.on_cancel, None
        self.on_resolved = self._on_ready = None  # breaks the reference cycle
        if on_cancel is not None:
            on_cancel()
        if self._future is not None and not self._future.done():
            self._future.cancel()

    def ready_future(self) -> asyncio.Future[ResponseFrame]:
        """Return a future for the encoded response frame."""
        if self._future is None:
            self._future = asyncio.get_running_loop().create_future()
            if self.is_ready:
                self._future.set_result(self.frame)
            elif self.is_cancelled:
                self._future.cancel()
        return self._future

    async def wait_for_frame(self) -> ResponseFrame:
        """Wait for the response frame, or raise the error that closes the connection."""
        try:
            await self.ready_future()
        except asyncio.CancelledError:
            self.cancel()
            raise
        if self.error is not None:
            raise self.error
        return self.frame


Dispatch = Callable[[bytearray, ConnectedClient], Reply[Any]]
"""Function that handles one request frame of a client, or raises Disconnect."""


async def dispatch_without_connection(
    dispatch: Dispatch, scheduler: Scheduler, frame: bytearray, peer: ConnectedClient
) -> ResponseFrame:
    """Return the response frame for a request that was received over HTTP or from another node.

    The request is charged to the account of the client, like the requests of its own connections.

    Raises:
        Disconnect: The request is invalid, and a client connection would be closed.
    """
    peer.account = scheduler.open_account(build_account_key(peer.principal, peer.host))
    try:
        return await dispatch(frame, peer).wait_for_frame()
    finally:
        scheduler.close_account(peer.account)
