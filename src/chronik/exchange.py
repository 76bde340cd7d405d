"""What a connection and the handler of its requests say to each other."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from chronik.listeners import PLAINTEXT

Buffer = bytes | bytearray | memoryview
Response = Sequence[Buffer] | None
"""The buffers of one response frame; None for a request that gets no answer."""


class Disconnect(Exception):
    """The connection cannot go on; the message is its one log line."""


@dataclass(slots=True, eq=False)
class Peer:
    """The other end of a connection."""

    host: str
    port: int
    number: int
    """Counts connections since the start of the node."""
    listener: str = PLAINTEXT
    """The name of the listener that it came through."""
    software: str = ""
    """Name and version, once the client has told them."""
    was_answered: bool = False
    """Whether it was told who leads, when this node knew."""
    was_sent_away: bool = False
    """Whether it was told that this node serves nobody, and whom to ask instead."""
    connected_at: float = field(default_factory=time.monotonic)


@dataclass(slots=True, eq=False)
class Outbox:
    """How much a node has answered that its clients have not read."""

    unsent_bytes: int = 0
    on_read: Callable[[], None] | None = None
    """Is called when it has become less."""

    def count(self, growth: int) -> None:
        self.unsent_bytes += growth
        if growth < 0 and self.on_read is not None:
            self.on_read()


@dataclass(slots=True, eq=False)
class Hurry:
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


@dataclass(slots=True, eq=False)
class Pending:
    """A response that is not ready yet."""

    response: asyncio.Future[Response]
    pipelined: bool = False
    """Whether the connection's next request may be handled meanwhile: its effect is already ordered (an append)."""
    hurry: Hurry | None = None
    request_bytes: int = 0
    """What the request takes of the connection's share of memory until it is answered."""


Dispatch = Callable[[bytearray, Peer], Response | Pending]
"""Handles one request frame. Raises Disconnect."""
