"""Scans of a topic's records in time order, forwards and backwards, in steps with a time limit.

Each partition has a position up to which its records were returned. The positions are the cursor with which another
request continues the scan: it returns each record exactly once, although the order by time is only approximate where
timestamps are not monotonic or a time limit is reached.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import accumulate
from typing import Final, Generic, Literal, NamedTuple, TypeVar

from chronik.client.records import TopicPartition
from chronik.console.messages.message_filter import DecodedJson, MessageFilter
from chronik.console.rest.context import OperationContext
from chronik.console.rest.operations.batch_reader import BatchReader, FetchedBatch
from chronik.console.rest.operations.positions import Offsets
from chronik.console.rest.operations.typed_messages import NOT_DECODED, DecodedFields, MessageDecoder
from chronik.limits import KIB, MIB
from chronik.protocol.batch import HEADER_BYTES
from chronik.protocol.compression import Codec, decompress, parse_codec
from chronik.protocol.errors import CorruptRecords
from chronik.protocol.records import Record, iter_decompressed_records

T = TypeVar("T")

Order = Literal["oldest", "newest"]

CHUNK_BYTES: Final = 256 * KIB
"""Approximate size of a range of records that is read backwards in one step."""
CHUNK_BYTES_MAX: Final = 4 * CHUNK_BYTES
"""Size from which on such a range is read in smaller steps instead, because its records are larger than expected."""
CHUNK_OFFSETS_MAX: Final = 50_000
PEEKED_OFFSETS: Final = 10
"""Number of offsets before such a range that are also read, so that an old timestamp at its start delays no records."""
KEPT_MIN: Final = 10
"""Minimum number of records of a partition that are kept ready, so that few batches are read twice."""
KEPT_BYTES_MAX: Final = 16 * MIB
"""Maximum size of the records that are kept ready, in total."""
KEPT_PARTITION_BYTES_MAX: Final = MIB
"""Maximum size of the records of a partition that are kept ready, unless a single one is larger."""
IDLE_SECONDS_PER_WORK_SECOND: Final = 1.0
"""Seconds for which a scan pauses per second of work, so that it leaves CPU time for the node's other work."""
UNPAUSED_SECONDS: Final = 0.2
"""Working time of a request without pauses: most requests only read a page."""


Convert = Callable[[FetchedBatch, Record, DecodedFields], T]
"""A function that converts a matching record to what the caller needs of it."""


class _ReadyRecord(NamedTuple, Generic[T]):
    """A matching record that was not returned yet."""

    converted: T
    offset: int
    time: int
    """The timestamp that determines the order: that of the record, made monotonic within its partition."""


class _PartitionScan(Generic[T]):
    """The progress of a scan in one partition."""

    def __init__(self, partition: TopicPartition, position: int, bound: int, *, is_forward: bool) -> None:
        self.partition = partition
        self.position = position
        """The position up to which records were read: the next offset, or, backwards, the last one that was read."""
        self.returned = position
        """The position up to which records were returned or did not match."""
        self.bound = bound
        self.is_forward = is_forward
        self.ready_bytes = 0
        self.ready: deque[_ReadyRecord[T]] = deque()
        self.frontier: float = float("-inf") if is_forward else float("inf")
        """The time that the scan has reached in this partition."""
        self.width = 1
        """The number of offsets to read next, if backwards."""

    @property
    def is_exhausted(self) -> bool:
        return self.position >= self.bound if self.is_forward else self.position <= self.bound

    @property
    def needs_records(self) -> bool:
        return not self.ready and not self.is_exhausted

    @property
    def cursor(self) -> int:
        """The position from which another scan continues."""
        return self.returned if self.ready else self.position

    def is_before(self, moment: float, other: float) -> bool:
        """Return whether a time is earlier in the order of the scan than another one."""
        return moment < other if self.is_forward else moment > other

    def advance_frontier(self, timestamp: float) -> None:
        self.frontier = max(self.frontier, timestamp) if self.is_forward else min(self.frontier, timestamp)


