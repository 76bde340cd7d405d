"""Segment transport: read an offset range from segment files, on the broker's machine or from a copy of its data.

Segment files do not say which records are visible. Ranges are therefore planned with the broker (up to the high
watermark or the last stable offset), records before the log start offset are skipped even if the files still hold them,
and aborted transactions are found by their markers.

Segment files are listed while the broker may be renaming or deleting them.
"""

from __future__ import annotations

import json
import os
from bisect import bisect_right
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from chronik.client.cluster import ClusterClient
from chronik.client.records import TopicPartition
from chronik.errors import ChronikError
from chronik.ids import format_id
from chronik.log.files import names
from chronik.pipeline.errors import OptionError
from chronik.pipeline.records.batches import AbortedProducerRange, StoredBatch, is_abort_marker, iter_batches
from chronik.pipeline.source.offset_ranges import OffsetRange
from chronik.pipeline.source.offset_resolver import OffsetResolver
from chronik.pipeline.source.options import IsolationLevel, ReadSettings
from chronik.pipeline.source.record_chunk import CHUNK_BYTES, RecordChunk, report_data_loss
from chronik.protocol.errors import CorruptRecords
from chronik.protocol.messages.metadata import MetadataResponseTopic

LISTINGS_MAX: Final = 20
"""Maximum number of times that a directory is listed until two consecutive listings are equal."""

TOPICS_DIRECTORY: Final = "topics"
IDENTITY_FILE: Final = "node.json"

MAX_OFFSET: Final = 2**63 - 1
"""End offset of an unbounded read."""


@dataclass(frozen=True, slots=True)
class SegmentFile:
    """A segment's log file and its base offset."""

    path: str
    base_offset: int


def list_segment_files(directory: str) -> list[SegmentFile]:
    """Return the segment files of a partition directory in order. Swap files replace the segments they merge."""
    present = _list_directory_until_stable(directory)
    files = {
        base: names.format_offset_file_name(base, names.LOG)
        for base in names.parse_file_name_offsets(present, names.LOG)
    }
    for name in present:
        swap = names.parse_swap_file_name(name)
        if swap is not None:
            first, end = swap
            files = {base: path for base, path in files.items() if not first <= base < end} | {first: name}
    return [SegmentFile(f"{directory}/{name}", base) for base, name in sorted(files.items())]


def _list_directory_until_stable(directory: str) -> set[str]:
    """List the directory until two listings are equal, because one listing may miss a file that is renamed meanwhile.

    Raises:
        OSError: The directory cannot be read, or changes with every listing.
    """
    previous: set[str] | None = None
    for _ in range(LISTINGS_MAX):
        try:
            present = {name for name in os.listdir(directory) if name.endswith((names.LOG, names.SWAP))}
        except FileNotFoundError:
            return set()
        if present == previous:
            return present
        previous = present
    raise OSError(f"{directory}: cannot list segment files: file names changed in each of {LISTINGS_MAX} listings")


class SegmentsDeletedError(ChronikError):
    """Retention has deleted the segment file with the next offset to read."""

    def __init__(self, directory: Path, position: int, first_offset: int) -> None:
        super().__init__(f"{directory}: offset {position} was deleted: the segment files now start at {first_offset}")
        self.first_offset = first_offset


def read_segment_chunks(cluster: ClusterClient, target: OffsetRange, settings: ReadSettings) -> Generator[RecordChunk]:
    """Yield chunks of the batches in an offset range, like `fetch_chunks`, from the data directories in `settings`.

    Raises:
        OptionError: No data directory has the partition.
        DataLossError: Records were deleted, and `settings` do not allow skipping them.
    """
    topic = cluster.retry(lambda: cluster.topic(target.topic))
    directory = find_partition_directory(settings.segment_dirs, target.topic_partition, topic)
    positions = OffsetResolver(cluster, settings.isolation)
    position, first_offset, is_log_complete = target.start, 0, False
    while position < target.end:
        # Retention may delete files while they are read, so check the log start offset before each attempt.
        log_start = positions.fetch_earliest_offsets([target.topic_partition])[target.topic_partition]
        start = max(position, min(target.end, max(log_start, first_offset)))
        if start > position:
            where = "the partition" if log_start >= first_offset else directory
            reason = f"{where} now starts at {max(log_start, first_offset)}"
            report_data_loss(target, position, start, reason, fail=settings.fail_on_data_loss)
            position = start
        try:
            for chunk in _read_chunks_with_aborted_ranges(directory, position, target.end, settings.isolation):
                yield chunk
                position = chunk.next_offset
            if position >= target.end or is_log_complete:
                return
            # Beyond the end of the range, the missing records are not still to be written: compaction has removed
            # them, or the second attempt finds them.
            is_log_complete = has_records_at_or_after(directory, target.end)
        except SegmentsDeletedError as deleted:
            first_offset = deleted.first_offset
            continue
        if not is_log_complete:
            report_data_loss(target, position, target.end, f"{directory} ends there", fail=settings.fail_on_data_loss)
            return


