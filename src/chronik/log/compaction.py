"""Compaction: only the last record of each key stays.

A `Compaction` is planned by the thread that owns the log and then touches nothing of it: it reads closed segments
through files of its own and writes new ones beside them, so `steps` may be run in slices on an event loop (a step
handles one batch) or `run` in a thread. The owner then exchanges the segments (`PartitionLog.complete_compaction`).

Only what is below the last stable offset is compacted. Records of aborted transactions go. A marker goes once a round
has met no batch of its transaction any more, and `delete.retention.ms` have passed since then.

Where whole batches disappear, an empty one (as Kafka also leaves behind) covers their offsets: batches of a segment
always continue each other, so that a damaged base offset is noticed in compacted logs too, and a reader gets on.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence

import msgspec

from chronik.files import FileCache, FileSystem
from chronik.log.aborted import Aborted
from chronik.log.cleaned import Cleaned, CleanedSegment
from chronik.log.config import LogConfig
from chronik.log.epochs import EpochHistory
from chronik.log.files import names
from chronik.log.leftovers import Leftovers
from chronik.log.producers import ProducerStates
from chronik.log.segment import Piece, Segment
from chronik.protocol.batch import BatchHeader
from chronik.protocol.budget import Budget
from chronik.protocol.control_records import marker_within
from chronik.protocol.rewrite import retain, with_delete_horizon
from chronik.protocol.skim import NO_KEY, open_within, skim
from chronik.protocol.varint import INT32_MAX

# Longer keys are remembered by a 128-bit digest, as Kafka does with all of them.
KEY_BYTES_MAX = 16

# What a remembered key costs in memory: the bytes object, its place in the dict, and the offset.
KEY_COST_BYTES = 200

# Files of its own that a compaction has open at a time: one that is read, one that is written, and their indexes.
OPEN_FILES_MAX = 4


class Compaction(msgspec.Struct, eq=False):
    files: FileSystem
    folder: str
    config: LogConfig
    epochs: EpochHistory
    producer_ends: dict[int, int]
    """The last offset of each producer: its batch stays, if need be empty, so that its sequence is not forgotten."""
    marker_epochs: dict[int, int]
    """The epoch of each producer that has written nothing in it: the marker that began the epoch stays."""
    aborted: Aborted
    markers_end: int
    """Only markers below this offset may go. It is known durably that the log is compacted up to here: a snapshot of
    producers in which a transaction is open is not used if the marker that ends it may be gone."""
    clean: list[Segment]
    dirty: list[Segment]
    now_ms: int
    truncations: int
    compacted_offset: int
    """All below this offset is compacted: before the run as things are, afterwards once the segments are exchanged."""
    _cache: FileCache
    _leftovers: Leftovers
    _tombstones_end: int
    """Tombstones below this offset have done their work: a durable round has removed all that they delete. Those above
    stay even if their time is over, or a power cut could take them and leave the records."""
    results: list[Cleaned] = msgspec.field(default_factory=list)
    cleaned_end: int = 0
    aborted_left: Aborted | None = None
    """The aborted transactions that ended below `cleaned_end`, without those of which nothing is left. None when the
    log is damaged, so that not all of it was seen."""
    _last_offsets: dict[bytes, int] = msgspec.field(default_factory=dict)
    _is_damaged: bool = False

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
            self._leftovers = Leftovers(self.aborted, sources[0].base_offset)
            for group in self._groups(sources):
                yield from self._clean_group(group)
            self.cleaned_end = sources[-1].end_offset
            if not self._is_damaged:
                self.aborted_left = self._leftovers.aborted_before(self.cleaned_end)
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
            if piece.batch is not None and not piece.header.is_control and not self._is_aborted(piece.header):
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

    def _is_aborted(self, header: BatchHeader) -> bool:
        return header.is_transactional and self._leftovers.is_aborted(header)

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
        output = CleanedSegment(self._cache, self.folder, group[0].base_offset, self.epochs, self.config)
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
        self._is_damaged = True
        self._tombstones_end = min(self._tombstones_end, damaged[0].base_offset)
        self.markers_end = min(self.markers_end, damaged[0].base_offset)

    def _clean_batch(self, piece: Piece) -> memoryview | bytes | None:
        """Returns the same object when nothing changes, as after the end of the map."""
        assert piece.batch is not None
        header = piece.header
        if header.is_control:
            return self._clean_control(piece.batch, header)
        is_aborted = self._is_aborted(header)
        if header.base_offset >= self.compacted_offset:
            return piece.batch
        horizon = header.delete_horizon_ms
        expired_end = self._tombstones_end if horizon is not None and self.now_ms > horizon else 0

        def keep(offset: int, key: memoryview | None, is_tombstone: bool) -> bool:
            if offset >= self.compacted_offset:
                return True
            if is_aborted:
                return False
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

    def _clean_control(self, batch: memoryview, header: BatchHeader) -> memoryview | bytes | None:
        if marker_within(batch) is None or not self._leftovers.is_last(header):
            return batch
        if header.base_offset >= self.compacted_offset:
            return batch
        if self.marker_epochs.get(header.producer_id) == header.producer_epoch:
            return batch
        horizon = header.delete_horizon_ms
        if horizon is None:
            return with_delete_horizon(batch, 0, self.now_ms + self.config.delete_retention_ms)
        return None if self.now_ms > horizon and header.base_offset < self.markers_end else batch

    def _walk(self, segment: Segment) -> Iterator[Piece]:
        own = Segment.existing(self._cache, self.folder, segment.base_offset, segment.end_offset)
        return own.walk(0, own.base_offset, self.epochs)


def plan_compaction(
    files: FileSystem,
    folder: str,
    config: LogConfig,
    epochs: EpochHistory,
    producers: ProducerStates,
    segments: Sequence[Segment],
    dirty_offset: int,
    markers_end: int,
    now_ms: int,
    truncations: int,
) -> Compaction | None:
    """Returns None when it is not worthwhile yet. `segments` are the closed ones below the last stable offset."""
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
    ends, marker_epochs = {}, {}
    for producer_id, producer in producers.items():
        if producer.batches:
            ends[producer_id] = producer.batches[-1].last_offset
        else:
            marker_epochs[producer_id] = producer.epoch
    aborted = producers.transactions.aborted.copy()
    return Compaction(
        files,
        folder,
        config,
        epochs.copy(),
        ends,
        marker_epochs,
        aborted,
        markers_end,
        clean,
        dirty,
        now_ms,
        truncations,
        dirty_offset,
        FileCache(files, OPEN_FILES_MAX),
        Leftovers(aborted, dirty_offset),
        dirty_offset,
    )


def _short(key: memoryview) -> bytes:
    return bytes(key) if len(key) < KEY_BYTES_MAX else hashlib.blake2b(key, digest_size=KEY_BYTES_MAX).digest()
