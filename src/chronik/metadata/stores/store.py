"""What the rest of a node sees of the metadata: one interface, whether one node keeps it or a cluster agrees on it."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Final, Protocol

from chronik.errors import ChronikError
from chronik.metadata.commands.envelope import Command
from chronik.metadata.delta import Delta
from chronik.metadata.image import Image
from chronik.metadata.records import Result

Subscriber = Callable[[Delta], None]

BARRIER_SECONDS: Final = 10.0
"""As long as several elections: a client that waits longer has given up."""


class Acks(Enum):
    """When a command is answered; only commits of offsets may ask for less than ALL."""

    ALL = "all"
    """Durable on a majority, and applied here."""
    LEADER = "leader"
    """Durable on the leader, but lost with its disk unless a majority has it by then. Its result is not known."""
    NONE = "none"
    """Answered at once."""


class StoreClosed(ChronikError):
    """The node is shutting down: the command was not taken."""


class MetadataStore(Protocol):
    @property
    def image(self) -> Image:
        """The local state. Ask for it each time: a store may replace the whole image."""

    async def propose(self, command: Command, *, acks: Acks = Acks.ALL) -> Result:
        """Returns when the command is durable and applied here, or as early as `acks` allows; the result is then empty.
        A batch may have `failures` in its result.

        Raises KafkaError when the command was rejected (nothing changed), StorageFailed when its outcome is unknown
        because the disk failed, StoreClosed when it was not taken. A caller that is cancelled does not take it back.
        """

    def subscribe(self, subscriber: Subscriber) -> None:
        """Calls `subscriber` with each delta as it is applied, before the command's own proposer is answered.

        The first delta holds everything there is: it comes when the store starts, or at once when it has started.
        A subscriber must not fail: that takes the node down.
        """

    @property
    def is_shared(self) -> bool:
        """Whether others change the image, too: then it may be behind what they have answered."""

    async def read_barrier(self, seconds: float = BARRIER_SECONDS) -> None:
        """Returns when `image` holds everything that was answered anywhere before the call.

        Raises KafkaError when that is not known in time, StoreClosed when the node stops."""

    def is_durable(self, index: int) -> bool:
        """Whether `image` holds what was applied at `index`, and no power cut can take it back. Nothing that stands on
        it may be written elsewhere before: it might be all that is left."""

    async def wait_durable(self, index: int, seconds: float = BARRIER_SECONDS) -> None:
        """Returns when it is, also if it was applied elsewhere. Raises as `read_barrier` does."""

    async def start(self) -> None: ...

    async def close(self) -> None: ...