def _read_chunks_with_aborted_ranges(
    directory: Path, start: int, end: int, isolation: IsolationLevel
) -> Iterator[RecordChunk]:
    aborted = find_aborted_transactions(directory, start, end) if isolation is IsolationLevel.READ_COMMITTED else ()
    for chunk in read_segments(directory, start, end):
        yield chunk._replace(aborted=_find_overlapping_aborted_ranges(aborted, chunk))


def has_records_at_or_after(directory: Path, offset: int) -> bool:
    """Return whether any record or segment starts at or after the offset.

    Raises:
        SegmentsDeletedError: Retention deleted the files during the read.
    """
    if any(segment.base_offset >= offset for segment in list_segment_files(str(directory))):
        return True
    return next(read_segments(directory, offset, MAX_OFFSET), None) is not None


def find_partition_directory(data_dirs: Sequence[str], partition: TopicPartition, topic: MetadataResponseTopic) -> Path:
    """Return the partition's directory, named by topic id (Chronik) or by topic name (Apache Kafka).

    Directories of the leader come first, then those of in-sync replicas; other replicas may lack records or have
    uncommitted ones. Directories without an owner come last, in the given order.

    Raises:
        OptionError: No data directory has the partition, or only those of replicas that are not in sync.
    """
    found_dirs = {
        data_dir: directory
        for data_dir in data_dirs
        if (directory := _find_directory_in_data_dir(data_dir, partition, topic.topic_id))
    }
    if not found_dirs:
        message = f"none of {', '.join(data_dirs)} has {partition} (topic id {format_id(topic.topic_id)})"
        raise OptionError(f"segmentDirs: {message}")
    candidates = _sort_by_replica_state(list(found_dirs), partition, topic)
    if not candidates:
        raise OptionError(f"segmentDirs: {partition} is only in {', '.join(found_dirs)}, whose node is not in sync")
    return found_dirs[candidates[0]]


def _find_directory_in_data_dir(data_dir: str, partition: TopicPartition, topic_id: bytes) -> Path | None:
    for name in (f"{TOPICS_DIRECTORY}/{format_id(topic_id)}/{partition.partition}", str(partition)):
        directory = Path(data_dir) / name
        if directory.is_dir():
            return directory
    return None


def _sort_by_replica_state(data_dirs: list[str], partition: TopicPartition, topic: MetadataResponseTopic) -> list[str]:
    (partition_metadata,) = (each for each in topic.partitions if each.partition_index == partition.partition)
    owners = {data_dir: _read_owner_id(data_dir) for data_dir in data_dirs}
    leader_dirs = [
        data_dir for data_dir, owner in owners.items() if owner is not None and owner == partition_metadata.leader_id
    ]
    in_sync_dirs = [data_dir for data_dir, owner in owners.items() if owner in partition_metadata.isr_nodes]
    return [*leader_dirs, *in_sync_dirs, *(data_dir for data_dir, owner in owners.items() if owner is None)]


def _read_owner_id(data_dir: str) -> int | None:
    """Return the id of the node that owns the data directory, or None if it has no valid node.json."""
    try:
        return int(json.loads((Path(data_dir) / IDENTITY_FILE).read_bytes())["node_id"])
    except (OSError, ValueError, TypeError, KeyError):
        return None


def read_segments(directory: Path, start: int, end: int) -> Iterator[RecordChunk]:
    """Yield chunks of the batches from the one that contains `start` to the last that starts before `end`.

    Raises:
        SegmentsDeletedError: Retention deleted the first files before they were read.
    """
    position, listings = start, 0
    while position < end:
        try:
            for chunk in _read_files(directory, position, end):
                yield chunk
                position, listings = chunk.next_offset, 0
            return
        except FileNotFoundError:
            listings += 1
            if listings >= LISTINGS_MAX:
                raise


