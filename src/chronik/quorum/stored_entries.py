"""The durable log entries: their records on disk, and how the core reads them.

The log on disk is append-only. An entry replaces all earlier records at its index and after it, so a conflict needs no
truncation. The hard state is a record among the entries and becomes durable with the same sync.

`StoredEntries` reads recent entries from memory and older ones from files. It is used on the event loop only. After
each write, the log thread reports the positions of the new entries. Until then this view shows the previous state, as
the core expects.
"""

from __future__ import annotations

import struct
from array import array
from bisect import bisect_right
from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec

from chronik.errors import DamagedDataError, check_invariant
from chronik.files import FileSystem
from chronik.raft.entries import EntryKind, HardState, RaftEntry, SnapshotMetadata
from chronik.wal.log import build_segment_path
from chronik.wal.records import HEADER_BYTES, decode_record_at, encode_record

ENTRY_TAG: Final = 1
HARD_STATE_TAG: Final = 2
_ENTRY: Final = struct.Struct(">BQQB")
_HARD_STATE: Final = struct.Struct(">BQqQ")

MANIFEST_FORMAT: Final = 1

_encoder: Final = msgspec.msgpack.Encoder()

CACHE_BYTES: Final = 8 * 1024 * 1024
"""The size of the cache of recent Raft entries in bytes, twice the replication window."""

READ_BYTES_MAX: Final = 256 * 1024
"""The maximum number of bytes per read of stored entries, which may block the event loop for 3 ms."""

_POSITION_BITS: Final = 40


