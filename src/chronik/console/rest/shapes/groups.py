"""Consumer groups and their offsets."""

from __future__ import annotations

from typing import Annotated

import msgspec

from chronik.console.rest.shapes.common import Body, DryRun, Index, Name


class Group(msgspec.Struct):
    group: str
    state: str
    protocol_type: str
    protocol: str | None
    coordinator: int | None
    members: int
    topics: int
    """Of which it has committed offsets."""
    lag: int | None
    """Messages behind the ends of its partitions; null when an end is not known."""


class MemberPartition(msgspec.Struct):
    topic: str
    partition: int


class Member(msgspec.Struct):
    id: str
    instance_id: str | None
    client_id: str
    host: str
    partitions: list[MemberPartition]


class GroupPartition(msgspec.Struct):
    topic: str
    partition: int
    member: str | None
    """Its id, of the one who has the partition."""
    committed: int | None
    end_offset: int | None
    lag: int | None
    lag_seconds: float | None
    """The age of the first message that is not committed; 0 when there is none, null when it is not known."""
    metadata: str | None


class GroupDetails(Group, kw_only=True):
    member_list: list[Member]
    partitions: list[GroupPartition]


class GroupPartitionName(Body):
    topic: Name
    partition: Index


class OffsetReset(DryRun, kw_only=True):
    topics: list[Name] | None = None
    """Only these; null: all that it has committed."""
    partitions: list[GroupPartitionName] | None = None
    to: Annotated[str, msgspec.Meta(min_length=1, max_length=100)]
    """start, end, an offset, +N or -N from what is committed, or @TIME."""


class OffsetMove(msgspec.Struct):
    topic: str
    partition: int
    before: int | None
    after: int


class OffsetMoves(msgspec.Struct):
    items: list[OffsetMove]
    done: bool


class OffsetsToDelete(msgspec.Struct):
    topic: Name
    partition: Index | None = None
    """All of the topic, unless one is named."""
