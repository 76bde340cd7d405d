"""A log segment: a file of batches with contiguous offsets, and its index.

A scan validates each batch that it passes (see `scan`). It skips damage within the segment and uses the index to find
the next valid batch.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from chronik.files import Buffer, File, FileCache
from chronik.limits import FRAME_BYTES_MAX, KIB, MIB
from chronik.log.files import names
from chronik.log.files.batch_scan import find_valid_batch_after, read_declared_batch_size, validate_batch
from chronik.log.files.index import CorruptIndexError, IndexEntry, SegmentIndex
from chronik.log.leader_epochs import LeaderEpochHistory
from chronik.protocol.batch import HEADER_BYTES, LENGTH_END, BatchHeader, parse_header
from chronik.protocol.errors import CorruptRecords

SMALL_SYNC_BYTES = 16 * KIB
"""Maximum number of bytes per sync for which a segment preallocates file space."""

PREALLOCATED_BYTES_MIN = 16 * KIB
PREALLOCATED_BYTES_MAX = 1 * MIB
"""Maximum file space in bytes that a segment preallocates."""

# Chunk size of scans over many batches.
SCAN_CHUNK_BYTES = 1 << 20
# Read positions that are remembered, so that consumers that continue a read need no index lookup.
READ_POSITIONS_MAX = 64
# Extra bytes per read, because the index may point to a batch somewhat before the requested offset.
READ_AHEAD_BYTES = 8192

NO_TIMESTAMP = -1

_TIMESTAMP = struct.Struct(">q")
MAX_TIMESTAMP_POSITION = 35


class Preallocation:
    """The preallocated length of a segment file, which makes small syncs faster.

    A sync that only writes bytes waits for the disk once. A sync that also changes the file's length waits for the file
    system's journal too, which takes 50 % longer. Only the active segment may be longer than its batches. After a
    crash, the preallocated space is a tail of zeros, which recovery truncates like any other invalid tail.
    """

    __slots__ = ("_end",)

    def __init__(self) -> None:
        self._end = 0  # until the first sync

    def extends_beyond(self, size: int) -> bool:
        return self._end > size

    def next_length(self, size: int, size_max: int) -> int | None:
        """Return the length to which the segment file is extended before a sync, or None if it is not extended.

        The first sync preallocates nothing, because many segments are synced only once. When the file system rejects
        the preallocation, the next attempt follows after as many appended bytes, not with each sync.
        """
        if size <= self._end:
            return None
        known, self._end = self._end, size
        end = min(size + min(max(size, PREALLOCATED_BYTES_MIN), PREALLOCATED_BYTES_MAX), size_max)
        if known == 0 or size - known > SMALL_SYNC_BYTES or end <= size:
            return None
        self._end = end
        return end

    def record_truncation(self, size: int) -> None:
        """Record that the segment file was truncated to `size` bytes."""
        self._end = size


class ScannedBatch(NamedTuple):
    """A valid batch that a segment scan found or, with `batch` None, a damaged range up to the next valid batch."""

    position: int
    base_offset: int
    next_position: int
    next_offset: int
    batch: memoryview | None

    @property
    def header(self) -> BatchHeader:
        assert self.batch is not None
        return parse_header(self.batch)


class LogSegment:
    """A log segment: a file of batches, and its index."""

    __slots__ = (
        "_cache",
        "_index_checked",
        "_preallocation",
        "_read_positions",
        "_unindexed_bytes",
        "base_offset",
        "directory",
        "end_offset",
        "first_timestamp",
        "index",
        "log_path",
        "max_timestamp",
        "max_timestamp_offset",
        "size",
    )

    def __init__(self, cache: FileCache, directory: str, base_offset: int, *, log_name: str | None = None) -> None:
        """Create a segment without a file; the first append creates the file."""
        self.directory = directory
        self.base_offset = base_offset
        self.end_offset = base_offset
        self.size = 0
        self.log_path = f"{directory}/{log_name or names.format_offset_file_name(base_offset, names.LOG)}"
        self.index = SegmentIndex(
            cache, f"{directory}/{names.format_offset_file_name(base_offset, names.INDEX)}", base_offset, is_new=True
        )
        self.first_timestamp = NO_TIMESTAMP
        self.max_timestamp = NO_TIMESTAMP
        self.max_timestamp_offset = base_offset
        self._cache = cache
        self._unindexed_bytes = 0
        self._index_checked = True
        self._preallocation = Preallocation()
        self._read_positions: dict[int, int] = {}

    @classmethod
    def open_existing(cls, cache: FileCache, directory: str, base_offset: int, end_offset: int) -> LogSegment:
        """Open a segment whose file exists. Its index is loaded when it is first needed."""
        segment = cls(cache, directory, base_offset)
        segment.size = cache.files.size(segment.log_path)
        segment.end_offset = end_offset
        segment.index = SegmentIndex(cache, segment.index.path, base_offset, is_new=False)
        segment._index_checked = False
        return segment

    def __repr__(self) -> str:
        return f"<Segment {self.log_path} [{self.base_offset}, {self.end_offset}) {self.size} bytes>"

    @property
    def file(self) -> File:
        return self._cache.get(self.log_path) if self.size else self._cache.create(self.log_path)

    def modified_ms(self) -> int:
        return self._cache.files.modified_ms(self.log_path)

    def set_cache(self, cache: FileCache) -> None:
        """Replace the file cache, for a segment that a compaction has written through its own cache."""
        self._cache = cache
        self.index.set_cache(cache)

    # -- writing ------------------------------------------------------------------------------------------------------

    def append(self, buffer: Buffer, headers: Sequence[BatchHeader], index_interval_bytes: int) -> File:
        """Append batches to the segment file. Return the file, which the caller must sync."""
        file = self.file
        position, offset = self.size, self.end_offset
        file.pwrite(buffer, position)  # preallocated space may follow, so the file's length is not the position
        for header in headers:
            self.index_batch(position, offset, header, index_interval_bytes)
            position += header.batch_length + LENGTH_END
            offset += header.last_offset_delta + 1
        self.size, self.end_offset = position, offset
        return file

    def index_batch(self, position: int, offset: int, header: BatchHeader, index_interval_bytes: int) -> None:
        """Count a batch in the segment index: update the largest timestamp, and add an index entry if one is due."""
        if self._unindexed_bytes > index_interval_bytes:
            self.index.append(IndexEntry(offset, position, self.max_timestamp, self.max_timestamp_offset))
            self._unindexed_bytes = 0
        self._unindexed_bytes += header.batch_length + LENGTH_END
        if header.max_timestamp > self.max_timestamp and header.record_count:
            self.max_timestamp = header.max_timestamp
            self.max_timestamp_offset = offset
        if position == 0:
            self.first_timestamp = header.max_timestamp

    def seal(self) -> None:
        """Complete the index of a segment to which no more batches will be appended."""
        self.index.append(IndexEntry(self.end_offset, self.size, self.max_timestamp, self.max_timestamp_offset))
        self.index.flush()
        self._read_positions.clear()

    def preallocate(self, size_max: int) -> File | None:
        """Preallocate file space before a sync of the active segment. Return the file if its length has changed."""
        end = self._preallocation.next_length(self.size, size_max)
        if end is None:
            return None
        file = self.file
        file.preallocate(end)
        return file

    def trim(self) -> File | None:
        """Truncate preallocated space at the end of the segment file. Return the file if it must be synced."""
        if not self._preallocation.extends_beyond(self.size):
            return None
        file = self.file
        file.truncate(self.size)
        self._preallocation.record_truncation(self.size)
        return file

    def truncate(self, position: int, offset: int, epochs: LeaderEpochHistory, index_interval_bytes: int) -> File:
        """Truncate the file at `position`, the start of the batch at `offset`.

        Return the file, which has to be synced.
        """
        file = self.file
        file.truncate(position)
        self.size, self.end_offset = position, offset
        self._preallocation.record_truncation(position)
        self._read_positions.clear()
        self.reindex_tail(offset, epochs, index_interval_bytes)
        return file

    # -- reading ------------------------------------------------------------------------------------------------------

    def read(
        self, offset: int, max_bytes: int, up_to_offset: int, epochs: LeaderEpochHistory, *, min_one_batch: bool
    ) -> memoryview:
        """Return complete batches, starting with the batch that contains `offset`.

        Damage after the first batch ends the read.

        Raises:
            CorruptRecords: The batch that contains `offset` is damaged.
        """
        position, at = self.find_indexed_batch(offset, epochs)
        ahead = 0 if at == offset else READ_AHEAD_BYTES
        view = self.read_bytes(position, max_bytes + ahead)
        local, start = 0, -1
        epoch, epoch_end = epochs.find_epoch_at(at)
        while at < up_to_offset:
            if at >= epoch_end:
                epoch, epoch_end = epochs.find_epoch_at(at)
            batch = validate_batch(view, local, at, epoch)
            if batch is None:
                if start >= 0:
                    break  # the rest is incomplete or damaged: the next read will find out
                view, position, local = view[local:], position + local, 0
                whole = self._extend_view(view, position)
                if whole is not None:
                    view = whole
                    continue
                position, at = find_valid_batch_after(self, position, at, epochs, self.end_offset)
                if at > offset:
                    raise CorruptRecords(f"the batch at offset {offset} in {self.log_path} is damaged")
                view = self.read_bytes(position, max_bytes + READ_AHEAD_BYTES)
                epoch, epoch_end = epochs.find_epoch_at(at)
                continue
            size, next_offset = batch
            if next_offset > up_to_offset:
                break
            if next_offset > offset:
                if start < 0:
                    start = local
                    if size > max_bytes and not min_one_batch:
                        break
                elif local + size - start > max_bytes:
                    break
            local += size
            at = next_offset
        if start < 0:
            return memoryview(b"")
        self._cache_read_position(at, position + local)
        return view[start:local]

    def scan(
        self, position: int, offset: int, epochs: LeaderEpochHistory, end_offset: int | None = None
    ) -> Iterator[ScannedBatch]:
        """Read the segment from `position`, the start of the batch at `offset`, and yield batches and damaged ranges.

        `end_offset`, the known end of the valid batches, helps to find the next valid batch after damage.
        """
        view = memoryview(b"")
        local = 0
        while position < self.size:
            if local >= len(view):
                view, local = self.read_bytes(position, SCAN_CHUNK_BYTES), 0
            batch = validate_batch(view, local, offset, epochs.find_epoch_at(offset)[0])
            if batch is not None:
                size, next_offset = batch
                yield ScannedBatch(position, offset, position + size, next_offset, view[local : local + size])
                local += size
                position, offset = position + size, next_offset
                continue
            if local and position + len(view) - local < self.size:
                view, local = self.read_bytes(position, SCAN_CHUNK_BYTES), 0
                continue
            whole = self._extend_view(view[local:], position)
            if whole is not None:
                view, local = whole, 0
                continue
            end = self.end_offset if end_offset is None else end_offset
            good = find_valid_batch_after(self, position, offset, epochs, end)
            yield ScannedBatch(position, offset, *good, None)
            (position, offset), view, local = good, memoryview(b""), 0

    def scan_from_offset(self, offset: int, epochs: LeaderEpochHistory) -> Iterator[ScannedBatch]:
        """Scan the segment's batches, starting with an indexed batch at or before `offset`."""
        return self.scan(*self.find_indexed_batch(offset, epochs), epochs)

    def scan_from_timestamp(self, timestamp: int, epochs: LeaderEpochHistory) -> Iterator[ScannedBatch]:
        """Scan the segment's batches, starting where all earlier batches are older than `timestamp`."""
        entry = self._find_entry(lambda: self.index.find_entry_by_timestamp(timestamp), epochs)
        return self.scan(*(entry[1], entry[0]) if entry else (0, self.base_offset), epochs)

    def find_indexed_offset_before(self, position: int, epochs: LeaderEpochHistory) -> int:
        """Return the offset of the last batch in the index that is at or before `position` in the file."""
        entry = self._find_entry(lambda: self.index.find_entry_by_position(position), epochs)
        return self.base_offset if entry is None else entry.offset

    def find_batch(self, offset: int, epochs: LeaderEpochHistory) -> tuple[int, int]:
        """Return (position, base offset) of the batch that contains `offset`, or the end of the segment."""
        for piece in self.scan_from_offset(offset, epochs):
            is_rest = piece.batch is None and piece.base_offset >= offset  # an incomplete batch
            if piece.next_offset > offset or is_rest:
                return piece.position, piece.base_offset
        return self.size, self.end_offset

    # -- the index ----------------------------------------------------------------------------------------------------

    def ensure_index(self, epochs: LeaderEpochHistory) -> None:
        """Load the segment's largest timestamp from its index. Rebuild the index if it is incomplete."""
        if self._index_checked:
            return
        try:
            seal = self.index.last_entry()
        except CorruptIndexError:
            seal = None
        if seal is None or (seal.offset, seal.position) != (self.end_offset, self.size):
            self.rebuild_index(epochs)
            return
        self.max_timestamp, self.max_timestamp_offset = seal.max_timestamp, seal.max_timestamp_offset
        self._index_checked = True

    def rebuild_index(self, epochs: LeaderEpochHistory, index_interval_bytes: int = 4096) -> None:
        """Rebuild the index of a closed segment from the segment file."""
        self._index_checked = True
        self._reset_index(0)
        for piece in self.scan(0, self.base_offset, epochs):
            if piece.batch is not None:
                self.index_batch(piece.position, piece.base_offset, piece.header, index_interval_bytes)
        self.seal()

    def reindex_tail(self, offset: int, epochs: LeaderEpochHistory, index_interval_bytes: int) -> None:
        """Truncate the index of the active segment at `offset`, and index the batches after its last entry again."""
        position, at = self.truncate_index(offset, epochs)
        for piece in self.scan(position, at, epochs, self.end_offset):
            if piece.batch is not None:
                self.index_batch(piece.position, piece.base_offset, piece.header, index_interval_bytes)

    def truncate_index(self, offset: int, epochs: LeaderEpochHistory) -> tuple[int, int]:
        """Remove index entries at or after `offset`. Return (position, offset) of the last valid batch in the index."""
        self._index_checked = True
        number, entry = self._find_last_valid_entry(offset - 1, epochs)
        self._reset_index(number + 1)
        if entry is None:
            return 0, self.base_offset
        self.first_timestamp = _TIMESTAMP.unpack_from(self.read_bytes(0, HEADER_BYTES), MAX_TIMESTAMP_POSITION)[0]
        self.max_timestamp, self.max_timestamp_offset = entry.max_timestamp, entry.max_timestamp_offset
        return entry.position, entry.offset

    def _find_last_valid_entry(self, offset: int, epochs: LeaderEpochHistory) -> tuple[int, IndexEntry | None]:
        """Return the last index entry up to `offset` whose batch is valid, and its number; (-1, None) if none."""
        try:
            number = self.index.find_entry_by_offset(offset)
            while number >= 0:
                entry = self.index.entry(number)
                view = self.read_batch_bytes(entry.position)
                if validate_batch(view, 0, entry.offset, epochs.find_epoch_at(entry.offset)[0]) is not None:
                    return number, entry
                number -= 1
        except CorruptIndexError:
            pass
        return -1, None

    def _reset_index(self, entries_kept: int) -> None:
        self.index.truncate_to_entries(entries_kept)
        self._unindexed_bytes = 0
        self.max_timestamp, self.max_timestamp_offset = NO_TIMESTAMP, self.base_offset

    def find_indexed_batch(self, offset: int, epochs: LeaderEpochHistory) -> tuple[int, int]:
        """Return (position, offset) of a batch in the index that is at or before `offset`."""
        position = self._read_positions.get(offset)
        if position is not None:
            return position, offset
        entry = self._find_entry(lambda: self.index.find_entry_by_offset(offset), epochs)
        return (entry.position, entry.offset) if entry is not None else (0, self.base_offset)

    def _find_entry(self, find: Callable[[], int], epochs: LeaderEpochHistory) -> IndexEntry | None:
        self.ensure_index(epochs)
        try:
            number = find()
            return self.index.entry(number) if number >= 0 else None
        except CorruptIndexError:
            self.rebuild_index(epochs)
            number = find()
            return self.index.entry(number) if number >= 0 else None

    def _cache_read_position(self, offset: int, position: int) -> None:
        if len(self._read_positions) >= READ_POSITIONS_MAX:
            self._read_positions.clear()
        self._read_positions[offset] = position

    # -- bytes --------------------------------------------------------------------------------------------------------

    def read_bytes(self, position: int, size: int) -> memoryview:
        """Return up to `size` bytes of the segment, starting at `position`."""
        return memoryview(self.file.pread(max(0, min(size, self.size - position)), position))

    def _extend_view(self, view: memoryview, position: int) -> memoryview | None:
        """Return a longer view of the data at `position` if the batch there is longer than `view`, otherwise None."""
        left = self.size - position
        size = max(read_declared_batch_size(view, 0), min(READ_AHEAD_BYTES, left))
        if len(view) < size <= min(left, FRAME_BYTES_MAX):
            longer = self.read_bytes(position, size)
            return longer if len(longer) > len(view) else None  # the file may have been truncated externally
        return None

    def read_batch_bytes(self, position: int) -> memoryview:
        """Return the bytes from `position`, at least the declared size of the batch unless the file is shorter."""
        view = self.read_bytes(position, READ_AHEAD_BYTES)
        return self._extend_view(view, position) or view
