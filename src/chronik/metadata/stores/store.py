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
"""A callback for deltas."""

BARRIER_SECONDS: Final = 10.0
"""The default timeout of a read barrier: several elections."""


class Acks(Enum):
    """When a command is acknowledged. Only offset commits may use less than ALL."""

    ALL = "all"
    """Durable on a majority and applied on this node."""
    LEADER = "leader"
    """Durable on the leader, but lost with its disk unless replicated by then. The result is not known."""
    NONE = "none"
    """Acknowledged immediately."""


class StoreClosedError(ChronikError):
    """The node is shutting down and did not accept the command."""


class MetadataStore(Protocol):
    """The access of a node to the cluster metadata: reads of the local image, proposals and deltas."""

    @property
    def image(self) -> Image:
        """Return the local image. Read this property each time: a store may replace the whole image."""

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
        """Call `subscriber` with each delta when it is applied, before the proposer gets the result.

        The first delta contains the whole image. It is delivered when the store starts, or immediately if it has
        started. An exception in a subscriber stops the node.
        """

    @property
    def is_shared(self) -> bool:
        """Return whether other nodes change the metadata as well, so that the local image may be stale."""

    async def read_barrier(self, seconds: float = BARRIER_SECONDS) -> None:
        """Wait until the local image contains everything that was acknowledged anywhere before the call.

        Raises:
            KafkaError: This could not be confirmed in time.
            StoreClosedError: The node is stopping.
        """

    def is_durable(self, index: int) -> bool:
        """Return whether the command at `index` is applied here and survives a power failure.

        Data that depends on the command must not be written elsewhere before: it could outlive the command.
        """

    async def wait_durable(self, index: int, seconds: float = BARRIER_SECONDS) -> None:
        """Wait until the command at `index` is durable, even if another node applied it.

        Raises the same errors as `read_barrier`.
        """

    async def start(self) -> None: ...

    async def close(self) -> None: ...
