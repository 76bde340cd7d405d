"""Statistics of a topic's records: keys, sizes and null values by partition, computed from a bounded scan."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Final

from chronik.client.errors import ClientError
from chronik.client.records import TopicPartition
from chronik.console.rest.context import OperationContext, build_bad_request_error
from chronik.console.rest.distinct_counter import DistinctCounter
from chronik.console.rest.errors import to_rest_error
from chronik.console.rest.models.statistics import (
    RecordStatistics,
    Sizes,
    StatisticsProgress,
    StatisticsQuery,
    TopicStatistics,
)
from chronik.console.rest.operations.batch_reader import BatchReader, FetchedBatch
from chronik.console.rest.operations.positions import (
    Offsets,
    fetch_available_partitions,
    fetch_offset_bounds,
    resolve_position,
)
from chronik.console.rest.streams import ServerSentEvent
from chronik.protocol.errors import KafkaError
from chronik.protocol.records import Record

PROGRESS_SECONDS: Final = 0.5
PARTITIONS_MAX: Final = 1_000
"""Maximum number of partitions. The statistics of each take 2 KiB of memory."""
FETCHED_PARTITIONS_MAX: Final = 16
"""Number of partitions that are read together, so that the scan of a partition is completed before the next ones."""


class _SizeCounter:
    """The number, sum, minimum and maximum of sizes."""

    __slots__ = ("count", "maximum", "minimum", "total")

    def __init__(self) -> None:
        self.count = self.total = self.maximum = 0
        self.minimum = -1

    def add(self, size: int) -> None:
        self.count += 1
        self.total += size
        self.maximum = max(self.maximum, size)
        self.minimum = size if self.minimum < 0 else min(self.minimum, size)

    def merge(self, other: _SizeCounter) -> None:
        if not other.count:
            return
        self.minimum = other.minimum if self.minimum < 0 else min(self.minimum, other.minimum)
        self.maximum = max(self.maximum, other.maximum)
        self.count += other.count
        self.total += other.total

    def build(self) -> Sizes:
        if not self.count:
            return Sizes(None, None, None, 0)
        return Sizes(self.minimum, round(self.total / self.count, 1), self.maximum, self.total)


class RecordCounter:
    """The statistics of the records that were added."""

    __slots__ = ("_distinct_keys", "_first_ms", "_headers", "_keys", "_last_ms", "_values", "records")

    def __init__(self) -> None:
        self.records = 0
        self._keys = _SizeCounter()
        self._values = _SizeCounter()
        self._distinct_keys = DistinctCounter()
        self._headers = 0
        self._first_ms: int | None = None
        self._last_ms: int | None = None

    def add(self, record: Record) -> None:
        """Count a record."""
        self.records += 1
        if record.key is not None:
            self._keys.add(len(record.key))
            self._distinct_keys.add(bytes(record.key))
        if record.value is not None:
            self._values.add(len(record.value))
        self._headers += len(record.headers)
        self._extend_time(record.timestamp, record.timestamp)

    def merge(self, other: RecordCounter) -> None:
        """Add the records of another counter."""
        self.records += other.records
        self._keys.merge(other._keys)
        self._values.merge(other._values)
        self._distinct_keys.merge(other._distinct_keys)
        self._headers += other._headers
        if other._first_ms is not None and other._last_ms is not None:
            self._extend_time(other._first_ms, other._last_ms)

    def _extend_time(self, first_ms: int, last_ms: int) -> None:
        self._first_ms = first_ms if self._first_ms is None else min(self._first_ms, first_ms)
        self._last_ms = last_ms if self._last_ms is None else max(self._last_ms, last_ms)

    def build(self, partition: int | None) -> RecordStatistics:
        """Return the statistics."""
        return RecordStatistics(
            partition,
            self.records,
            self.records - self._keys.count,
            self.records - self._values.count,
            self._distinct_keys.estimate(),
            self._keys.build(),
            self._values.build(),
            self._headers,
            self._first_ms,
            self._last_ms,
        )


def compute(context: OperationContext, params: StatisticsQuery) -> Iterator[ServerSentEvent]:
    """Compute the statistics of a topic's records. An invalid request fails before the first event."""
    topic, partitions = fetch_available_partitions(context, context.path_parameters["topic"], params.partition)
    if len(partitions) > PARTITIONS_MAX:
        raise build_bad_request_error(f"the topic has more than {PARTITIONS_MAX:,} partitions: select a partition")
    starts, ends = fetch_offset_bounds(context, topic, partitions, 1)
    start_offsets = resolve_position(context, topic, params.from_, starts, ends)
    reader = BatchReader(context, start_offsets, committed=True)
    first = reader.fetch(_select_partitions(reader, ends))  # a missing permission must become an HTTP status
    return _Computation(context, params, reader, start_offsets, ends).events(first)


def _select_partitions(reader: BatchReader, ends: Offsets) -> list[TopicPartition]:
    """Return the next partitions to read."""
    return [each for each, end in ends.items() if reader.positions[each] < end][:FETCHED_PARTITIONS_MAX]


class _Computation:
    """A running computation of topic statistics."""

    def __init__(
        self,
        context: OperationContext,
        params: StatisticsQuery,
        reader: BatchReader,
        starts: Offsets,
        ends: Offsets,
    ) -> None:
        self._context = context
        self._params = params
        self._reader = reader
        self._starts = starts
        self._ends = ends
        self._counters = {each: RecordCounter() for each in ends}
        self._scanned = 0
        self._bytes = 0

    def events(self, first: list[FetchedBatch]) -> Iterator[ServerSentEvent]:
        """Yield progress events, and finally the statistics of the records that were read."""
        why, error = "end", None
        try:
            for reason in self._scan(first):
                why = reason
                yield self._build_progress()
        except (KafkaError, ClientError) as failed:
            why, error = "error", str(to_rest_error(failed))
        total = RecordCounter()
        for counter in self._counters.values():
            total.merge(counter)
        rows = [counter.build(each.partition) for each, counter in sorted(self._counters.items())]
        yield self._build_progress()
        yield ServerSentEvent("statistics", TopicStatistics(why, total.build(None), rows, error))  # type: ignore[arg-type]

    def _scan(self, batches: list[FetchedBatch]) -> Iterator[str]:
        """Read the records, and yield from time to time. The last value is the reason why the scan ended."""
        deadline = time.monotonic() + self._params.max_seconds
        reported_at = time.monotonic()
        while not self._context.abandoned.is_set():
            for batch in batches:
                self._count(batch)
                now = time.monotonic()
                if self._scanned >= self._params.max_messages:
                    yield "messages"
                    return
                if now > deadline:
                    yield "seconds"
                    return
                if now - reported_at > PROGRESS_SECONDS:
                    reported_at = now
                    yield "end"
            left = _select_partitions(self._reader, self._ends)
            if not left:
                yield "end"
                return
            batches = self._reader.fetch(left)

    def _count(self, batch: FetchedBatch) -> None:
        start, end, counter = (
            self._starts[batch.partition],
            self._ends[batch.partition],
            self._counters[batch.partition],
        )
        self._bytes += batch.header.size
        for record in batch.records():
            if start <= record.offset < end:
                counter.add(record)
                self._scanned += 1

    def _build_progress(self) -> ServerSentEvent:
        total = sum(end - self._starts[each] for each, end in self._ends.items())
        return ServerSentEvent("progress", StatisticsProgress(self._scanned, total, self._bytes))
