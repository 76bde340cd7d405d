"""Models of transactions and partition reassignments."""

from __future__ import annotations

from typing import Annotated

import msgspec

from chronik.console.rest.models.common import Body, DryRun, Index, Name, Words
from chronik.console.rest.models.security import OperationName


class TransactionPartition(msgspec.Struct):
    """A partition that was added to a transaction."""

    topic: str
    partition: int


class Transaction(msgspec.Struct):
    """A transactional id and its current transaction."""

    transactional_id: str
    producer_id: int
    epoch: int
    state: str
    coordinator: int
    began_ms: int | None
    timeout_ms: int | None
    partitions: list[TransactionPartition]
    """The partitions of the transaction, without those of topics that the principal may not describe."""
    authorized_operations: list[OperationName] = []
    """The operations that the principal may perform on the transactional id."""


class Holding(msgspec.Struct):
    """A partition in which an open transaction keeps the last stable offset from advancing."""

    topic: str
    partition: int
    last_stable_offset: int
    end_offset: int
    producer_id: int | None
    since_ms: int | None


class Transactions(msgspec.Struct):
    """A page of transactions."""

    items: list[Transaction]
    next: str | None
    total: int
    holding: list[Holding]
    """Partitions in which an open transaction keeps the last stable offset from advancing."""


class PartitionMove(Body):
    """A partition to reassign, and its new replicas."""

    topic: Name
    partition: Index
    replicas: Annotated[list[Index], msgspec.Meta(max_length=100)] | None = None
    """The new replicas, preferred leader first; null cancels a reassignment in progress."""


class Reassignments(DryRun, kw_only=True):
    """Partitions to reassign."""

    partitions: Annotated[list[PartitionMove], msgspec.Meta(min_length=1, max_length=10_000)]


class PlacementQuery(msgspec.Struct):
    """The query parameters of a placement plan."""

    nodes: Words
    """The ids of the nodes that may have replicas, separated by commas."""
    replication_factor: Annotated[int, msgspec.Meta(ge=1, le=100)]


class PlannedMove(msgspec.Struct):
    """A planned change of a partition's replicas."""

    partition: int
    current: list[int]
    replicas: list[int]
    """The planned replicas, preferred leader first."""


class Placement(msgspec.Struct):
    """The partitions of a topic whose replicas must change, as a body for a reassignment."""

    items: list[PlannedMove]
    refused: str | None = None
    """The reason why there is no plan."""


class Move(msgspec.Struct):
    """A partition reassignment in progress."""

    topic: str
    partition: int
    replicas: list[int]
    adding: list[int]
    removing: list[int]


class Moves(msgspec.Struct):
    """The partition reassignments in progress."""

    items: list[Move]
