"""Transfer of records into the cluster: many partitions concurrently, each from the end of its log in the cluster.

The log of an imported partition consists of the source's batches, followed by markers that end open transactions. It is
deterministic, byte by byte: it is generated again to continue or to verify an import.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

from chronik.limits import MIB
from chronik.metadata.image import Image
from chronik.metadata.records import TransactionPartition, TransactionState
from chronik.migration import failpoints
from chronik.migration.source import MigrationError, SourceLog
from chronik.migration.target_cluster import RETRIABLE_ERRORS, TargetCluster, TopicIdPartition
from chronik.protocol.batch import BatchHeader, iter_batches, set_producer_id, verify_crc
from chronik.protocol.control_records import (
    TransactionMarker,
    encode_transaction_marker_batch,
    parse_transaction_marker_batch,
)
from chronik.protocol.errors import ErrorCode
from chronik.protocol.messages.import_records import (
    ImportedPartition,
    ImportedPartitionResult,
    ImportRecordsRequest,
    ImportRecordsResponse,
)

CHUNK_BYTES: Final = 1 * MIB
"""The target size of a chunk of record batches in bytes. A larger batch forms a chunk of its own."""

IsCommitted = Callable[[int], bool]
"""A predicate that takes a producer id and returns whether the producer's open transaction is to be committed."""

REQUEST_BYTES: Final = 4 * MIB
"""Target size of an ImportRecords request in bytes."""
CONCURRENT_PARTITIONS: Final = 250
"""The maximum number of partitions transferred concurrently; their replicas share disk syncs."""


class BatchChunk(NamedTuple):
    """A chunk of consecutive record batches of a partition."""

    first_offset: int
    end_offset: int
    data: bytes
    record_count: int
    """Number of client records, excluding transaction markers."""

    def slice_from_offset(self, offset: int) -> BatchChunk | None:
        """Return the batches of the chunk from `offset` on, or None if no batch starts at that offset."""
        for position, header in iter_batches(self.data):
            if header.base_offset == offset:
                return _build_chunk(self.data[position:])
        return None


class _OpenTransaction(NamedTuple):
    """A transaction in the source's log that has no commit or abort marker yet."""

    first_offset: int
    producer_epoch: int


def build_commit_predicate(image: Image, topic_id: bytes, partition: int) -> IsCommitted:
    """Return a predicate that tells whether a producer's open transaction in the partition is to be committed.

    It accepts transactions that are prepared to commit, but whose marker in the partition is not written yet.
    """

    def is_committed(producer_id: int) -> bool:
        transaction = image.find_transaction_by_producer_id(producer_id)
        if transaction is None or transaction.state is not TransactionState.PREPARE_COMMIT:
            return False
        return TransactionPartition(topic_id, partition) in transaction.partitions

    return is_committed


