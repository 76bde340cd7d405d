"""Compaction: only the last record of each key stays.

A `Compaction` is planned by the thread that owns the log and then touches nothing of it: it reads closed segments
through files of its own and writes new ones beside them, so `steps` may be run in slices on an event loop (a step
handles one batch) or `run` in a thread. The owner then exchanges the segments (`PartitionLog.complete_compaction`).

Where whole batches disappear, an empty one (as Kafka also leaves behind) covers their offsets: batches of a segment
always continue each other, so that a damaged base offset is noticed in compacted logs too, and a reader gets on.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from chronik.files import FileCache, FileSystem
from chronik.log.config import LogConfig
from chronik.log.epochs import EpochHistory
from chronik.log.files import names
from chronik.log.files.index import SegmentIndex
from chronik.log.producers import ProducerStates
from chronik.log.segment import NO_TIMESTAMP, Piece, Segment
from chronik.protocol.batch import (
    MAGIC,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    BatchHeader,
    parse_header,
    seal,
)
from chronik.protocol.budget import Budget
from chronik.protocol.rewrite import retain
from chronik.protocol.skim import NO_KEY, open_within, skim
from chronik.protocol.varint import INT32_MAX

# Cleaned batches are written in pieces of this size.
WRITE_BYTES = 1 << 20

# Longer keys are remembered by a 128-bit digest, as Kafka does with all of them.
KEY_BYTES_MAX = 16

# What a remembered key costs in memory: the bytes object, its place in the dict, and the offset.
KEY_COST_BYTES = 200

# Files of its own that a compaction has open at a time: one that is read, one that is written, and their indexes.
OPEN_FILES_MAX = 4


@dataclass(slots=True)
class Cleaned:
    """Segments, and the one that will take their place."""

    sources: list[Segment]
    segment: Segment


@dataclass(slots=True, eq=False)
class Compaction:
    files: FileSystem
    folder: str
    config: LogConfig
    epochs: EpochHistory
    producer_ends: dict[int, int]
    """The last offset of each producer: its batch stays, if need be empty, so that its sequence is not forgotten."""
    clean: list[Segment]
    dirty: list[Segment]
    now_ms: int
    truncations: int
    compacted_offset: int
    """All below this offset is compacted: before the run as things are, afterwards once the segments are exchanged."""
    results: list[Cleaned] = field(default_factory=list)
    _last_offsets: dict[bytes, int] = field(default_factory=dict)
    _cache: FileCache = field(init=False)
    _tombstones_end: int = field(init=False)
    """Tombstones below this offset have done their work: a durable round has removed all that they delete. Those above
    stay even if their time is over, or a power cut could take them and leave the records."""

    def __post_init__(self) -> None:
        self._cache = FileCache(self.files, OPEN_FILES_MAX)
        self._tombstones_end = self.compacted_offset

    def discard(self) -> None:
        """Removes what was written and not exchanged."""
        for cleaned in self.results:
            for path in (cleaned.segment.log_path, cleaned.segment.index.path):
                if path.endswith(names.CLEANED):
                    self.files.remove(path)

    def run(self) -> None:
        for _ in self.steps():
            pass

    def steps(self) -> Iterator[None]:
        """Handles one batch per step. Raises StorageFailed; FileNotFoundError when a segment was deleted meanwhile."""
        try:
            sources = list(self.clean)
            for segment in self.dirty:
                sources.append(segment)
                yield from self._map_keys(segment)
                if self._is_map_full:
                    break
            for group in self._groups(sources):
                yield from self._clean_group(group)
        finally:
            self._cache.close()

    # -- the map ------------------------------------------------------------------------------------------------------

    @property
    def _keys_max(self) -> int:
        return self.config.compaction_keys_bytes_max // KEY_COST_BYTES + 1

    @property
    def _is_map_full(self) -> bool:
        return len(self._last_offsets) >= self._keys_max

    def _map_keys(self, segment: Segment) -> Iterator[None]:
        """Stops in the middle when the map is full: later records are newer than all in the map, so they stay."""
        for piece in self._walk(segment):
            if piece.next_offset <= self.compacted_offset:
                continue
            if piece.batch is not None and not piece.header.is_control:
                self._map_batch(piece.batch)
            if self._is_map_full:
                return
            self.compacted_offset = piece.next_offset
            yield

    def _map_batch(self, batch: memoryview) -> None:
        """May stop inside a batch, too, which may hold millions of keys."""
        header, body = open_within(batch, 0, Budget.for_stored(len(batch)))
        view, last_offsets, keys_max = memoryview(body), self._last_offsets, self._keys_max
        for offset, _, key_start, key_length, _, _, _ in skim(header, body):
            if key_length != NO_KEY and offset >= self.compacted_offset:
                last_offsets[_short(view[key_start : key_start + key_length])] = offset
                if len(last_offsets) >= keys_max:
                    self.compacted_offset = offset + 1
                    return

    def _is_latest(self, offset: int, key: memoryview | None) -> bool:
        return key is not None and offset >= self._last_offsets.get(_short(key), -1)

    # -- cleaning -----------------------------------------------------------------------------------------------------

    def _groups(self, segments: Sequence[Segment]) -> Iterator[list[Segment]]:
        """Yields neighbours that fit into one segment together."""
        group: list[Segment] = []
        for segment in segments:
            size = sum(member.size for member in group)
            if group and (
                size + segment.size > self.config.segment_bytes
                or segment.end_offset - group[0].base_offset > INT32_MAX
                or segment.base_offset != group[-1].end_offset
            ):
                yield group
                group = []
            group.append(segment)
        if group:
            yield group

    def _clean_group(self, group: list[Segment]) -> Iterator[None]:
        output = _Output(self._cache, self.folder, group[0].base_offset, self.epochs, self.config)
        changed = len(group) > 1
        for segment in group:
            for piece in self._walk(segment):
                if piece.batch is None:
                    self._leave(group)
                    output.discard()
                    return
                kept = self._clean_batch(piece)
                output.add(piece, kept)
                changed = changed or kept is not piece.batch
                yield
        if changed:
            self.results.append(Cleaned(group, output.finish(group[-1].end_offset)))
        else:
            output.discard()

    def _leave(self, damaged: list[Segment]) -> None:
        """Leaves damaged segments as they are, and also whatever deletes records that may be in them: damaged records
        are not for us to drop."""
        self._tombstones_end = min(self._tombstones_end, damaged[0].base_offset)

    def _clean_batch(self, piece: Piece) -> memoryview | bytes | None:
        """Returns the same object when nothing changes, as after the end of the map."""
        assert piece.batch is not None
        header = piece.header
        if header.is_control or header.base_offset >= self.compacted_offset:
            return piece.batch
        horizon = header.delete_horizon_ms
        expired_end = self._tombstones_end if horizon is not None and self.now_ms > horizon else 0

        def keep(offset: int, key: memoryview | None, is_tombstone: bool) -> bool:
            if offset >= self.compacted_offset:
                return True
            return self._is_latest(offset, key) and not (is_tombstone and offset < expired_end)

        kept = retain(
            piece.batch,
            0,
            keep,
            Budget.for_stored(len(piece.batch)),
            keep_empty=self.producer_ends.get(header.producer_id) == header.last_offset,
            delete_horizon_ms=self.now_ms + self.config.delete_retention_ms,
        )
        assert not isinstance(kept, bytearray)
        return kept

    def _walk(self, segment: Segment) -> Iterator[Piece]:
        own = Segment.existing(self._cache, self.folder, segment.base_offset, segment.end_offset)
        return own.walk(0, own.base_offset, self.epochs)


class _Output:
    """The segment that is being written, under a name that recovery throws away."""

    def __init__(
        self, cache: FileCache, folder: str, base_offset: int, epochs: EpochHistory, config: LogConfig
    ) -> None:
        log_name = names.offset_name(base_offset, names.LOG)
        self._cache = cache
        self._epochs = epochs
        self._interval = config.index_interval_bytes
        self._segment = Segment(cache, folder, base_offset, log_name=log_name + names.CLEANED)
        self._segment.index = SegmentIndex(cache, self._segment.index.path + names.CLEANED, base_offset, is_new=True)
        self._buffer = bytearray()
        self._headers: list[BatchHeader] = []
        self._next_offset = base_offset
        self._remove_files()

    def add(self, piece: Piece, kept: memoryview | bytes | None) -> None:
        if kept is None:
            return
        if piece.base_offset > self._next_offset:
            self._cover(piece.base_offset)
        self._put(kept)

    def finish(self, end_offset: int) -> Segment:
        """Returns the segment, durable except for its name."""
        if end_offset > self._next_offset:
            self._cover(end_offset)
        self._flush()
        self._segment.seal()
        self._segment.file.fdatasync()
        self._forget()
        return self._segment

    def discard(self) -> None:
        self._forget()
        self._remove_files()

    def _cover(self, end_offset: int) -> None:
        """Adds empty batches for the offsets up to `end_offset`, of which no record is left: one for each leader epoch.
        A follower's log may end at any batch, and its leader has to know of the epoch of that batch."""
        while self._next_offset < end_offset:
            epoch, epoch_end = self._epochs.range_at(self._next_offset)
            self._put(seal(_empty_header(self._next_offset, min(end_offset, epoch_end), epoch), b""))

    def _put(self, batch: memoryview | bytes) -> None:
        header = parse_header(batch)
        self._buffer += batch
        self._headers.append(header)
        self._next_offset = header.next_offset
        if len(self._buffer) >= WRITE_BYTES:
            self._flush()

    def _flush(self) -> None:
        if self._headers:
            self._segment.append(self._buffer, self._headers, self._interval)
            self._buffer, self._headers = bytearray(), []

    def _forget(self) -> None:
        self._cache.forget(self._segment.log_path)
        self._cache.forget(self._segment.index.path)

    def _remove_files(self) -> None:
        self._cache.files.remove(self._segment.log_path)
        self._cache.files.remove(self._segment.index.path)


