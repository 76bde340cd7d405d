"""A write-ahead log of numbered records in segment files (`<first index>.wal`) in a directory of its own.

It must be called from one thread at a time. Appended records are durable when `sync` has returned. A failed write or
sync raises StorageError, after which the log accepts no more writes. Opening a log truncates a torn tail (records that
were never synced) and raises DamagedDataError for damage to synced records.
"""

from __future__ import annotations

import struct
import time
from array import array
from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec

from chronik.crc import crc32c
from chronik.errors import DamagedDataError, check_invariant
from chronik.files import File, FileSystem
from chronik.histogram import Histogram
from chronik.wal.records import (
    RECORD_BYTES_MAX,
    build_indexed_path,
    encode_records,
    list_file_indexes,
    scan_records,
    was_position_synced,
)

_FIELDS_STRUCT: Final = struct.Struct(">QQ")
_MARK_STRUCT: Final = struct.Struct(">QQI")

SEGMENT_SUFFIX: Final = ".wal"
SYNCED_FILE_NAME: Final = "synced"


class SyncedPosition(NamedTuple):
    """The position up to which a write-ahead log is synced: the segment's first index, and the file position."""

    first_index: int
    position: int


UNKNOWN_POSITION: Final = SyncedPosition(0, 0)


class SyncedPositionFile:
    """The file that stores a log's synced position.

    No later record proves that the last record of a log was synced, so damage to it would look like a torn tail and be
    truncated. The mark is written after each sync, without a sync of its own: it is exact after the process was killed,
    and after a power failure it may be outdated but never ahead of the log. An invalid or missing mark is ignored.
    """

    def __init__(self, file: File) -> None:
        self._file = file

    def read(self) -> SyncedPosition:
        data = self._file.pread(_MARK_STRUCT.size, 0)
        if len(data) < _MARK_STRUCT.size:
            return UNKNOWN_POSITION
        first_index, position, crc = _MARK_STRUCT.unpack(data)
        return SyncedPosition(first_index, position) if crc == crc32c(data[: _FIELDS_STRUCT.size]) else UNKNOWN_POSITION

    def write(self, mark: SyncedPosition) -> None:
        fields = _FIELDS_STRUCT.pack(*mark)
        self._file.pwrite(_MARK_STRUCT.pack(*mark, crc32c(fields)), 0)

    def lower(self, mark: SyncedPosition) -> None:
        """Lower the synced position durably before the log is truncated, since it must never exceed the log's end."""
        self.write(mark)
        self._file.fdatasync()

    def close(self) -> None:
        self._file.close()


class WalEntry(msgspec.Struct, frozen=True, gc=False):
    """A record read from the log: its index and payload."""

    index: int
    payload: memoryview


class WalSegment(NamedTuple):
    """A segment file and the positions of its records."""

    first_index: int
    path: str
    positions: array[int]
    """File position of each record in the segment (8 bytes of memory each), to truncate the log without reading it."""

    @property
    def next_index(self) -> int:
        return self.first_index + len(self.positions)


class WriteAheadLog:
    """A segmented write-ahead log. Create it with `open`. Indexes start at 1; `last_index` is 0 in an empty log."""

    def __init__(
        self,
        files: FileSystem,
        directory: str,
        segments: list[WalSegment],
        file: File,
        mark: SyncedPositionFile,
        synced: int,
    ) -> None:
        self._files = files
        self._directory = directory
        self._segments = segments
        self._file = file
        self._mark = mark
        self._synced = synced
        self.sync_times: Final = Histogram()

    @classmethod
    def open(cls, files: FileSystem, directory: str, *, after: int = 0) -> tuple[WriteAheadLog, list[WalEntry]]:
        """Open the log. Return it with its records after index `after`, the last index that the snapshot covers."""
        return _WalRecovery(files, directory, after).run()

    @property
    def first_index(self) -> int:
        return self._segments[0].first_index

    @property
    def last_index(self) -> int:
        return self._segments[-1].next_index - 1

    @property
    def segment_bytes(self) -> int:
        """Size of the active segment in bytes."""
        return self._file.size

    def append(self, payloads: Sequence[bytes]) -> int:
        """Append records with one write. Return the index of the last record. The records are durable after `sync`."""
        check_invariant(
            all(len(payload) <= RECORD_BYTES_MAX for payload in payloads), "write-ahead log: record too large"
        )
        segment = self._segments[-1]
        data, positions = encode_records(segment.next_index, self._synced, payloads)
        offset = self._file.append(data)
        segment.positions.extend(offset + position for position in positions)
        return self.last_index

    def sync(self) -> None:
        if not self._file.has_unsynced_writes:
            return
        end = self._file.size
        started = time.perf_counter()
        self._file.fdatasync()
        self.sync_times.record(time.perf_counter() - started)
        self._synced = end
        self._mark.write(SyncedPosition(self._segments[-1].first_index, end))

    def roll(self) -> None:
        """Start a new log segment, so that the earlier segments can be deleted after a snapshot."""
        self.sync()
        if not self._segments[-1].positions:
            return
        segment = WalSegment(self.last_index + 1, build_segment_path(self._directory, self.last_index + 1), array("Q"))
        file = self._files.create(segment.path)
        self._files.sync_directory(self._directory)
        self._file.close()
        self._file = file
        self._segments.append(segment)
        self._synced = 0

    def delete_segments_through(self, index: int) -> None:
        """Delete the segments that a snapshot at `index` covers, except the active one."""
        while len(self._segments) > 1 and self._segments[0].next_index <= index + 1:
            self._files.remove(self._segments.pop(0).path)

    def truncate_after(self, index: int) -> None:
        """Durably remove the records after `index`."""
        check_invariant(
            self.first_index - 1 <= index <= self.last_index, f"write-ahead log: cannot truncate after {index}"
        )
        if index == self.last_index:
            return
        while self._segments[-1].first_index > index + 1:
            self._remove_last_segment()
        segment = self._segments[-1]
        kept = index + 1 - segment.first_index
        if kept < len(segment.positions):
            size = segment.positions[kept]
            self._mark.lower(SyncedPosition(segment.first_index, min(size, self._synced)))
            self._file.truncate(size)
            self._file.fdatasync()
            del segment.positions[kept:]
            self._synced = size

    def _remove_last_segment(self) -> None:
        """Remove the last segment. Segments are removed from the end, so that a power failure leaves no gap."""
        removed = self._segments.pop()
        previous = self._segments[-1]
        self._file.close()
        self._file = self._files.open(previous.path)
        self._synced = self._file.size  # a segment is synced before the next one is started
        self._mark.lower(SyncedPosition(previous.first_index, self._synced))
        self._files.remove(removed.path)
        self._files.sync_directory(self._directory)

    def close(self) -> None:
        """Sync and close the log. After a storage failure, only close the files."""
        try:
            if self._files.failure is None:
                self.sync()
        finally:
            self._file.close()
            self._mark.close()


