"""Records as clients send and receive them."""

from __future__ import annotations

from typing import NamedTuple

from chronik.protocol.records import RecordHeader


class TopicPartition(NamedTuple):
    """A topic name and a partition index."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class OutgoingRecord(NamedTuple):
    """A record to send."""

    value: bytes | None
    key: bytes | None = None
    headers: tuple[RecordHeader, ...] = ()
    timestamp: int | None = None
    """Milliseconds since the Unix epoch; None selects the current time."""
    partition: int | None = None
    """Partition index; None selects the partition by key, with Kafka's default partitioner."""


class ConsumedRecord(NamedTuple):
    """A record with its partition and offset."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    """Milliseconds since the Unix epoch."""
    key: bytes | None
    value: bytes | None
    headers: tuple[RecordHeader, ...]
