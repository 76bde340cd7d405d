"""Models of topic statistics, which are computed from records on request."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from chronik.console.rest.models.common import Index, Words


class StatisticsQuery(msgspec.Struct, kw_only=True):
    """The query parameters of topic statistics, which limit the records that are read."""

    partition: Index | None = None
    """The partition; null selects all partitions, at most 1,000."""
    from_: Words = msgspec.field(name="from", default="start")
    """The start position: start, an offset, -N for the last N offsets of each partition, or @TIME."""
    max_messages: Annotated[int, msgspec.Meta(ge=1, le=10_000_000)] = 1_000_000
    """Approximate maximum number of messages to read."""
    max_seconds: Annotated[int, msgspec.Meta(ge=1, le=300)] = 30


class Sizes(msgspec.Struct):
    """The sizes of keys or values in bytes, without null."""

    minimum: int | None
    mean: float | None
    maximum: int | None
    total: int


class RecordStatistics(msgspec.Struct):
    """The statistics of records."""

    partition: int | None
    """The partition; null for the whole topic."""
    records: int
    null_keys: int
    null_values: int
    """Number of tombstones."""
    distinct_keys: int
    """The estimated number of distinct keys, with a standard error of 2.3 %."""
    keys: Sizes
    values: Sizes
    headers: int
    """Number of headers."""
    first_timestamp_ms: int | None
    last_timestamp_ms: int | None


class StatisticsProgress(msgspec.Struct):
    """The progress of a computation of topic statistics."""

    scanned: int
    total: int
    """Number of offsets to read, which include transaction markers and records removed by compaction."""
    bytes: int


class TopicStatistics(msgspec.Struct):
    """The statistics of the records that were read."""

    why: Literal["end", "messages", "seconds", "error"]
    """The reason why the computation ended: `end` if all records were read, the limit that was reached, or `error`."""
    topic: RecordStatistics
    partitions: list[RecordStatistics]
    error: str | None = None
