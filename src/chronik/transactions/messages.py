"""What coordinators of transactions and leaders of partitions say to each other. Fields never change: new ones are
added at the end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

from chronik.errors import ChronikError
from chronik.metadata.commands.transactions import TransactionPartition


class Markers(msgspec.Struct, frozen=True, array_like=True):
    """A decision, to be told to partitions that the asked node leads."""

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    index: int
    """Of the decision in the metadata log."""
    commit: bool
    partitions: tuple[TransactionPartition, ...]


class MarkersAppended(msgspec.Struct, frozen=True, array_like=True):
    errors: tuple[int, ...]
    """One for each partition, in their order."""


class Join(msgspec.Struct, frozen=True, array_like=True):
    """Partitions or groups are to be part of a producer's transaction."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    partitions: tuple[TransactionPartition, ...] = ()
    groups: tuple[str, ...] = ()


class Joined(msgspec.Struct, frozen=True, array_like=True):
    error: int
    index: int = -1
    """An image that has applied this shows that they are."""


class Unreachable(ChronikError):
    """The node did not answer: it may have done what was asked, or may still do it."""


class Elsewhere(Protocol):
    """The other nodes."""

    async def tell(self, node_id: int, markers: Markers, seconds: float) -> Sequence[int]:
        """Returns an error code for each partition. Raises Unreachable."""

    async def join(self, node_id: int, request: Join, seconds: float) -> Joined:
        """Raises Unreachable."""


class Nowhere:
    """What a node that stands alone has of other nodes."""

    async def tell(self, node_id: int, markers: Markers, seconds: float) -> Sequence[int]:
        raise Unreachable(f"there is no node {node_id}")

    async def join(self, node_id: int, request: Join, seconds: float) -> Joined:
        raise Unreachable(f"there is no node {node_id}")
