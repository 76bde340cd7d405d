"""Transactions, and who holds what others can read."""

from __future__ import annotations

from typing import Annotated

import msgspec

from chronik.console.rest.shapes.common import Body, DryRun, Index, Name


class TransactionPartition(msgspec.Struct):
    topic: str
    partition: int


class Transaction(msgspec.Struct):
    transactional_id: str
    producer_id: int
    epoch: int
    state: str
    coordinator: int
    began_ms: int | None
    timeout_ms: int | None
    partitions: list[TransactionPartition]


class Holding(msgspec.Struct):
    topic: str
    partition: int
    last_stable_offset: int
    end_offset: int
    producer_id: int | None
    since_ms: int | None


class Transactions(msgspec.Struct):
    items: list[Transaction]
    next: str | None
    total: int
    holding: list[Holding]
    """Partitions of open transactions whose last stable offset is before their end."""


class PartitionMove(Body):
    topic: Name
    partition: Index
    replicas: Annotated[list[Index], msgspec.Meta(max_length=100)] | None = None
    """The first is preferred as leader; null: a move under way is called off."""


class Reassignments(DryRun, kw_only=True):
    partitions: Annotated[list[PartitionMove], msgspec.Meta(min_length=1, max_length=10_000)]


class Move(msgspec.Struct):
    topic: str
    partition: int
    replicas: list[int]
    adding: list[int]
    removing: list[int]


class Moves(msgspec.Struct):
    items: list[Move]
