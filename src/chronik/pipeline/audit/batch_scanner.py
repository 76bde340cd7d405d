"""Scan of one replica's batches, segment file by segment file, with checks that need no other replica.

Each batch must have a valid header and checksum, continue the previous batch's offsets, have the leader epoch that the
epoch history has for its offset, and contain as many records as its header states. After damage, the scan continues
with the next batch that has a correct checksum.

The node may be running: renamed or deleted files are listed again, and nothing is read beyond the planned end.

Scanned batches are decoded to record columns many at a time.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Generator, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Final, NamedTuple

from chronik.limits import FRAME_BYTES_MAX, MIB
from chronik.pipeline.audit.data_directories import find_indexed_batch, read_leader_epochs, read_log_start_offset
from chronik.pipeline.audit.findings import Finding, FindingKind, ReplicaId
from chronik.pipeline.records.batches import StoredBatch
from chronik.pipeline.records.columns import RecordColumns
from chronik.pipeline.records.decoder import decode_batches
from chronik.pipeline.source.record_chunk import CHUNK_BYTES
from chronik.pipeline.source.segment_transport import SegmentFile, list_segment_files
from chronik.protocol.batch import (
    HEADER_BYTES,
    LENGTH_END,
    MAGIC,
    MAGIC_POSITION,
    BatchHeader,
    parse_header,
    verify_crc,
)
from chronik.protocol.errors import CorruptRecords, KafkaError
from chronik.protocol.records import decode_batch
from chronik.protocol.varint import INT32_MAX
from chronik.wording import pluralize

_PREFIX = struct.Struct(">qiib")  # base offset, length, leader epoch, magic
_OFFSET = struct.Struct(">q")

LIST_ATTEMPTS_MAX: Final = 20
"""Maximum number of attempts to list and open a log's segment files while retention or compaction deletes some of
them."""

PRODUCERS_MAX: Final = 10_000
"""Maximum number of producers whose last batch is cached to detect duplicates. A full cache is cleared."""

GROUP_BYTES: Final = 4 * MIB
"""Size in bytes from which batches are decoded together: a compromise between throughput and memory use."""


class SegmentReader:
    """A chunked reader of one segment file that treats the file's contents as untrusted."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._descriptor = os.open(path, os.O_RDONLY)
        self.size = os.fstat(self._descriptor).st_size
        self._start = 0
        self._buffer = memoryview(b"")

    def __enter__(self) -> SegmentReader:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._descriptor)

    def read(self, position: int, size: int) -> memoryview:
        """Return `size` bytes of the file from a position on, or fewer at the end of the file."""
        first = position - self._start
        if first < 0 or first + size > len(self._buffer):
            self._buffer = memoryview(os.pread(self._descriptor, max(size, CHUNK_BYTES), position))
            self._start, first = position, 0
        return self._buffer[first : first + size]

    def read_header(self, position: int) -> BatchHeader | None:
        """Return the batch header at a position, or None if no complete batch starts there."""
        first = position - self._start
        if first < 0 or first + HEADER_BYTES > len(self._buffer):
            self.read(position, HEADER_BYTES)
            first = 0
            if len(self._buffer) < HEADER_BYTES:
                return None
        _, length, _, magic = _PREFIX.unpack_from(self._buffer, first)
        size = length + LENGTH_END
        if magic != MAGIC or not HEADER_BYTES <= size <= self.size - position or size > FRAME_BYTES_MAX:
            return None
        if first + size > len(self._buffer):
            self.read(position, size)
            first = 0
        try:
            return parse_header(self._buffer, first)
        except CorruptRecords:
            return None  # the file was truncated since it was opened

    def is_unwritten(self, position: int) -> bool:
        """Return whether the file has no data at a position: only preallocated zeros, or the end of the file."""
        return not any(self.read(position, LENGTH_END))

    def find_next_valid_batch(self, position: int, min_offset: int) -> int:
        """Return the position of the next batch with a correct checksum and a plausible offset, or the file's end."""
        while position < self.size:
            view = bytes(self.read(position, CHUNK_BYTES))
            found = view.find(MAGIC, MAGIC_POSITION)
            while 0 <= found <= len(view) - HEADER_BYTES + MAGIC_POSITION:
                at = position + found - MAGIC_POSITION
                if self._is_valid_batch(at, min_offset):
                    return at
                found = view.find(MAGIC, found + 1)
            if len(view) <= HEADER_BYTES:
                break
            position += len(view) - HEADER_BYTES + 1
        return self.size

    def _is_valid_batch(self, position: int, min_offset: int) -> bool:
        offset = _OFFSET.unpack_from(self.read(position, LENGTH_END))[0]
        if not min_offset <= offset <= min_offset + INT32_MAX:
            return False
        header = self.read_header(position)
        return header is not None and verify_crc(self.read(position, header.size), 0, header.size)

    def read_base_offset_at(self, position: int, default: int) -> int:
        """Return the base offset of the batch at a file position, or `default` if no batch starts there."""
        header = self.read_header(position)
        return default if header is None else header.base_offset

    def has_plausible_successor(self, next_position: int, header: BatchHeader) -> bool:
        """Return whether the next batch, if any, starts at the offset that the damaged batch's header implies."""
        follower = self.read_header(next_position)
        return self.is_unwritten(next_position) if follower is None else follower.base_offset == header.next_offset


