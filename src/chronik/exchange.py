"""What a connection and the handler of its requests say to each other."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence

import msgspec

from chronik.listeners import PLAINTEXT
from chronik.principals import ANONYMOUS, Principal

Buffer = bytes | bytearray | memoryview
Response = Sequence[Buffer] | None
"""The buffers of one response frame; None for a request that gets no answer."""


class Disconnect(Exception):
    """The connection cannot go on; the message is its one log line."""


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


class Pending(msgspec.Struct, eq=False):
    """A response that is not ready yet."""

    response: asyncio.Future[Response]
    pipelined: bool = False
    """Whether the connection's next request may be handled meanwhile: its effect is already ordered (an append)."""
    hurry: Hurry | None = None
    request_bytes: int = 0
    """What the request takes of the connection's share of memory until it is answered."""


Dispatch = Callable[[bytearray, Peer], Response | Pending]
"""Handles one request frame. Raises Disconnect."""