def _read_files(directory: Path, start: int, end: int) -> Iterator[RecordChunk]:
    segments = list_segment_files(str(directory))
    if segments and start < segments[0].base_offset:
        raise SegmentsDeletedError(directory, start, segments[0].base_offset)
    first = bisect_right(segments, start, key=lambda segment: segment.base_offset) - 1
    for segment in segments[first:]:
        if segment.base_offset >= end:
            return
        with open(segment.path, "rb", buffering=0) as file:
            has_trailing_bytes = yield from _read_file(file.fileno(), start, end)
        # Only the last file may end with an incomplete batch: it is being written, and no range extends to it yet.
        if has_trailing_bytes and segment is not segments[-1]:
            raise CorruptRecords(f"{segment.path}: the bytes after the last batch are not a batch")


def _read_file(descriptor: int, start: int, end: int) -> Generator[RecordChunk, None, bool]:
    """Yield chunks of one file up to `end`, and return whether bytes follow its last complete batch."""
    file_position, size = 0, CHUNK_BYTES
    while True:
        buffer = os.pread(descriptor, size, file_position)
        batches = _parse_complete_batches(buffer)
        if not batches:
            if len(buffer) < size or _is_preallocated(buffer):
                return not _is_preallocated(buffer)
            size *= 2  # a batch larger than the buffer
            continue
        last = batches[-1]
        file_position += last.position + last.size
        size = CHUNK_BYTES
        chosen = [each for each in batches if each.last_offset >= start and _get_first_offset(each) < end]
        if chosen:
            yield RecordChunk(buffer, chosen, start)
        if last.last_offset >= end - 1:
            return False


def _parse_complete_batches(buffer: bytes) -> list[StoredBatch]:
    """Return the complete batches, ignoring preallocated zeros at the end of an active segment."""
    batches: list[StoredBatch] = []
    try:
        for batch in iter_batches(buffer):
            batches.append(batch)
    except CorruptRecords:
        batches_end = batches[-1].position + batches[-1].size if batches else 0
        if not _is_preallocated(buffer[batches_end:]):
            raise
    return batches


def _is_preallocated(data: bytes) -> bool:
    return not any(data[:12])


def _get_first_offset(batch: StoredBatch) -> int:
    return batch.last_offset if batch.header is None else batch.header.base_offset


class AbortedTransactionRange(NamedTuple):
    """An aborted transaction of a producer, from its first batch in the range to its abort marker."""

    producer_id: int
    first_offset: int
    """Base offset of the transaction's first batch in the range."""
    marker_offset: int


def find_aborted_transactions(directory: Path, start: int, end: int) -> tuple[AbortedTransactionRange, ...]:
    """Return the aborted transactions with records in the range, reading beyond it to find their abort markers.

    Transactions still open at the end of the log are not returned: a range planned up to the last stable offset has
    none of their records. Deleted records do not matter, so the read starts at the first segment file if necessary.
    """
    while True:
        try:
            return tuple(_scan_for_aborted_transactions(directory, start, end))
        except SegmentsDeletedError as deleted:
            start = deleted.first_offset


def _scan_for_aborted_transactions(directory: Path, start: int, end: int) -> list[AbortedTransactionRange]:
    open_since: dict[int, int] = {}
    aborted: list[AbortedTransactionRange] = []
    for chunk in read_segments(directory, start, MAX_OFFSET):
        for batch in chunk.batches:
            header = batch.header
            if header is None or not header.is_transactional:
                continue
            if not header.is_control:
                if header.base_offset < end:
                    open_since.setdefault(header.producer_id, header.base_offset)
            elif (first := open_since.pop(header.producer_id, None)) is not None and is_abort_marker(
                chunk.buffer, batch
            ):
                aborted.append(AbortedTransactionRange(header.producer_id, first, header.base_offset))
        if chunk.next_offset >= end and not open_since:
            break
    return aborted


def _find_overlapping_aborted_ranges(
    aborted: Sequence[AbortedTransactionRange], chunk: RecordChunk
) -> tuple[AbortedProducerRange, ...]:
    first = _get_first_offset(chunk.batches[0])
    return tuple(
        AbortedProducerRange(each.first_offset, each.producer_id)
        for each in aborted
        if each.marker_offset >= first and each.first_offset < chunk.next_offset
    )
