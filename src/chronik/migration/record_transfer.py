"""Transfer of records into the cluster: many partitions concurrently, each from the end of its log in the cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

from chronik.limits import MIB
from chronik.migration import failpoints
from chronik.migration.import_stream import BatchChunk, ImportStream
from chronik.migration.source import MigrationError, SourceLog
from chronik.migration.target_cluster import RETRIABLE_ERRORS, TargetCluster, TopicIdPartition
from chronik.protocol.errors import ErrorCode
from chronik.protocol.messages.import_records import (
    ImportedPartition,
    ImportedPartitionResult,
    ImportRecordsRequest,
    ImportRecordsResponse,
)

REQUEST_BYTES: Final = 4 * MIB
"""The target size of an ImportRecords request."""
CONCURRENT_PARTITIONS: Final = 250
"""The number of partitions transferred concurrently. Their replicas share the same syncs."""


class PartitionToImport(NamedTuple):
    """A partition of the source to import."""

    key: TopicIdPartition
    about: str
    log: SourceLog
    stream: Callable[[], ImportStream]


class PartitionTransfer:
    """The transfer of one partition."""

    def __init__(self, wanted: PartitionToImport) -> None:
        self.wanted = wanted
        self.is_done = False
        self.reached = -1
        """The known log end offset in the cluster."""
        self._restart()

    def _restart(self) -> None:
        self._stretches: Iterator[BatchChunk] = iter(self.wanted.stream())
        self._stretch = next(self._stretches, None)
        self._end = self.wanted.log.end

    def next_chunk(self) -> ImportedPartition:
        """Return the next records to send; after the last ones, an empty request that waits for all replicas."""
        (topic_id, index), stretch = self.wanted.key, self._stretch
        return ImportedPartition(
            topic_id=topic_id,
            partition=index,
            expected_end=self._end if stretch is None else stretch.first_offset,
            log_start_offset=self.wanted.log.start,
            records=None if stretch is None else stretch.data,
        )

    def handle_result(self, result: ImportedPartitionResult) -> int:
        """Update the transfer with the log end offset in the cluster. Return the number of newly confirmed records."""
        end, start, about = result.log_end_offset, self.wanted.log.start, self.wanted.about
        self.reached = end
        expected = self._end if self._stretch is None else self._stretch.first_offset
        if end < expected:  # a new leader lacks uncommitted records: send them again
            self._restart()
        count = self._skip_confirmed(end)
        if self._stretch is None:
            if end > self._end or result.log_start_offset > start:
                held = f"offsets {result.log_start_offset} to {end - 1}"
                raise MigrationError(f"{about} has {held} in the cluster, but {start} to {self._end - 1} in the source")
            self.is_done = expected == end == self._end and result.log_start_offset == start
        return count

    def _skip_confirmed(self, end: int) -> int:
        count = 0
        while self._stretch is not None and self._stretch.end_offset <= end:
            count += self._stretch.record_count
            self._end = self._stretch.end_offset
            self._stretch = next(self._stretches, None)
        if self._stretch is not None and self._stretch.first_offset < end:
            rest = self._stretch.starting_at(end)
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
    target.record_progress()
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
                    reason = _retriable_message(result, carrier.wanted.about)
                    continue
                before = carrier.reached
                records += carrier.handle_result(result)
                has_progressed = has_progressed or carrier.is_done or carrier.reached > before
                if carrier.is_done:
                    done += 1
                    del active[carrier.wanted.key]
            failpoints.hit_failpoint(failpoints.REQUEST)
        tell(done, records)
        if has_progressed:
            target.record_progress()
        else:
            target.wait_for_progress(reason)


def _send(
    target: TargetCluster, import_id: bytes, leader: int, carriers: Sequence[PartitionTransfer]
) -> ImportRecordsResponse | str:
    """Send the next records of several partitions to a leader. Return its response, or why there is none."""
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


def _retriable_message(result: ImportedPartitionResult, about: str) -> str:
    """Return the message of a retriable error.

    Raises:
        MigrationError: The error is not retriable.
    """
    code = ErrorCode(result.error_code)
    message = f"{about}: {result.error_message or code.message}"
    if code in RETRIABLE_ERRORS:
        return message
    raise MigrationError(message)