class _WalRecovery:
    """The recovery of a write-ahead log at startup, which reads the intact records and detects damage."""

    def __init__(self, files: FileSystem, directory: str, after: int) -> None:
        self._files = files
        self._directory = directory
        self._after = after
        self._segments: list[WalSegment] = []
        self._entries: list[WalEntry] = []

    def run(self) -> tuple[WriteAheadLog, list[WalEntry]]:
        self._make_directory()
        mark = SyncedPositionFile(self._files.create(f"{self._directory}/{SYNCED_FILE_NAME}"))
        try:
            return self._open(mark), self._entries
        except BaseException:
            mark.close()
            raise

    def _open(self, mark: SyncedPositionFile) -> WriteAheadLog:
        first_indexes = self._select_segments_to_read()
        self._check_no_segment_missing(mark.read(), first_indexes)
        for first_index in first_indexes[:-1]:
            self._read_closed_segment(first_index)
        file = self._read_last_segment(first_indexes[-1], mark.read())
        log = WriteAheadLog(self._files, self._directory, self._segments, file, mark, file.size)
        # Records that a killed process wrote without a sync are now visible to the caller, so they must be durable.
        file.fdatasync()
        self._files.sync_directory(self._directory)
        mark.write(SyncedPosition(first_indexes[-1], file.size))
        return log

    def _make_directory(self) -> None:
        for parent in self._files.make_directory(self._directory):
            self._files.sync_directory(parent)

    def _select_segments_to_read(self) -> list[int]:
        """Return the first index of each segment to read, after deleting the segments that the snapshot covers."""
        found = list_file_indexes(self._directory, SEGMENT_SUFFIX, self._files)
        while len(found) > 1 and found[1] <= self._after + 1:
            self._files.remove(build_segment_path(self._directory, found.pop(0)))
        if not found:
            self._files.create(build_segment_path(self._directory, self._after + 1)).close()
            return [self._after + 1]
        if found[0] > self._after + 1:
            path = build_segment_path(self._directory, found[0])
            raise DamagedDataError(
                f"{path} is the first segment of the log: records from {self._after + 1} on are missing"
            )
        return found

    def _check_no_segment_missing(self, mark: SyncedPosition, first_indexes: list[int]) -> None:
        if mark.first_index > first_indexes[-1]:
            raise DamagedDataError(f"log segment {build_segment_path(self._directory, mark.first_index)} is missing")

    def _read_closed_segment(self, first_index: int) -> None:
        """Read a closed segment.

        It was synced before the next segment was started, so every invalid record is damage.
        """
        self._check_no_index_gap(first_index)
        path = build_segment_path(self._directory, first_index)
        data = self._read_file(path)
        end = self._scan_segment(first_index, path, data)
        if end < len(data):
            raise DamagedDataError(f"log segment {path} is damaged at byte {end}")

    def _read_last_segment(self, first_index: int, mark: SyncedPosition) -> File:
        self._check_no_index_gap(first_index)
        path = build_segment_path(self._directory, first_index)
        data = self._read_file(path)
        end = self._scan_segment(first_index, path, data)
        synced = mark.position if mark.first_index == first_index else 0
        if end < synced or (end < len(data) and was_position_synced(data, end)):
            raise DamagedDataError(f"log segment {path} is damaged at byte {end}")
        if self._segments[-1].next_index <= self._after:
            raise DamagedDataError(f"log segment {path} ends before the snapshot's index {self._after}")
        file = self._files.open(path)
        if end < len(data):
            file.truncate(end)
        return file

    def _check_no_index_gap(self, first_index: int) -> None:
        if self._segments and self._segments[-1].next_index != first_index:
            last = self._segments[-1]
            raise DamagedDataError(
                f"log segment {last.path} ends at index {last.next_index - 1}, the next starts at {first_index}"
            )

    def _read_file(self, path: str) -> bytes:
        file = self._files.open(path)
        try:
            return file.pread(file.size, 0)
        finally:
            file.close()

    def _scan_segment(self, first_index: int, path: str, data: bytes) -> int:
        records, end = scan_records(memoryview(data), first_index)
        self._segments.append(WalSegment(first_index, path, array("Q", (record.position for record in records))))
        self._entries.extend(WalEntry(r.index, r.payload) for r in records if r.index > self._after)
        return end


def build_segment_path(directory: str, first_index: int) -> str:
    return build_indexed_path(directory, first_index, SEGMENT_SUFFIX)
