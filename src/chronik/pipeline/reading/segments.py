"""A range of a partition from segment files: for tasks on a broker's own machine, or over a copy of its data folder.

Files know nothing of the broker's rules. So ranges are planned with the broker (up to the high watermark, or the last
stable offset), records before the log's start are not read although they may still be there, and which transactions
were aborted is learnt from the markers after them.
"""

from __future__ import annotations

import json
import os
from bisect import bisect_right
from collections.abc import Generator, Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from chronik.client.cluster import Cluster
from chronik.client.records import TopicPartition
from chronik.errors import ChronikError
from chronik.ids import format_id
from chronik.pipeline.errors import OptionError
from chronik.pipeline.reading.options import IsolationLevel, ReadSettings
from chronik.pipeline.reading.portions import PORTION_BYTES, Portion, report_loss
from chronik.pipeline.reading.positions import Positions
from chronik.pipeline.reading.ranges import OffsetRange
from chronik.pipeline.reading.segment_files import segments_of
from chronik.pipeline.records.batches import Aborted, StoredBatch, is_abort, stored_batches
from chronik.protocol.errors import CorruptRecords
from chronik.protocol.messages.metadata import MetadataResponseTopic

TOPICS_FOLDER: Final = "topics"
IDENTITY_FILE: Final = "node.json"

NO_END: Final = 2**63 - 1

LISTINGS_MAX: Final = 20
"""A file may go away between listing and opening it, when retention or compaction takes it; not so often in a row."""


class SegmentsDeleted(ChronikError):
    """The files do not reach back to what is to be read next: retention has taken those that did."""

    def __init__(self, folder: Path, position: int, first_offset: int) -> None:
        super().__init__(f"{folder}: {position} is to be read, and the files begin at {first_offset} by now")
        self.first_offset = first_offset


def segment_portions(cluster: Cluster, target: OffsetRange, settings: ReadSettings) -> Generator[Portion]:
    """Does as `fetched_portions`, from folders that `settings` names. Raises OptionError if none has the partition."""
    topic = cluster.retrying(lambda: cluster.topic(target.topic))
    folder = partition_folder(settings.segment_dirs, target.source, topic)
    positions = Positions(cluster, settings.isolation)
    position, first_offset, is_there = target.start, 0, False
    while position < target.end:
        # Files go while they are read, and those that are left begin wherever a segment does: ask anew each time.
        log_start = positions.earliest([target.source])[target.source]
        start = max(position, min(target.end, max(log_start, first_offset)))
        if start > position:
            where = "the partition" if log_start >= first_offset else folder
            why = f"{where} now starts at {max(log_start, first_offset)}"
            report_loss(target, position, start, why, fail=settings.fail_on_data_loss)
            position = start
        try:
            for portion in _visible(folder, position, target.end, settings.isolation):
                yield portion
                position = portion.next_offset
            if position >= target.end or is_there:
                return
            # If so, what is not there is not on its way either: compaction has removed it, or another look finds it.
            is_there = reaches(folder, target.end)
        except SegmentsDeleted as deleted:
            first_offset = deleted.first_offset
            continue
        if not is_there:
            report_loss(target, position, target.end, f"{folder} ends there", fail=settings.fail_on_data_loss)
            return


def _visible(folder: Path, start: int, end: int, isolation: IsolationLevel) -> Iterator[Portion]:
    aborted = aborted_transactions(folder, start, end) if isolation is IsolationLevel.READ_COMMITTED else ()
    for portion in read_segments(folder, start, end):
        yield portion._replace(aborted=_that_concern(aborted, portion))


def reaches(folder: Path, offset: int) -> bool:
    """Says whether the files have anything at or after an offset, or begin a segment there. Raises SegmentsDeleted."""
    if any(segment.base_offset >= offset for segment in segments_of(str(folder))):
        return True
    return next(read_segments(folder, offset, NO_END), None) is not None


def partition_folder(data_dirs: Sequence[str], partition: TopicPartition, topic: MetadataResponseTopic) -> Path:
    """Finds the partition in one of the data folders: by topic id as Chronik does, or by name as Kafka does.

    It is the leader's, or that of a node in sync: others may have less, or records never committed. Folders that do
    not say whose they are come last, in the order in which they were given. Raises OptionError.
    """
    found = {data_dir: folder for data_dir in data_dirs if (folder := _folder_in(data_dir, partition, topic.topic_id))}
    if not found:
        told = f"none of {', '.join(data_dirs)} has {partition} (topic id {format_id(topic.topic_id)})"
        raise OptionError(f"segmentDirs: {told}")
    trusted = _by_trust(list(found), partition, topic)
    if not trusted:
        raise OptionError(f"segmentDirs: {partition} is in {', '.join(found)} alone, of a node that is not in sync")
    return found[trusted[0]]


def _folder_in(data_dir: str, partition: TopicPartition, topic_id: bytes) -> Path | None:
    for name in (f"{TOPICS_FOLDER}/{format_id(topic_id)}/{partition.partition}", str(partition)):
        folder = Path(data_dir) / name
        if folder.is_dir():
            return folder
    return None


