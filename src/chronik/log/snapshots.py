"""What a partition knows of its producers, and the files that keep it: a start need not read the whole log for it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from chronik.clock import Clock
from chronik.files import Buffer, FileCache, read_file
from chronik.log.aborted import ROW_BYTES
from chronik.log.epochs import EpochHistory
from chronik.log.files import names
from chronik.log.producers import ProducerLimit, ProducerStates
from chronik.log.segment import Segment
from chronik.log.sync import Unsynced
from chronik.protocol.batch import BatchHeader
from chronik.protocol.control_records import marker_within

# How much log lies at most between two snapshots: an unclean start has to read it again.
SNAPSHOT_INTERVAL_BYTES = 64 << 20

# A snapshot holds all that was aborted. It is taken when so many times as much was written since the last one: what a
# partition has had of aborted transactions is not written again with each small segment.
LOG_PER_ABORTED = 2

# The newest one may be torn after a power cut, or too new after a truncation.
SNAPSHOTS_KEPT = 2


class ProducerMemory:
    __slots__ = ("_bytes_since_snapshot", "_cache", "_clock", "_folder", "_limit", "_offsets", "_unsynced", "states")

    def __init__(
        self,
        cache: FileCache,
        folder: str,
        clock: Clock,
        unsynced: Unsynced,
        present: Iterable[str],
        limit: ProducerLimit | None = None,
    ) -> None:
        self._limit = limit or ProducerLimit()
        self.states = ProducerStates(self._limit)
        self._cache = cache
        self._folder = folder
        self._clock = clock
        self._unsynced = unsynced
        self._offsets = names.offsets_of(present, names.SNAPSHOT) if present else []
        self._bytes_since_snapshot = 0

    def appended(self, buffer: Buffer, headers: Sequence[BatchHeader], offset: int, end_offset: int) -> None:
        """Notes batches that were written from `offset` on."""
        position = 0
        for header in headers:
            if header.producer_id >= 0:
                marker = marker_within(buffer, position) if header.is_control else None
                self.states.update(header, offset, self._clock.now_ms(), marker)
            position += header.size
            offset += header.last_offset_delta + 1
        self._bytes_since_snapshot += position
        if self._bytes_since_snapshot >= SNAPSHOT_INTERVAL_BYTES:
            self.snapshot_if_due(end_offset)

    def snapshot_if_due(self, offset: int) -> None:
        aborted_bytes = len(self.states.transactions.aborted) * ROW_BYTES
        if self._bytes_since_snapshot >= aborted_bytes * LOG_PER_ABORTED:
            self.snapshot(offset)

    def snapshot_from(self, offset: int, log_end_offset: int) -> None:
        """Sees to it that there is a snapshot from `offset` or later: the log before it is about to go."""
        if self._offsets and self._offsets[-1] >= offset:
            return
        self.snapshot(log_end_offset)

    def snapshot(self, offset: int) -> None:
        """Stores what is known when `offset` is due. The next sync makes it durable; a torn one is noticed."""
        if not self._bytes_since_snapshot:
            return
        file = self._cache.create(self._path(offset))
        file.truncate(0)
        file.append(self.states.encode(offset))
        self._unsynced.add_file(file)
        self._unsynced.add_folder(self._folder)
        self._bytes_since_snapshot = 0
        if offset not in self._offsets:
            self._offsets.append(offset)
        for old in self._offsets[:-SNAPSHOTS_KEPT]:
            self._remove(old)

    def reload(
        self, segments: Iterable[Segment], epochs: EpochHistory, log_end_offset: int, compacted_offset: int
    ) -> None:
        """Finds what was known at the log's end: from the newest snapshot, and the batches that came after it.

        Below `compacted_offset` markers may be gone. A snapshot from before it in which transactions are open is
        useless: nothing would ever end them.
        """
        too_new = [offset for offset in self._offsets if offset > log_end_offset]
        for offset in too_new:
            self._remove(offset)
        if too_new:  # a power cut must not bring them back when the log has got as far again, with other batches
            self._cache.files.sync_folder(self._folder)
        self.states, snapshot_offset = self._newest(compacted_offset)
        self._bytes_since_snapshot = 0
        for segment in segments:
            if segment.end_offset <= snapshot_offset or not segment.size:
                continue
            for piece in segment.walk_from(max(snapshot_offset, segment.base_offset), epochs):
                if piece.batch is not None and piece.base_offset >= snapshot_offset:
                    self._bytes_since_snapshot += len(piece.batch)
                    header = piece.header
                    if header.has_producer_id:
                        marker = marker_within(piece.batch) if header.is_control else None
                        self.states.update(header, piece.base_offset, self._clock.now_ms(), marker)

    def forget(self) -> None:
        for offset in list(self._offsets):
            self._remove(offset)
        self.states = ProducerStates(self._limit)

    def _newest(self, compacted_offset: int) -> tuple[ProducerStates, int]:
        while self._offsets:
            offset = self._offsets[-1]
            stored = read_file(self._cache.files, self._path(offset)) or b""
            states = ProducerStates.decode(stored, offset, self._limit)
            if states is not None and (offset >= compacted_offset or not states.transactions.open):
                return states, offset
            self._remove(offset)
        return ProducerStates(self._limit), 0

    def _remove(self, offset: int) -> None:
        self._offsets.remove(offset)
        self._unsynced.forget(self._path(offset))
        self._cache.files.remove(self._path(offset))

    def _path(self, offset: int) -> str:
        return f"{self._folder}/{names.offset_name(offset, names.SNAPSHOT)}"
