"""Models of consumer groups and their offsets."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from chronik.console.rest.models.common import Body, DryRun, Index, Name, Searching
from chronik.console.rest.models.security import OperationName


class ListGroups(Searching, kw_only=True):
    """The query parameters for listing groups."""

    sort: Literal["group", "state", "lag"] = "group"
    """The order of the groups. `lag` is available for lists of at most 1,000 groups with at most 50,000 committed
    offsets: search for fewer otherwise."""
    descending: bool = False


class Group(msgspec.Struct):
    """A consumer group."""

    group: str
    state: str
    protocol_type: str
    protocol: str | None
    coordinator: int | None
    members: int
    topics: int
    """Number of topics with committed offsets."""
    lag: int | None
    """Total lag in records; null if the end offset of a partition is unknown."""
    lagging_since_ms: int | None
    """The time since which the health engine reports the lag of the group as a problem, in milliseconds since the
    epoch; null without such a problem, or if the lag is unknown."""
    authorized_operations: list[OperationName]
    """The operations that the principal may perform on the group."""


class MemberPartition(msgspec.Struct):
    """A partition assigned to a group member."""

    topic: str
    partition: int


class Member(msgspec.Struct):
    """A member of a consumer group."""

    id: str
    instance_id: str | None
    client_id: str
    host: str
    partitions: list[MemberPartition]


class GroupPartition(msgspec.Struct):
    """The committed offset and the lag of a group on one partition."""

    topic: str
    partition: int
    member: str | None
    """The id of the member that the partition is assigned to."""
    committed: int | None
    end_offset: int | None
    lag: int | None
    lag_seconds: float | None
    """Age of the first uncommitted record in seconds; 0 without lag, null if unknown."""
    metadata: str | None


class GroupDetails(Group, kw_only=True):
    """A consumer group with its members and offsets."""

    member_list: list[Member]
    partitions: list[GroupPartition]
    """Partitions with committed offsets or an assigned member. Offsets of topics that the principal may not describe
    are omitted."""
    readable_topics: list[str]
    """The topics of the partitions that the principal may read, and whose offsets it may therefore reset or delete."""


class ConsumerPartition(msgspec.Struct):
    """The lag of a group on a partition, and the member that reads it."""

    partition: int
    lag: int
    client_id: str | None
    """The client id of the member; null if no member is assigned to the partition."""
    host: str | None


class TopicConsumer(msgspec.Struct):
    """A consumer group of a topic."""

    group: str
    state: str
    members: int
    """Number of members that are assigned to partitions of the topic."""
    lag: int | None
    """Lag in records on the topic; null without committed offsets, or if an end offset is unknown."""
    slowest: ConsumerPartition | None
    """The partition with the largest lag; null without lag."""


class TopicConsumers(msgspec.Struct):
    """A page of the consumer groups of a topic."""

    items: list[TopicConsumer]
    next: str | None
    total: int
    complete: bool
    """Whether all active groups were examined. If there are too many, some groups without committed offsets on the
    topic are omitted."""


class GroupPartitionName(Body):
    """A partition whose committed offset is to be reset."""

    topic: Name
    partition: Index


class OffsetReset(DryRun, kw_only=True):
    """A request to reset committed offsets of a group to a new position."""

    topics: list[Name] | None = None
    """Topics to reset; null resets all topics with committed offsets."""
    partitions: list[GroupPartitionName] | None = None
    to: Annotated[str, msgspec.Meta(min_length=1, max_length=100)]
    """The new position: start, end, an offset, +N or -N relative to the committed offset, @TIME, or an
    ISO 8601 duration before now, such as PT1H."""


class OffsetMove(msgspec.Struct):
    """The old and the new committed offset of one partition."""

    topic: str
    partition: int
    before: int | None
    after: int


class OffsetMoves(msgspec.Struct):
    """The committed offsets that were or would be reset."""

    items: list[OffsetMove]
    done: bool


class OffsetsToDelete(msgspec.Struct):
    """The committed offsets to be deleted."""

    topic: Name
    partition: Index | None = None
    """The partition; null deletes the offsets of all partitions of the topic."""
