"""A log of numbered records in segment files, `<first index>.wal`, in a folder of its own.

Its owner calls it from one thread at a time. Appended records count once `sync` has returned; a failed write or sync
raises StorageFailed, after which nothing more is written. Opening truncates a torn tail (records that were never
synced) and refuses damage (records that were) with DataDamaged.
"""

from __future__ import annotations

import time
from array import array
from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec

from chronik.errors import DataDamaged, invariant
from chronik.files import File, FileSystem
from chronik.meters import Histogram
from chronik.wal.file_names import indexed_path, indexes_in
from chronik.wal.records import RECORD_BYTES_MAX, encode_records, scan, was_synced
from chronik.wal.synced_mark import Mark, SyncedMark

SUFFIX: Final = ".wal"
MARK_NAME: Final = "synced"


class Entry(msgspec.Struct, frozen=True, gc=False):
    index: int
    payload: memoryview


class Segment(NamedTuple):
    first_index: int
    path: str
    positions: array[int]
    """Where each record begins: 8 bytes per record in memory, so that a suffix can be cut off without reading."""

    @property
    def next_index(self) -> int:
        return self.first_index + len(self.positions)


class WriteAheadLog:
    """Create it with `open`. Indexes count from 1 without gaps; `last_index` is 0 in an empty log."""

    def __init__(
        self, files: FileSystem, folder: str, segments: list[Segment], file: File, mark: SyncedMark, synced: int
    ) -> None:
        self._files = files
        self._folder = folder
        self._segments = segments
        self._file = file
        self._mark = mark
        self._synced = synced
        self.sync_times: Final = Histogram()

    @classmethod
    def open(cls, files: FileSystem, folder: str, *, after: int = 0) -> tuple[WriteAheadLog, list[Entry]]:
        """Returns the log and its records after index `after`, up to which a snapshot has everything."""
        return _Recovery(files, folder, after).run()

    @property
    def first_index(self) -> int:
        return self._segments[0].first_index

    @property
    def last_index(self) -> int:
        return self._segments[-1].next_index - 1

    @property
    def segment_bytes(self) -> int:
        """The size of the segment being written."""
        return self._file.size

    def append(self, payloads: Sequence[bytes]) -> int:
        """Writes the records with one call and returns the index of the last; they are safe after `sync`."""
        invariant(all(len(payload) <= RECORD_BYTES_MAX for payload in payloads), "a record is too large")
        segment = self._segments[-1]
        data, positions = encode_records(segment.next_index, self._synced, payloads)
        begin = self._file.append(data)
        segment.positions.extend(begin + position for position in positions)
        return self.last_index

    def sync(self) -> None:
        if not self._file.unsynced:
            return
        end = self._file.size
        began = time.perf_counter()
        self._file.fdatasync()
        self.sync_times.add(time.perf_counter() - began)
        self._synced = end
        self._mark.write(Mark(self._segments[-1].first_index, end))

    def roll(self) -> None:
        """Begins a new segment, so that those before it can be removed once a snapshot has their content."""
        self.sync()
        if not self._segments[-1].positions:
            return
        segment = Segment(self.last_index + 1, segment_path(self._folder, self.last_index + 1), array("Q"))
        file = self._files.create(segment.path)
        self._files.sync_folder(self._folder)
        self._file.close()
        self._file = file
        self._segments.append(segment)
        self._synced = 0

    def drop_through(self, index: int) -> None:
        """Removes the segments that a snapshot up to `index` covers; the one being written stays."""
        while len(self._segments) > 1 and self._segments[0].next_index <= index + 1:
            self._files.remove(self._segments.pop(0).path)

    def truncate_after(self, index: int) -> None:
        """Removes the records after `index`, durably."""
        invariant(self.first_index - 1 <= index <= self.last_index, f"cannot truncate after {index}")
        if index == self.last_index:
            return
        while self._segments[-1].first_index > index + 1:
            self._remove_last_segment()
        segment = self._segments[-1]
        kept = index + 1 - segment.first_index
        if kept < len(segment.positions):
            size = segment.positions[kept]
            self._mark.lower(Mark(segment.first_index, min(size, self._synced)))
            self._file.truncate(size)
            self._file.fdatasync()
            del segment.positions[kept:]
            self._synced = size

    def _remove_last_segment(self) -> None:
        """Segments are removed from the last one backwards: so a power cut leaves no gap."""
        removed = self._segments.pop()
        before = self._segments[-1]
        self._file.close()
        self._file = self._files.open(before.path)
        self._synced = self._file.size  # a segment was synced before the next one began
        self._mark.lower(Mark(before.first_index, self._synced))
        self._files.remove(removed.path)
        self._files.sync_folder(self._folder)

    def close(self) -> None:
        """Syncs and closes. Call it also when storage has failed: then it only closes the files."""
        try:
            if self._files.failure is None:
                self.sync()
        finally:
            self._file.close()
            self._mark.close()