def _by_trust(data_dirs: list[str], partition: TopicPartition, topic: MetadataResponseTopic) -> list[str]:
    (known,) = (each for each in topic.partitions if each.partition_index == partition.partition)
    owners = {data_dir: _owner(data_dir) for data_dir in data_dirs}
    leads = [data_dir for data_dir, owner in owners.items() if owner is not None and owner == known.leader_id]
    in_sync = [data_dir for data_dir, owner in owners.items() if owner in known.isr_nodes]
    return [*leads, *in_sync, *(data_dir for data_dir, owner in owners.items() if owner is None)]


def _owner(data_dir: str) -> int | None:
    """Returns the node whose data folder it is, if it says so."""
    try:
        return int(json.loads((Path(data_dir) / IDENTITY_FILE).read_bytes())["node_id"])
    except (OSError, ValueError, TypeError, KeyError):
        return None


def read_segments(folder: Path, start: int, end: int) -> Iterator[Portion]:
    """Yields the batches from the one that holds `start` to the last that begins before `end`, as far as there are any.

    Raises SegmentsDeleted when the first files go away sooner than they are read.
    """
    position, listings = start, 0
    while position < end:
        try:
            for portion in _from_files(folder, position, end):
                yield portion
                position, listings = portion.next_offset, 0
            return
        except FileNotFoundError:
            listings += 1
            if listings >= LISTINGS_MAX:
                raise


def _from_files(folder: Path, start: int, end: int) -> Iterator[Portion]:
    segments = segments_of(str(folder))
    if segments and start < segments[0].base_offset:
        raise SegmentsDeleted(folder, start, segments[0].base_offset)
    first = bisect_right(segments, start, key=lambda segment: segment.base_offset) - 1
    for segment in segments[first:]:
        if segment.base_offset >= end:
            return
        with open(segment.path, "rb", buffering=0) as file:
            left_over = yield from _from_file(file.fileno(), start, end)
        # Only the last file may hold a part of a batch: it is being written, and no range reaches it yet.
        if left_over and segment is not segments[-1]:
            raise CorruptRecords(f"{segment.path}: what follows the batches is none")


def _from_file(descriptor: int, start: int, end: int) -> Generator[Portion, None, bool]:
    """Reads the file as far as `end` needs it. Returns whether anything is left over after the last whole batch."""
    at, size = 0, PORTION_BYTES
    while True:
        buffer = os.pread(descriptor, size, at)
        batches = _whole_batches(buffer)
        if not batches:
            if len(buffer) < size or _is_room(buffer):
                return not _is_room(buffer)
            size *= 2  # one batch that is longer than that
            continue
        last = batches[-1]
        at += last.position + last.size
        size = PORTION_BYTES
        chosen = [each for each in batches if each.last_offset >= start and _first_offset(each) < end]
        if chosen:
            yield Portion(buffer, chosen, start)
        if last.last_offset >= end - 1:
            return False


def _whole_batches(buffer: bytes) -> list[StoredBatch]:
    """After the last batch of a segment that is written to there may be room, which is zeros."""
    batches: list[StoredBatch] = []
    try:
        for batch in stored_batches(buffer):
            batches.append(batch)
    except CorruptRecords:
        behind = batches[-1].position + batches[-1].size if batches else 0
        if not _is_room(buffer[behind:]):
            raise
    return batches


def _is_room(data: bytes) -> bool:
    return not any(data[:12])


def _first_offset(batch: StoredBatch) -> int:
    return batch.last_offset if batch.header is None else batch.header.base_offset


class AbortedSpan(NamedTuple):
    producer_id: int
    first_offset: int
    """The offset of the first batch in the range."""
    marker_offset: int


def aborted_transactions(folder: Path, start: int, end: int) -> tuple[AbortedSpan, ...]:
    """Returns those that have records in the range, found by reading on until all of them have ended.

    A transaction that is still open when the log ends counts as neither: a range that was planned up to the last stable
    offset has none of it. Of records that are gone nobody asks, so it begins where the files do.
    """
    while True:
        try:
            return tuple(_aborted_from(folder, start, end))
        except SegmentsDeleted as deleted:
            start = deleted.first_offset


def _aborted_from(folder: Path, start: int, end: int) -> list[AbortedSpan]:
    open_since: dict[int, int] = {}
    aborted: list[AbortedSpan] = []
    for portion in read_segments(folder, start, NO_END):
        for batch in portion.batches:
            header = batch.header
            if header is None or not header.is_transactional:
                continue
            if not header.is_control:
                if header.base_offset < end:
                    open_since.setdefault(header.producer_id, header.base_offset)
            elif (first := open_since.pop(header.producer_id, None)) is not None and is_abort(portion.buffer, batch):
                aborted.append(AbortedSpan(header.producer_id, first, header.base_offset))
        if portion.next_offset >= end and not open_since:
            break
    return aborted


def _that_concern(aborted: Sequence[AbortedSpan], portion: Portion) -> tuple[Aborted, ...]:
    first = _first_offset(portion.batches[0])
    return tuple(
        Aborted(each.first_offset, each.producer_id)
        for each in aborted
        if each.marker_offset >= first and each.first_offset < portion.next_offset
    )