class RaftManifest(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The manifest of the Raft storage: where the log starts, and which snapshot precedes it.

    The manifest is replaced atomically. This is the commit point of a snapshot installation and of a log compaction.
    """

    format: int = MANIFEST_FORMAT
    obsolete_record: int = 0
    """The number of the last record in the write-ahead log that is no longer needed (not a Raft index)."""
    compacted_index: int = 0
    compacted_term: int = 0
    hard_state: HardState = HardState()
    """The hard state (term, vote and commit index) as of `obsolete_record`, unless a later record overrides it."""
    snapshot: SnapshotMetadata = SnapshotMetadata()


def encode_entry(entry: RaftEntry) -> bytes:
    return _ENTRY.pack(ENTRY_TAG, entry.index, entry.term, entry.kind) + entry.data


def encode_hard_state(state: HardState) -> bytes:
    return _HARD_STATE.pack(HARD_STATE_TAG, state.term, state.vote, state.commit)


def decode_record(payload: memoryview) -> RaftEntry | HardState:
    """Decode a record of the write-ahead log as a Raft entry or hard state. Raise DamagedDataError if it is invalid."""
    try:
        if payload[0] == ENTRY_TAG:
            _, index, term, kind = _ENTRY.unpack_from(payload)
            return RaftEntry(index, term, EntryKind(kind), bytes(payload[_ENTRY.size :]))
        if payload[0] == HARD_STATE_TAG:
            _, term, vote, commit = _HARD_STATE.unpack(payload)
            return HardState(term, vote, commit)
    except (IndexError, ValueError, struct.error) as error:
        raise DamagedDataError(f"Raft log: malformed record: {error}") from error
    raise DamagedDataError(f"Raft log: unknown record type {payload[0]}; it may be from a newer version")


_decoder: Final = msgspec.msgpack.Decoder(RaftManifest)


def encode_manifest(manifest: RaftManifest) -> bytes:
    return encode_record(1, 0, _encoder.encode(manifest))


def decode_manifest(data: bytes) -> RaftManifest:
    """Decode the Raft manifest. Raise DamagedDataError if it is damaged or has an unknown format."""
    record = decode_record_at(memoryview(data), 0)
    if record is None or HEADER_BYTES + len(record.payload) != len(data):
        raise DamagedDataError("Raft log: manifest is damaged (checksum mismatch)")
    try:
        manifest = _decoder.decode(record.payload)
    except msgspec.DecodeError as error:
        raise DamagedDataError(f"Raft log: manifest cannot be decoded: {error}") from error
    if manifest.format != MANIFEST_FORMAT:
        raise DamagedDataError(f"Raft log: format {manifest.format} is not supported (supported: {MANIFEST_FORMAT})")
    return manifest


class EntryPositions(NamedTuple):
    """The positions of consecutive Raft entries in a segment of the write-ahead log, and their sizes."""

    segment: int
    positions: Sequence[int]
    sizes: Sequence[int]


class StoredEntries:
    """The durable entries of the Raft log: their positions on disk, and a cache of the newest entries."""

    def __init__(self, files: FileSystem, directory: str, floor_index: int, cache_bytes: int = CACHE_BYTES) -> None:
        self._files = files
        self._directory = directory
        self._compacted_index = floor_index
        self._packed_positions: array[int] = array("Q")
        """The segment number and offset of each entry, packed into one integer that increases with the index."""
        self._sizes: array[int] = array("I")
        self._segments: list[int] = []
        self._cache: list[RaftEntry] = []
        self._cache_bytes = 0
        self._cache_bytes_max = cache_bytes

    @property
    def compacted_index(self) -> int:
        return self._compacted_index

    @property
    def last_index(self) -> int:
        return self._compacted_index + len(self._packed_positions)

    # -------------------------------------------------------------------------------------------------------- queries

    def entries(self, first: int, end: int, bytes_max: int) -> Sequence[RaftEntry]:
        """Return the entries from index `first` to `end` - 1. A file read may return fewer entries."""
        check_invariant(
            self._compacted_index < first < end <= self.last_index + 1,
            f"Raft log: entries {first} to {end} are not stored",
        )
        cached_from = self.last_index + 1 - len(self._cache)
        if first < cached_from:
            return self._read(first, min(end, cached_from), min(bytes_max, READ_BYTES_MAX))
        size = 0
        start_position = first - cached_from
        for position in range(start_position, end - cached_from):
            size += self._cache[position].size_bytes
            if size > bytes_max and position > start_position:
                return self._cache[start_position:position]
        return self._cache[start_position : end - cached_from]

    def find_segment_containing(self, index: int) -> int:
        """Return the number of the first record in the segment that contains the entry at `index`."""
        return self._segments[self._packed_positions[index - self._compacted_index - 1] >> _POSITION_BITS]

    def find_compaction_index(self, index: int, bytes_max: int) -> int:
        """Return the index up to which the log may be compacted, keeping at most `bytes_max` before `index`."""
        size = 0
        while index > self._compacted_index:
            size += self._sizes[index - self._compacted_index - 1]
            if size > bytes_max:
                break
            index -= 1
        return index

    # -------------------------------------------------------------------------------------------------------- changes

    def append(self, entries: Sequence[RaftEntry], placement: EntryPositions) -> None:
        """Append entries, after removing all stored entries from the first one's index on."""
        first = entries[0].index
        check_invariant(
            self._compacted_index < first <= self.last_index + 1, f"Raft log: gap between {self.last_index} and {first}"
        )
        self.truncate_after(first - 1)
        self._add_positions(placement)
        self._cache.extend(entries)
        self._cache_bytes += sum(entry.size_bytes for entry in entries)
        self._shrink_cache()

    def recover(self, index: int, placement: EntryPositions) -> None:
        """Record the position of an entry found on disk at startup, without adding it to the cache."""
        self.truncate_after(index - 1)
        self._add_positions(placement)

    def truncate_after(self, index: int) -> None:
        removed = self.last_index - index
        if removed <= 0:
            return
        del self._packed_positions[-removed:]
        del self._sizes[-removed:]
        self._cache_bytes -= sum(entry.size_bytes for entry in self._cache[-removed:])
        del self._cache[-removed:]

    def compact_through(self, index: int) -> None:
        removed = index - self._compacted_index
        del self._packed_positions[:removed]
        del self._sizes[:removed]
        self._compacted_index = index
        if len(self._cache) > len(self._packed_positions):
            self._drop_cached_entries(len(self._cache) - len(self._packed_positions))

    def reset(self, floor_index: int) -> None:
        """Remove all entries, because a snapshot has replaced the log."""
        self.truncate_after(self._compacted_index)
        self._compacted_index = floor_index

    # ------------------------------------------------------------------------------------------------------- internals

    def _add_positions(self, placement: EntryPositions) -> None:
        if not self._segments or self._segments[-1] != placement.segment:
            self._segments.append(placement.segment)
        base = (len(self._segments) - 1) << _POSITION_BITS
        self._packed_positions.extend(base | position for position in placement.positions)
        self._sizes.extend(placement.sizes)

    def _shrink_cache(self) -> None:
        """Drop the oldest entries from the cache when it exceeds its maximum size by an eighth.

        Deleting from the start of a list takes time proportional to its length, so it is not done for each append.
        """
        limit = self._cache_bytes_max
        if self._cache_bytes <= limit + limit // 8:
            return
        count = 0
        size = self._cache_bytes
        while size > limit and count < len(self._cache) - 1:
            size -= self._cache[count].size_bytes
            count += 1
        self._drop_cached_entries(count)

    def _drop_cached_entries(self, count: int) -> None:
        self._cache_bytes -= sum(entry.size_bytes for entry in self._cache[:count])
        del self._cache[:count]

    def _read(self, first: int, end: int, bytes_max: int) -> list[RaftEntry]:
        """Read stored entries from one segment with a single file read."""
        start_position = first - self._compacted_index - 1
        ordinal = self._packed_positions[start_position] >> _POSITION_BITS
        start = self._packed_positions[start_position]
        limit = min(start + bytes_max, (ordinal + 1) << _POSITION_BITS)
        stop = min(end - self._compacted_index - 1, bisect_right(self._packed_positions, limit, start_position))
        while stop - start_position > 1 and self._packed_positions[stop - 1] + self._sizes[stop - 1] > limit:
            stop -= 1
        path = build_segment_path(self._directory, self._segments[ordinal])
        file = self._files.open(path)
        try:
            position = start & ((1 << _POSITION_BITS) - 1)
            data = memoryview(file.pread(self._packed_positions[stop - 1] + self._sizes[stop - 1] - start, position))
        finally:
            file.close()
        return [
            self._decode_entry(path, data, first + i, self._packed_positions[start_position + i] - start)
            for i in range(stop - start_position)
        ]

    def _decode_entry(self, path: str, data: memoryview, index: int, position: int) -> RaftEntry:
        record = decode_record_at(data, position)
        entry = decode_record(record.payload) if record is not None else None
        if not isinstance(entry, RaftEntry) or entry.index != index:
            raise DamagedDataError(f"Raft log segment {path} is damaged at entry {index}")
        return entry
