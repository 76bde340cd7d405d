"""The interface of metadata stores, shared by standalone nodes and clusters."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Final, Protocol

from chronik.errors import ChronikError
from chronik.metadata.commands.envelope import Command
from chronik.metadata.delta import Delta
from chronik.metadata.image import Image
from chronik.metadata.records import ApplyResult

DeltaSubscriber = Callable[[Delta], None]
"""A callback that receives the delta of each change of the metadata image."""

BARRIER_SECONDS: Final = 10.0
"""The default timeout of a read barrier in seconds, long enough for several elections."""


class Acks(Enum):
    """The condition under which a metadata command is acknowledged. Only offset commits may use less than ALL."""

    ALL = "all"
    """Acknowledged when durable on a majority and applied on this node."""
    LEADER = "leader"
    """Acknowledged when durable on the leader, before replication. The result of the command is not returned."""
    NONE = "none"
    """Acknowledged immediately, before the command is written."""


class StoreClosedError(ChronikError):
    """The node is shutting down and did not accept the command."""


class MetadataStore(Protocol):
    """The interface through which a node reads the metadata image, proposes commands and receives deltas."""

    @property
    def image(self) -> Image:
        """Return the local image. Do not cache the returned object, because a store may replace the image."""

    async def propose(self, command: Command, *, acks: Acks = Acks.ALL) -> ApplyResult:
        """Propose a command and return its result once it is durable and applied here, or as early as `acks` allows.

        A batch may have `failures` in its result. With less than `Acks.ALL` the result is empty. Cancelling the caller
        does not withdraw the command.

        Raises:
            KafkaError: The command was rejected and changed nothing.
            StorageError: The disk failed, and the outcome is unknown.
            StoreClosedError: The store is closing and did not accept the command.
        """

    def subscribe(self, subscriber: DeltaSubscriber) -> None:
        """Register a callback that receives the delta of each applied command before the proposer receives the result.

        The first delta contains the whole image. It is delivered when the store starts, or immediately if it has
        started. An exception in a subscriber stops the node.
        """

    @property
    def is_shared(self) -> bool:
        """Return whether other nodes also change the metadata, in which case the local image may be stale."""

    async def read_barrier(self, seconds: float = BARRIER_SECONDS) -> None:
        """Wait until the local image contains all commands that any node acknowledged before the call.

        Raises:
            KafkaError: This could not be confirmed in time.
            StoreClosedError: The node is stopping.
        """

    def is_durable(self, index: int) -> bool:
        """Return whether the command at log index `index` is applied on this node and survives a power failure.

        Data that depends on the command must not be written elsewhere before: it could outlive the command.
        """

    async def wait_durable(self, index: int, seconds: float = BARRIER_SECONDS) -> None:
        """Wait until the command at log index `index` is durable, whichever node proposed it.

        Raises the same errors as `read_barrier`.
        """

    async def start(self) -> None: ...

    async def close(self) -> None: ...
