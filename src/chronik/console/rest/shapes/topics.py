"""Topics and their partitions."""

from __future__ import annotations

from typing import Annotated

import msgspec

from chronik.console.rest.shapes.common import Body, DryRun, Index, Int64, Name, Searching


class ListTopics(Searching, kw_only=True):
    internal: bool = False
    """Whether those of Kafka's own, such as __consumer_offsets, are listed, too."""


class Topic(msgspec.Struct):
    name: str
    id: str
    partitions: int
    replication_factor: int
    under_replicated: int
    offline: int
    bytes: int | None
    """Of its leaders; null when one of them did not tell."""
    messages: int | None
    """End minus start offsets: transactions' markers and what compaction took are among them."""
    internal: bool
    cleanup_policy: str | None


class PartitionView(msgspec.Struct):
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
    last_changed: int | None
    """When it was created, or its configs or partitions last changed, in milliseconds since 1970."""


class NewTopic(DryRun, kw_only=True):
    name: Name
    partitions: Annotated[int, msgspec.Meta(ge=1, le=100_000)] | None = None
    """null: as many as the brokers' configs say."""
    replication_factor: Annotated[int, msgspec.Meta(ge=1, le=32_767)] | None = None
    configs: dict[str, str] = {}


class MorePartitions(DryRun, kw_only=True):
    count: Annotated[int, msgspec.Meta(ge=1, le=100_000)]
    """How many there are to be in all."""


class RecordsToDelete(Body):
    offsets: dict[Index, Int64]
    """By partition: records before this offset go; -1 is the end."""


class LowWatermarks(msgspec.Struct):
    start_offsets: dict[int, int]
    """By partition, as they are now."""
