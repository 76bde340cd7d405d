"""Models of topics and their partitions."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from chronik.console.rest.models.common import Body, DryRun, Index, Int64, Name, Searching
from chronik.console.rest.models.security import OperationName


class ListTopics(Searching, kw_only=True):
    """The query parameters for listing topics."""

    internal: bool = False
    """Whether internal topics, such as __consumer_offsets, are included."""
    sort: Literal["name", "partitions", "replication_factor", "status", "messages", "bytes"] = "name"
    """The order of the topics. `status` sorts by offline, then by under-replicated partitions. `messages` and `bytes`
    are available for lists of at most 1,000 topics with at most 10,000 partitions: search for fewer otherwise."""
    descending: bool = False


class Topic(msgspec.Struct):
    """A topic."""

    name: str
    id: str
    partitions: int
    replication_factor: int
    under_replicated: int
    offline: int
    bytes: int | None
    """Size in bytes on the leaders' disks; null if a leader does not report it."""
    messages: int | None
    """Number of offsets: end offsets minus start offsets. Includes transaction markers and records removed by
    compaction."""
    internal: bool
    cleanup_policy: str | None
    authorized_operations: list[OperationName] = []
    """The operations that the principal may perform on the topic."""


class PartitionView(msgspec.Struct):
    """A partition and its replicas."""

    partition: int
    leader: int | None
    leader_epoch: int
    replicas: list[int]
    isr: list[int]
    offline: list[int]
    start_offset: int | None
    end_offset: int | None
    bytes: int | None


class TopicDetails(msgspec.Struct):
    """A topic and its partitions."""

    name: str
    id: str
    internal: bool
    replication_factor: int
    under_replicated: int
    offline: int
    bytes: int | None
    messages: int | None
    cleanup_policy: str | None
    partitions: list[PartitionView]
    authorized_operations: list[OperationName]
    """The operations that the principal may perform on the topic."""
    last_changed: int | None
    """Time of the last change to the topic, its configs or its partition count, in milliseconds since 1970."""


class NewTopic(DryRun, kw_only=True):
    """A topic to be created."""

    name: Name
    partitions: Annotated[int, msgspec.Meta(ge=1, le=100_000)] | None = None
    """Number of partitions; null uses the brokers' default."""
    replication_factor: Annotated[int, msgspec.Meta(ge=1, le=32_767)] | None = None
    configs: dict[str, str] = {}


class MorePartitions(DryRun, kw_only=True):
    """The new number of partitions of a topic."""

    count: Annotated[int, msgspec.Meta(ge=1, le=100_000)]
    """The new total number of partitions."""


class RecordsToDelete(Body):
    """The offsets before which records are to be deleted."""

    offsets: dict[Index, Int64]
    """Offsets by partition. Records before the offset are deleted; -1 means the high watermark."""


class LowWatermarks(msgspec.Struct):
    """The log start offsets after a deletion of records."""

    start_offsets: dict[int, int]
    """Log start offsets by partition."""