class CheckedBatch(NamedTuple):
    """A batch of a replica with its location in the segment file."""

    header: BatchHeader
    file: str
    position: int
    data: memoryview
    """All bytes of the batch, including its header."""
    is_valid: bool
    """Whether the checksum is correct and the batch has the expected offset."""


ScanEvent = CheckedBatch | Finding
"""A result of scanning a log: a record batch, or a finding about damaged or missing data."""


@dataclass
class BatchScanner:
    """A single-use iterator over a log's record batches with offsets in [start, end) and the findings about them."""

    directory: str
    replica_id: ReplicaId
    start: int
    end: int
    is_compacted: bool = False
    is_last: bool = True
    """Whether this is the last scan of the log, which must report all records missing before `end`."""
    must_reach_end: bool = True
    """Whether the log must contain all records up to `end`, because the replica is in sync."""
    has_predecessor: bool = False
    """Whether an earlier scan ended at `start` and has already checked the batch that contains `start`."""
    next_offset: int = field(init=False)
    """Offset of the next batch to scan."""
    _epoch: int = -1
    _epoch_start: int = 0
    _epoch_end: int = 0
    _producers: dict[int, tuple[int, int, int, int]] = field(default_factory=dict)
    _is_finished: bool = False

    def __post_init__(self) -> None:
        self.next_offset = self.start
        self._epochs, self._are_epochs_intact = read_leader_epochs(self.directory)

    def __iter__(self) -> Iterator[ScanEvent]:
        if self.start >= self.end:
            return
        if not self._are_epochs_intact:
            message = "the leader epoch history is damaged"
            yield self.replica_id.make_finding(FindingKind.EPOCH, message, file=f"{self.directory}/leader-epochs")
        attempts = 0
        while True:
            try:
                yield from self._scan_files()
                return
            except FileNotFoundError:
                attempts += 1
                if attempts >= LIST_ATTEMPTS_MAX:
                    raise

    def _scan_files(self) -> Iterator[ScanEvent]:
        segments = list_segment_files(self.directory)
        yield from self._check_log_start(segments)
        begun = sum(each.base_offset <= self.next_offset for each in segments)
        segments = segments[max(0, begun - 1) :]
        last: tuple[str, int] | None = None
        expected = min([self.next_offset, *(each.base_offset for each in segments[:1])])
        for segment, following in zip_longest(segments, segments[1:]):
            if self._is_finished or (segment.base_offset >= self.end and self.next_offset >= self.end):
                return
            with SegmentReader(segment.path) as reader:
                position, expected = yield from self._scan_file(reader, segment, following, expected)
                last = segment.path, position
        if self.next_offset < self.end and not self._is_finished and self.is_last and self.must_reach_end:
            yield self._build_short_log_finding(last)

    def _check_log_start(self, segments: list[SegmentFile]) -> Iterator[Finding]:
        """Yield a finding if records between the log start offset and the first segment are missing."""
        if not segments or segments[0].base_offset <= self.next_offset:
            return
        first = segments[0]
        self.next_offset = self.start = max(self.next_offset, min(read_log_start_offset(self.directory), self.end))
        if first.base_offset > self.next_offset < self.end:
            end = min(first.base_offset, self.end)
            yield self._build_missing_records_finding(self.next_offset, end, first.path, 0)
            self.next_offset = end

    # Scanning one file

    def _scan_file(
        self, reader: SegmentReader, segment: SegmentFile, following: SegmentFile | None, expected: int
    ) -> Generator[ScanEvent, None, tuple[int, int]]:
        """Yield the batches and findings of one segment file, and return the position and offset reached.

        The file should start with offset `expected`. Batches below `self.next_offset` were checked by an earlier scan.
        """
        position, expected = self._find_scan_start(reader, segment, expected)
        offset_after_damage = (
            self.end if following is None else following.base_offset
        )  # the next offset if the rest is damaged
        is_expected_certain = True  # whether `expected` is known to be right at `position`
        while True:
            header = reader.read_header(position)
            if expected >= self.end and (header is None or header.base_offset >= expected):
                self._is_finished = True
                break
            if header is None:
                if reader.is_unwritten(position):
                    break
                position, expected = yield from self._skip_damage(reader, position, expected, offset_after_damage)
            elif expected < self.next_offset and (
                header.next_offset <= self.next_offset or self._belongs_to_previous_range(header)
            ):
                is_expected_certain = is_expected_certain and header.base_offset == expected
                position, expected = position + header.size, max(expected, header.next_offset)
                self.next_offset = max(self.next_offset, expected)
            else:
                expected = (
                    expected if is_expected_certain or header.base_offset > self.next_offset else header.base_offset
                )
                is_expected_certain = True
                position, expected = yield from self._check_batch(
                    reader, segment, position, header, expected, offset_after_damage
                )
                if self._is_finished:
                    break
                self.next_offset = max(self.next_offset, expected)
        return position, expected

    def _find_scan_start(self, reader: SegmentReader, segment: SegmentFile, expected: int) -> tuple[int, int]:
        """Return the file position and offset at which to start, after the batches that an earlier scan has checked.

        The index entry is used only if a batch with its offset is there.
        """
        hint = find_indexed_batch(segment, self.next_offset) if expected < self.next_offset else None
        header = None if hint is None else reader.read_header(hint.position)
        if hint is None or header is None or header.base_offset != hint.offset:
            return 0, expected
        return hint.position, hint.offset

    def _belongs_to_previous_range(self, header: BatchHeader) -> bool:
        return self.has_predecessor and header.base_offset < self.start

    def _skip_damage(
        self, reader: SegmentReader, position: int, expected: int, offset_after_damage: int
    ) -> Generator[ScanEvent, None, tuple[int, int]]:
        """Yield a finding for damaged bytes, and return the position and offset of the next valid batch."""
        found = reader.find_next_valid_batch(position + 1, expected)
        after = max(expected, reader.read_base_offset_at(found, offset_after_damage))
        if after > self.next_offset:
            yield self._build_damage_finding(reader, position, max(expected, self.next_offset), found, after)
            self.next_offset = min(after, max(self.end, self.next_offset))
        return found, after

    def _check_batch(
        self,
        reader: SegmentReader,
        segment: SegmentFile,
        position: int,
        header: BatchHeader,
        expected: int,
        offset_after_damage: int,
    ) -> Generator[ScanEvent, None, tuple[int, int]]:
        """Verify a record batch; yield it with its findings, and return the position and offset of the next one."""
        next_position = position + header.size
        data = reader.read(position, header.size)
        problem = self._find_order_problem(reader, position, header, expected)
        if header.base_offset >= self.end and (problem is None or problem.kind is FindingKind.MISSING_RECORDS):
            self._is_finished = True
            if problem is not None and self.is_last:
                yield self._build_missing_records_finding(expected, self.end, reader.path, position)
            return position, expected
        if problem is not None:
            yield problem
        elif position == 0 and header.base_offset != segment.base_offset:
            message = f"the file is named after offset {segment.base_offset} but starts with {header.base_offset}"
            yield self._build_finding(FindingKind.HEADER, message, header, reader.path, position)
        is_displaced = problem is not None and problem.kind is FindingKind.HEADER
        is_good = verify_crc(data, 0, header.size)
        if is_good:
            yield from self._check_content(header, data, reader.path, position)
        else:
            message = f"wrong checksum of the batch with offsets {_format_offsets(header)}"
            yield self._build_finding(FindingKind.CHECKSUM, message, header, reader.path, position)
        yield CheckedBatch(header, reader.path, position, data, is_good and not is_displaced)
        if is_displaced:
            return next_position, expected + header.last_offset_delta + 1
        if is_good or reader.has_plausible_successor(next_position, header):
            return next_position, max(expected, header.next_offset)
        found = reader.find_next_valid_batch(position + 1, expected)
        return found, max(expected, reader.read_base_offset_at(found, offset_after_damage))

    def _find_order_problem(
        self, reader: SegmentReader, position: int, header: BatchHeader, expected: int
    ) -> Finding | None:
        base, size = header.base_offset, header.last_offset_delta + 1
        if base == expected:
            return None
        follower = reader.read_header(position + header.size)
        if (
            follower is not None
            and follower.base_offset == expected + size
            and follower.base_offset != header.next_offset
        ):
            message = f"the batch has base offset {base}, but its neighbors imply {expected}"
            return self.replica_id.make_finding(
                FindingKind.HEADER,
                message,
                offset=expected,
                end_offset=expected + size,
                file=reader.path,
                position=position,
            )
        if base < expected:
            message = f"offsets {_format_offsets(header)} occur again where offset {expected} is expected"
            return self._build_finding(FindingKind.DUPLICATE_BATCH, message, header, reader.path, position)
        return self._build_missing_records_finding(expected, base, reader.path, position)

    def _check_content(self, header: BatchHeader, data: memoryview, path: str, position: int) -> Iterator[Finding]:
        """Check the record count, leader epoch and producer of a batch with a correct checksum, and yield findings."""
        count = header.last_offset_delta + 1
        if header.record_count != count and (not self.is_compacted or header.record_count > count):
            yield self._build_record_count_finding(header, data, path, position)
        epoch, base = header.partition_leader_epoch, header.base_offset
        if epoch != self._epoch or not self._epoch_start <= base < self._epoch_end:  # differs from the previous batch
            yield from self._check_epoch(header, path, position)
        if header.producer_id >= 0 and not header.is_control:
            yield from self._check_producer(header, path, position)

    def _check_epoch(self, header: BatchHeader, path: str, position: int) -> Iterator[Finding]:
        epoch = header.partition_leader_epoch
        known, end = self._epochs.find_epoch_at(header.base_offset)
        if known != epoch and known >= 0:
            self._epochs, _ = read_leader_epochs(self.directory)  # a new leader epoch may have started since
            known, end = self._epochs.find_epoch_at(header.base_offset)
        if epoch < self._epoch:
            message = f"the batch has leader epoch {epoch}, but follows one with {self._epoch}"
        elif known not in (epoch, -1) and self._are_epochs_intact:
            message = f"the batch has leader epoch {epoch}, but the leader epoch history says {known}"
        else:
            self._epoch, self._epoch_start, self._epoch_end = epoch, header.base_offset, end
            return
        yield self._build_finding(FindingKind.EPOCH, message, header, path, position)

    def _check_producer(self, header: BatchHeader, path: str, position: int) -> Iterator[Finding]:
        """Yield a finding if a batch repeats its producer's previous batch (same sequence number and checksum)."""
        identity = header.producer_epoch, header.base_sequence, header.crc
        *before, offset = self._producers.get(header.producer_id, (0, 0, 0, 0))
        if tuple(before) == identity and header.producer_id in self._producers and offset != header.base_offset:
            message = (
                f"the batch with offsets {_format_offsets(header)} duplicates the one at offset {offset}: "
                f"producer {header.producer_id}, sequence {header.base_sequence}"
            )
            yield self._build_finding(FindingKind.DUPLICATE_BATCH, message, header, path, position)
        if len(self._producers) >= PRODUCERS_MAX:
            self._producers.clear()
        self._producers[header.producer_id] = (*identity, header.base_offset)

    # Findings

    def _build_finding(self, kind: FindingKind, message: str, header: BatchHeader, path: str, position: int) -> Finding:
        first, end = header.base_offset, header.next_offset
        return self.replica_id.make_finding(kind, message, offset=first, end_offset=end, file=path, position=position)

    def _build_missing_records_finding(self, first: int, end: int, path: str, position: int) -> Finding:
        message = f"offsets {first} to {end - 1} are missing" if end - first > 1 else f"offset {first} is missing"
        return self.replica_id.make_finding(
            FindingKind.MISSING_RECORDS, message, offset=first, end_offset=end, file=path, position=position
        )

    def _build_record_count_finding(self, header: BatchHeader, data: memoryview, path: str, position: int) -> Finding:
        try:
            present = {record.offset for record in decode_batch(bytes(data))}
        except CorruptRecords as error:
            message = f"the batch with offsets {_format_offsets(header)} cannot be decoded: {error}"
            return self._build_finding(FindingKind.HEADER, message, header, path, position)
        absent = [each for each in range(header.base_offset, header.next_offset) if each not in present]
        first = absent[0] if absent else header.base_offset
        message = (
            f"the batch with offsets {_format_offsets(header)} has {pluralize(header.record_count, 'record')}: "
            f"{_format_offset_list(absent)} {'is' if len(absent) == 1 else 'are'} missing"
        )
        return self.replica_id.make_finding(
            FindingKind.MISSING_RECORDS,
            message,
            offset=first,
            end_offset=header.next_offset,
            file=path,
            position=position,
        )

    def _build_damage_finding(
        self, reader: SegmentReader, position: int, expected: int, found: int, after: int
    ) -> Finding:
        message = f"no valid batch where offset {expected} is expected"
        if found < reader.size:
            message += f"; the next valid batch has offset {after} and is at byte {found}"
        return self.replica_id.make_finding(
            FindingKind.HEADER,
            message,
            offset=expected,
            end_offset=max(expected + 1, after),
            file=reader.path,
            position=position,
        )

    def _build_short_log_finding(self, last: tuple[str, int] | None) -> Finding:
        message = (
            f"the log ends at offset {self.next_offset}, before the high watermark {self.end}, but the replica is "
            "in sync"
        )
        file, position = last or (self.directory, None)
        return self.replica_id.make_finding(
            FindingKind.SHORT_LOG, message, offset=self.next_offset, end_offset=self.end, file=file, position=position
        )