class _Recovery:
    """Finds out what a log on disk still holds."""

    def __init__(self, files: FileSystem, folder: str, after: int) -> None:
        self._files = files
        self._folder = folder
        self._after = after
        self._segments: list[Segment] = []
        self._entries: list[Entry] = []

    def run(self) -> tuple[WriteAheadLog, list[Entry]]:
        self._make_folder()
        mark = SyncedMark(self._files.create(f"{self._folder}/{MARK_NAME}"))
        try:
            return self._open(mark), self._entries
        except BaseException:
            mark.close()
            raise

    def _open(self, mark: SyncedMark) -> WriteAheadLog:
        first_indexes = self._needed_segments()
        self._refuse_missing_segment(mark.read(), first_indexes)
        for first_index in first_indexes[:-1]:
            self._read_closed_segment(first_index)
        file = self._read_last_segment(first_indexes[-1], mark.read())
        log = WriteAheadLog(self._files, self._folder, self._segments, file, mark, file.size)
        # What a killed process had written but not synced is read back, so from here on it counts: sync it.
        file.fdatasync()
        self._files.sync_folder(self._folder)
        mark.write(Mark(first_indexes[-1], file.size))
        return log

    def _make_folder(self) -> None:
        for parent in self._files.make_folder(self._folder):
            self._files.sync_folder(parent)

    def _needed_segments(self) -> list[int]:
        """Returns the first indexes of the segments to read; removes leftovers, which a snapshot covers."""
        found = indexes_in(self._folder, SUFFIX, self._files)
        while len(found) > 1 and found[1] <= self._after + 1:
            self._files.remove(segment_path(self._folder, found.pop(0)))
        if not found:
            self._files.create(segment_path(self._folder, self._after + 1)).close()
            return [self._after + 1]
        if found[0] > self._after + 1:
            path = segment_path(self._folder, found[0])
            raise DataDamaged(f"{path} is the first of the log, the records from {self._after + 1} on are missing")
        return found

    def _refuse_missing_segment(self, mark: Mark, first_indexes: list[int]) -> None:
        if mark.first_index > first_indexes[-1]:
            raise DataDamaged(f"{segment_path(self._folder, mark.first_index)} is missing")

    def _read_closed_segment(self, first_index: int) -> None:
        """It was synced before the next one began: whatever is wrong with it is damage."""
        self._refuse_gap(first_index)
        path = segment_path(self._folder, first_index)
        data = self._contents(path)
        end = self._take(first_index, path, data)
        if end < len(data):
            raise DataDamaged(f"{path} is damaged at byte {end}")

    def _read_last_segment(self, first_index: int, mark: Mark) -> File:
        self._refuse_gap(first_index)
        path = segment_path(self._folder, first_index)
        data = self._contents(path)
        end = self._take(first_index, path, data)
        synced = mark.position if mark.first_index == first_index else 0
        if end < synced or (end < len(data) and was_synced(data, end)):
            raise DataDamaged(f"{path} is damaged at byte {end}")
        if self._segments[-1].next_index <= self._after:
            raise DataDamaged(f"{path} ends before index {self._after}, up to which there is a snapshot")
        file = self._files.open(path)
        if end < len(data):
            file.truncate(end)
        return file

    def _refuse_gap(self, first_index: int) -> None:
        if self._segments and self._segments[-1].next_index != first_index:
            last = self._segments[-1]
            raise DataDamaged(f"{last.path} ends at index {last.next_index - 1}, the next segment is {first_index}")

    def _contents(self, path: str) -> bytes:
        file = self._files.open(path)
        try:
            return file.pread(file.size, 0)
        finally:
            file.close()

    def _take(self, first_index: int, path: str, data: bytes) -> int:
        records, end = scan(memoryview(data), first_index)
        self._segments.append(Segment(first_index, path, array("Q", (record.position for record in records))))
        self._entries.extend(Entry(r.index, r.payload) for r in records if r.index > self._after)
        return end


def segment_path(folder: str, first_index: int) -> str:
    return indexed_path(folder, first_index, SUFFIX)