class ImportStream:
    """The record batches of one imported partition, in chunks, followed by markers that end its open transactions."""

    def __init__(
        self, log: SourceLog, about: str, first_producer_id: int, producer_ids: int, is_committed: IsCommitted
    ) -> None:
        """Create the stream, which adds `first_producer_id` to producer ids and rejects ids from `producer_ids` on."""
        self._log = log
        self._about = about
        self._first_producer_id = first_producer_id
        self._producer_ids = producer_ids
        self._is_committed = is_committed
        self._open: dict[int, _OpenTransaction] = {}
        self._coordinator_epochs: dict[int, int] = {}
        self._timestamp = 0

    def __iter__(self) -> Iterator[BatchChunk]:
        log = self._log
        offset, expected = log.start, None
        while offset < log.end:
            buffer = bytearray(log.read(offset, CHUNK_BYTES))
            if not buffer:
                raise MigrationError(f"{self._about}: no records at offset {offset}, but the log ends at {log.end}")
            for position, header in iter_batches(buffer):
                self._check_batch(buffer, position, header, header.base_offset if expected is None else expected)
                self._track_transaction(buffer, position, header)
                if self._first_producer_id and header.has_producer_id:
                    moved = header.producer_id + self._first_producer_id
                    set_producer_id(buffer, position, header.size, moved)
                offset = expected = header.next_offset
            yield _build_chunk(bytes(buffer))
        yield from self._build_transaction_markers(log.end)

    def _check_batch(self, buffer: bytearray, position: int, header: BatchHeader, expected: int) -> None:
        if header.base_offset != expected or header.next_offset > self._log.end:
            raise MigrationError(f"{self._about}: expected offset {expected}, found {header.base_offset}")
        if not verify_crc(buffer, position, header.size):
            raise MigrationError(f"{self._about}: the batch at offset {expected} is damaged")
        if header.producer_id >= self._producer_ids:
            raise MigrationError(
                f"{self._about}: producer id {header.producer_id} at offset {expected} was never allocated"
            )

    def _track_transaction(self, buffer: bytearray, position: int, header: BatchHeader) -> None:
        """Update the sets of open transactions and coordinator epochs with a batch of the log."""
        self._timestamp = max(self._timestamp, header.max_timestamp)
        if not header.has_producer_id:
            return
        if header.is_control:
            marker = parse_transaction_marker_batch(buffer, position)
            if marker is not None:
                self._open.pop(header.producer_id, None)
                self._coordinator_epochs[header.producer_id] = marker.coordinator_epoch
        elif header.is_transactional:
            known = self._open.get(header.producer_id)
            first = header.base_offset if known is None else known.first_offset
            self._open[header.producer_id] = _OpenTransaction(first, header.producer_epoch)

    def _build_transaction_markers(self, offset: int) -> Iterator[BatchChunk]:
        """Yield chunks with the commit or abort markers that end the transactions still open at the end of the log.

        Their timestamp is that of the latest record, so that they are the same in every run.
        """
        in_order = sorted(self._open.items(), key=lambda item: item[1].first_offset)
        for number, (producer_id, transaction) in enumerate(in_order):
            coordinator_epoch = self._coordinator_epochs.get(producer_id, 0)
            batch = encode_transaction_marker_batch(
                TransactionMarker(self._is_committed(producer_id), coordinator_epoch),
                timestamp=self._timestamp,
                producer_id=producer_id + self._first_producer_id,
                producer_epoch=transaction.producer_epoch,
                base_offset=offset + number,
                leader_epoch=self._log.last_epoch,
            )
            yield _build_chunk(batch)


def _build_chunk(data: bytes) -> BatchChunk:
    headers = [header for _, header in iter_batches(data)]
    count = sum(header.record_count for header in headers if not header.is_control)
    return BatchChunk(headers[0].base_offset, headers[-1].next_offset, data, count)


class PartitionToImport(NamedTuple):
    """A partition of the import source, with its log and a factory of its import stream."""

    key: TopicIdPartition
    about: str
    log: SourceLog
    stream: Callable[[], ImportStream]