def find_log_end(directory: str, offset: int) -> int:
    """Return the log end offset of a partition directory, found by scanning its batches from `offset` on."""
    scanner = BatchScanner(
        directory, ReplicaId("", 0, 0), offset, 2**62, is_compacted=True, is_last=False, must_reach_end=False
    )
    for _ in scanner:
        pass
    return scanner.next_offset


def _format_offsets(header: BatchHeader) -> str:
    return f"{header.base_offset} to {header.last_offset}"


def _format_offset_list(offsets: list[int]) -> str:
    shown = ", ".join(map(str, offsets[:5]))
    more = f" and {len(offsets) - 5} more" if len(offsets) > 5 else ""
    return f"{'offset' if len(offsets) == 1 else 'offsets'} {shown}{more}"


def decode_valid_batches(
    events: Iterable[ScanEvent], replica_id: ReplicaId, start: int, end: int
) -> Iterator[RecordColumns | Finding]:
    """Decode the valid batches of a log scan; yield their records in [start, end), and all findings unchanged.

    Batches with a wrong checksum are skipped, since they are already reported. A batch that cannot be decoded although
    its checksum is correct is reported here.
    """
    group: list[CheckedBatch] = []
    group_bytes = 0
    for event in events:
        if isinstance(event, Finding):
            yield event
        elif event.is_valid:
            group.append(event)
            group_bytes += len(event.data)
            if group_bytes >= GROUP_BYTES:
                yield from _decode_group(group, replica_id, start, end)
                group, group_bytes = [], 0
    yield from _decode_group(group, replica_id, start, end)


