"""What goes into a topic and what comes out of it."""

from __future__ import annotations

from typing import NamedTuple

from chronik.protocol.records import RecordHeader


class TopicPartition(NamedTuple):
    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class OutgoingRecord(NamedTuple):
    value: bytes | None
    key: bytes | None = None
    headers: tuple[RecordHeader, ...] = ()
    timestamp: int | None = None
    """Milliseconds since 1970; None: now."""
    partition: int | None = None
    """None: chosen by the key, as all Kafka clients choose it."""


class ConsumedRecord(NamedTuple):
    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[RecordHeader, ...]