class PartitionTransfer:
    """The transfer of one partition's records from the source into the cluster, and its progress."""

    def __init__(self, wanted: PartitionToImport) -> None:
        self.wanted = wanted
        self.is_done = False
        self.reached = -1
        """The partition's log end offset in the cluster, as last reported by the partition leader."""
        self._restart_import_stream()

    def _restart_import_stream(self) -> None:
        self._stretches: Iterator[BatchChunk] = iter(self.wanted.stream())
        self._stretch = next(self._stretches, None)
        self._end = self.wanted.log.end

    def next_chunk(self) -> ImportedPartition:
        """Return the next records to send to the partition leader, or none at the end while replicas catch up."""
        (topic_id, index), stretch = self.wanted.key, self._stretch
        return ImportedPartition(
            topic_id=topic_id,
            partition=index,
            expected_end=self._end if stretch is None else stretch.first_offset,
            log_start_offset=self.wanted.log.start,
            records=None if stretch is None else stretch.data,
        )

    def process_leader_result(self, result: ImportedPartitionResult) -> int:
        """Process the partition leader's response, and return the number of records that it newly confirms."""
        end, start, about = result.log_end_offset, self.wanted.log.start, self.wanted.about
        self.reached = end
        expected = self._end if self._stretch is None else self._stretch.first_offset
        if end < expected:  # a new leader lacks uncommitted records: send them again
            self._restart_import_stream()
        count = self._skip_confirmed_records(end)
        if self._stretch is None:
            if end > self._end or result.log_start_offset > start:
                held = f"offsets {result.log_start_offset} to {end - 1}"
                raise MigrationError(f"{about} has {held} in the cluster, but {start} to {self._end - 1} in the source")
            self.is_done = expected == end == self._end and result.log_start_offset == start
        return count

    def _skip_confirmed_records(self, end: int) -> int:
        count = 0
        while self._stretch is not None and self._stretch.end_offset <= end:
            count += self._stretch.record_count
            self._end = self._stretch.end_offset
            self._stretch = next(self._stretches, None)
        if self._stretch is not None and self._stretch.first_offset < end:
            rest = self._stretch.slice_from_offset(end)
            if rest is None:
                raise MigrationError(f"{self.wanted.about} ends at {end} in the cluster, inside a batch of the source")
            self._stretch = rest
        return count


def transfer_records(
    target: TargetCluster, import_id: bytes, partitions: Sequence[PartitionToImport], tell: Callable[[int, int], None]
) -> None:
    """Transfer the records of all partitions into the cluster.

    `tell` is called with the number of completed partitions and of transferred records.

    Raises:
        MigrationError: A partition cannot be transferred, or there is no progress for the client's timeout.
    """
    left, active = iter(partitions), dict[TopicIdPartition, PartitionTransfer]()
    done = records = 0
    target.restart_progress_timeout()
    while True:
        while len(active) < CONCURRENT_PARTITIONS and (wanted := next(left, None)) is not None:
            active[wanted.key] = PartitionTransfer(wanted)
        if not active:
            return
        reason = "no partition has a leader"
        has_progressed = False
        for leader, keys in target.group_by_leader(list(active)).items():
            response = _send(target, import_id, leader, [active[key] for key in keys])
            if isinstance(response, str):
                reason = response
                continue
            for result in response.partitions:
                carrier = active[result.topic_id, result.partition]
                if result.error_code:
                    reason = _format_retriable_error(result, carrier.wanted.about)
                    continue
                before = carrier.reached
                records += carrier.process_leader_result(result)
                has_progressed = has_progressed or carrier.is_done or carrier.reached > before
                if carrier.is_done:
                    done += 1
                    del active[carrier.wanted.key]
            failpoints.hit_failpoint(failpoints.REQUEST)
        tell(done, records)
        if has_progressed:
            target.restart_progress_timeout()
        else:
            target.wait_for_progress(reason)


def _send(
    target: TargetCluster, import_id: bytes, leader: int, carriers: Sequence[PartitionTransfer]
) -> ImportRecordsResponse | str:
    """Send the next records of several partitions to their leader. Return its response, or an error message."""
    request = ImportRecordsRequest(import_id=import_id, timeout_ms=int(target.timeout_s * 1000))
    size = 0
    for carrier in carriers:
        portion = carrier.next_chunk()
        request.partitions.append(portion)
        size += len(portion.records or b"")
        if size >= REQUEST_BYTES:
            break
    response = target.send_request(leader, request, ImportRecordsResponse, wait_s=target.timeout_s)
    return f"broker {leader} does not answer" if response is None else response


def _format_retriable_error(result: ImportedPartitionResult, about: str) -> str:
    """Return the error message of a partition whose import may be retried; raise MigrationError for other errors.

    Raises:
        MigrationError: The error is not retriable.
    """
    code = ErrorCode(result.error_code)
    message = f"{about}: {result.error_message or code.message}"
    if code in RETRIABLE_ERRORS:
        return message
    raise MigrationError(message)