class RecordScan(Generic[T]):
    """A scan of the records of several partitions that match a filter."""

    def __init__(
        self,
        context: OperationContext,
        starts: Offsets,
        bounds: Offsets,
        *,
        order: Order,
        committed: bool,
        message_filter: MessageFilter,
        decoder: MessageDecoder,
        convert: Convert[T],
        limit: int,
        record_bytes_max: int,
    ) -> None:
        """Prepare a scan.

        Args:
            context: The operation.
            starts: The position of each partition at which the scan starts.
            bounds: The position of each partition at which the scan ends.
            order: With `oldest`, read the records from the positions on; with `newest`, those before the positions.
            committed: Whether to omit the records of open and aborted transactions, and transaction markers.
            message_filter: The filter.
            decoder: The decoder of typed keys and values.
            convert: The function that converts matching records.
            limit: The maximum number of records that the caller wants.
            record_bytes_max: The maximum size of a converted record.
        """
        self._context = context
        self._is_forward = order == "oldest"
        self._filter = message_filter
        self._decoder = decoder
        self._convert = convert
        self._record_bytes_max = record_bytes_max
        self._partitions: list[_PartitionScan[T]] = [
            _PartitionScan(each, start, bounds[each], is_forward=self._is_forward) for each, start in starts.items()
        ]
        self._kept_max = compute_kept_max(limit, len(starts))
        self._kept_bytes_max = min(KEPT_PARTITION_BYTES_MAX, KEPT_BYTES_MAX // max(1, len(starts)))
        self._reader = BatchReader(context, starts, committed=committed)
        self.scanned = 0
        """The number of records that were read."""
        self.bytes = 0
        """The size of the batches that were read."""

    @property
    def cursor(self) -> Offsets:
        """The positions from which another scan continues."""
        return {each.partition: each.cursor for each in self._partitions}

    @property
    def is_complete(self) -> bool:
        """Whether all records were returned."""
        return all(each.is_exhausted and not each.ready for each in self._partitions)

    def iter_found(self, seconds: float) -> Iterator[T]:
        """Yield the next matching records, until all were returned or the time is over.

        Raises:
            KafkaError: The principal lacks the Read permission, or a partition is not available.
            ClientError: A broker cannot be reached.
        """
        started = time.monotonic()
        deadline = started + seconds
        while True:
            head = self._find_head()
            wanting = self._find_wanting(head)
            if wanting and (time.monotonic() < deadline or head is None):
                if self._context.abandoned.is_set():
                    return
                work_started = time.monotonic()
                self._read_chunks(wanting, deadline)
                now = time.monotonic()
                if now - started > UNPAUSED_SECONDS and not self._filter.is_empty:
                    self._context.abandoned.wait((now - work_started) * IDLE_SECONDS_PER_WORK_SECOND)
                if now >= deadline and self._find_head() is None:
                    return
            elif head is None:
                return
            else:
                found = head.ready.popleft()
                head.returned = found.offset + 1 if self._is_forward else found.offset
                yield found.converted

    def _find_head(self) -> _PartitionScan[T] | None:
        """Return the partition whose next record is the first in the order of the scan."""
        head = None
        for each in self._partitions if self._is_forward else reversed(self._partitions):  # mirrored for equal times
            if each.ready and (head is None or each.is_before(each.ready[0].time, head.ready[0].time)):
                head = each
        return head

    def _find_wanting(self, head: _PartitionScan[T] | None) -> list[_PartitionScan[T]]:
        """Return the partitions that must be read because they may have an earlier record than `head`."""
        wanting = [each for each in self._partitions if each.needs_records]
        if head is not None:
            return [each for each in wanting if each.is_before(each.frontier, head.ready[0].time)]
        # Without a match, advance the partitions that are behind, so that the scan proceeds in time order.
        wanting.sort(key=lambda each: each.frontier, reverse=not self._is_forward)
        unread = sum(each.frontier in (float("inf"), float("-inf")) for each in wanting)
        return wanting[: max(unread, (len(wanting) + 1) // 2)]

    # Reading

    def _read_chunks(self, wanting: list[_PartitionScan[T]], deadline: float) -> None:
        """Read a chunk of each of the partitions, or at least of one of them if the time is over."""
        scans = {each.partition: each for each in wanting}
        targets: Offsets = {}
        for each in wanting:
            each.returned, each.ready_bytes = each.position, 0
            start = each.position
            if not self._is_forward:
                start = max(each.bound, each.position - each.width - PEEKED_OFFSETS)
            self._reader.positions[each.partition] = start
            targets[each.partition] = each.bound if self._is_forward else each.position
        chunks: dict[TopicPartition, list[FetchedBatch]] = {each: [] for each in scans}
        is_first = True
        while chunks and (is_first or time.monotonic() < deadline):
            before = dict(self._reader.positions)
            for batch in self._reader.fetch(list(chunks)):
                chunks[batch.partition].append(batch)
            is_stuck = all(self._reader.positions[each] == before[each] for each in chunks)
            for partition, batches in list(chunks.items()):
                scan, position = scans[partition], self._reader.positions[partition]
                if is_stuck or position >= targets[partition] or (self._is_forward and position > before[partition]):
                    del chunks[partition]
                    is_first = False
                    read_to = targets[partition] if is_stuck else min(position, targets[partition])
                    self._finish_chunk(scan, batches, read_to)
                elif scan.width > 1 and sum(each.header.size for each in batches) > CHUNK_BYTES_MAX:
                    del chunks[partition]
                    scan.width = max(1, scan.width // 16)

    def _finish_chunk(self, scan: _PartitionScan[T], batches: list[FetchedBatch], read_to: int) -> None:
        if self._is_forward:
            self._finish_forward_chunk(scan, batches, read_to)
        else:
            self._finish_backward_chunk(scan, batches)

    def _finish_forward_chunk(self, scan: _PartitionScan[T], batches: list[FetchedBatch], read_to: int) -> None:
        start = scan.position
        for batch in batches:
            for record, decoded in self._iter_matching(batch, start, scan.bound):
                if not self._keep(scan, batch, record, decoded, record.timestamp):
                    scan.position = record.offset + 1
                    return
            scan.advance_frontier(batch.header.max_timestamp)
        scan.position = read_to

    def _finish_backward_chunk(self, scan: _PartitionScan[T], batches: list[FetchedBatch]) -> None:
        """Keep the records of a chunk. A record counts as not older than those before it, as in the other direction."""
        end = scan.position
        start = max(scan.bound, end - scan.width)
        latest = -1
        read: list[tuple[FetchedBatch, int]] = []
        for batch in batches:
            if batch.header.next_offset > start:
                read.append((batch, latest))
            latest = max(latest, batch.header.max_timestamp)
        if read:
            start = min(start, max(scan.bound, read[0][0].header.base_offset))
        for batch, before in reversed(read):
            found = list(self._iter_matching(batch, start, end))
            times = list(accumulate((record.timestamp for record, _ in found), max, initial=before))[1:]
            for (record, decoded), moment in zip(reversed(found), reversed(times), strict=True):
                if not self._keep(scan, batch, record, decoded, moment):
                    scan.position = record.offset
                    return
        if read:
            batch, before = read[0]
            scan.advance_frontier(before if before >= 0 else batch.header.max_timestamp)
        size = sum(batch.header.size for batch, _ in read)
        scan.position = start
        scan.width = max(1, min(CHUNK_OFFSETS_MAX, 4 * scan.width, CHUNK_BYTES * (end - start) // max(1, size)))

    def _keep(
        self, scan: _PartitionScan[T], batch: FetchedBatch, record: Record, decoded: DecodedFields, moment: int
    ) -> bool:
        """Keep a matching record ready, in the order of `moment`. Return whether there is capacity for another one."""
        scan.advance_frontier(moment)
        converted = self._convert(batch, record, decoded)
        scan.ready.append(_ReadyRecord(converted, record.offset, int(scan.frontier)))
        scan.ready_bytes += min(measure_record(record), self._record_bytes_max)
        return len(scan.ready) < self._kept_max and scan.ready_bytes < self._kept_bytes_max

    def _iter_matching(self, batch: FetchedBatch, start: int, end: int) -> Iterator[tuple[Record, DecodedFields]]:
        """Yield the matching records of a batch. A batch that cannot contain the text is not decoded."""
        header = batch.header
        self.bytes += header.size
        if self._filter.is_empty:
            for record in batch.records():
                if start <= record.offset < end:
                    self.scanned += 1
                    yield record, NOT_DECODED
            return
        body = _decompress(batch)
        is_typed = self._filter.needs_decoded_values and self._is_typed(batch, body)
        if not is_typed and not self._filter.may_match(body):
            count = min(header.next_offset, end) - max(header.base_offset, start)
            self.scanned += max(0, min(count, header.record_count))
            return
        for record in batch.records():
            if start <= record.offset < end:
                self.scanned += 1
                decoded = self._decoder.decode(record) if is_typed else NOT_DECODED
                if self._filter.matches(record, batch.partition.partition, to_decoded_json(decoded)):
                    yield record, decoded

    def _is_typed(self, batch: FetchedBatch, body: bytes) -> bool:
        """Return whether the first record is typed: producers serialize all records of a batch alike."""
        if batch.header.is_control:
            return False
        with suppress(CorruptRecords):
            return self._decoder.is_typed(record for record, _ in iter_decompressed_records(batch.header, body))
        return False


def to_decoded_json(decoded: DecodedFields) -> DecodedJson:
    """Return the JSON of the decoded key and value."""
    key, value = decoded
    return DecodedJson(None if key is None else key.json, None if value is None else value.json)


def _decompress(batch: FetchedBatch) -> bytes:
    payload = bytes(batch.encoded[HEADER_BYTES:])
    codec = parse_codec(batch.header.codec)
    return payload if codec is Codec.NONE else decompress(codec, payload)


def compute_kept_max(limit: int, partitions: int) -> int:
    """Return the maximum number of records of each partition that a scan keeps ready."""
    return min(limit, max(KEPT_MIN, 3 * limit // max(1, partitions)))


def measure_record(record: Record) -> int:
    """Return the total size of the key, the value and the headers of a record in bytes."""
    headers = sum(len(name) + len(value or b"") for name, value in record.headers)
    return len(record.key or b"") + len(record.value or b"") + headers