def _decode_group(
    group: list[CheckedBatch], replica_id: ReplicaId, start: int, end: int
) -> Iterator[RecordColumns | Finding]:
    try:
        yield from list(_decode_columns(group, start, end))
        return
    except (CorruptRecords, KafkaError) as error:
        if len(group) == 1:
            yield _build_undecodable_finding(group[0], replica_id, error)
            return
    for batch in group:
        yield from _decode_group([batch], replica_id, start, end)


def _decode_columns(group: list[CheckedBatch], start: int, end: int) -> Iterator[RecordColumns]:
    """Decode a group of batches in one pass, and yield their records with offsets in [start, end).

    The bytes are copied, since the reader's buffer may have been reused.
    """
    position = 0
    stored: list[StoredBatch] = []
    for batch in group:
        size = len(batch.data)
        stored.append(StoredBatch(position, size, batch.header.last_offset, batch.header))
        position += size
    return decode_batches(b"".join(batch.data for batch in group), stored, start, end)


def _build_undecodable_finding(batch: CheckedBatch, replica_id: ReplicaId, error: Exception) -> Finding:
    header = batch.header
    return replica_id.make_finding(
        FindingKind.HEADER,
        f"the records of the batch with offsets {header.base_offset} to {header.last_offset} cannot be read: {error}",
        offset=header.base_offset,
        end_offset=header.next_offset,
        file=batch.file,
        position=batch.position,
    )