def plan_compaction(
    files: FileSystem,
    folder: str,
    config: LogConfig,
    epochs: EpochHistory,
    producers: ProducerStates,
    segments: Sequence[Segment],
    dirty_offset: int,
    now_ms: int,
    truncations: int,
) -> Compaction | None:
    """`segments` are the closed ones below the high watermark. Returns None when compaction is not worthwhile yet."""
    cleanable: list[Segment] = []
    for segment in segments:
        segment.check_index(epochs)
        if segment.max_timestamp > now_ms - config.min_compaction_lag_ms and config.min_compaction_lag_ms > 0:
            break
        cleanable.append(segment)
    clean = [segment for segment in cleanable if segment.end_offset <= dirty_offset]
    dirty = cleanable[len(clean) :]
    if not dirty:
        return None
    dirty_bytes = sum(segment.size for segment in dirty)
    total_bytes = dirty_bytes + sum(segment.size for segment in clean)
    is_overdue = 0 <= dirty[0].max_timestamp < now_ms - config.max_compaction_lag_ms
    if dirty_bytes < config.min_cleanable_dirty_ratio * total_bytes and not is_overdue:
        return None
    ends = {
        producer_id: producer.batches[-1].last_offset for producer_id, producer in producers.items() if producer.batches
    }
    return Compaction(files, folder, config, epochs.copy(), ends, clean, dirty, now_ms, truncations, dirty_offset)


def _short(key: memoryview) -> bytes:
    return bytes(key) if len(key) < KEY_BYTES_MAX else hashlib.blake2b(key, digest_size=KEY_BYTES_MAX).digest()


def _empty_header(base_offset: int, end_offset: int, epoch: int) -> BatchHeader:
    return BatchHeader(
        base_offset=base_offset,
        batch_length=0,
        partition_leader_epoch=epoch,
        magic=MAGIC,
        crc=0,
        attributes=0,
        last_offset_delta=end_offset - base_offset - 1,
        base_timestamp=NO_TIMESTAMP,
        max_timestamp=NO_TIMESTAMP,
        producer_id=NO_PRODUCER_ID,
        producer_epoch=NO_PRODUCER_EPOCH,
        base_sequence=NO_SEQUENCE,
        record_count=0,
    )
