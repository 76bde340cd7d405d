"""Files that hold what was known of producers at some offset: a start need not read the whole log for it."""

from __future__ import annotations

from collections.abc import Iterable

from chronik.files import File, FileCache, read_file
from chronik.log import names
from chronik.log.epochs import EpochHistory
from chronik.log.producers import ProducerStates
from chronik.log.segment import Segment

# The newest one may be torn after a power cut, or too new after a truncation.
SNAPSHOTS_KEPT = 2


class ProducerSnapshots:
    __slots__ = ("_cache", "_folder", "_offsets")

    def __init__(self, cache: FileCache, folder: str, present: Iterable[str]) -> None:
        self._cache = cache
        self._folder = folder
        self._offsets = names.offsets_of(present, names.SNAPSHOT)

    def write(self, producers: ProducerStates, offset: int) -> File:
        """The caller has it synced with the log; a torn one is noticed."""
        file = self._cache.create(self._path(offset))
        file.truncate(0)
        file.append(producers.encode(offset))
        if offset not in self._offsets:
            self._offsets.append(offset)
        return file

    def stale(self) -> list[str]:
        """Takes the snapshots out of the list that are no longer needed; the caller removes their files."""
        paths = [self._path(offset) for offset in self._offsets[:-SNAPSHOTS_KEPT]]
        del self._offsets[:-SNAPSHOTS_KEPT]
        return paths

    def above(self, offset: int) -> list[str]:
        """Takes the snapshots out of the list that tell of more than is there; the caller removes their files."""
        paths = [self._path(taken) for taken in self._offsets if taken > offset]
        self._offsets = [taken for taken in self._offsets if taken <= offset]
        return paths

    def load(self) -> tuple[ProducerStates, int]:
        """The newest snapshot that is undamaged and its offset; nothing and 0 when there is none."""
        while self._offsets:
            offset = self._offsets[-1]
            producers = ProducerStates.decode(read_file(self._cache.files, self._path(offset)) or b"", offset)
            if producers is not None:
                return producers, offset
            self._offsets.pop()
            self._cache.files.remove(self._path(offset))
        return ProducerStates(), 0

    def _path(self, offset: int) -> str:
        return f"{self._folder}/{names.offset_name(offset, names.SNAPSHOT)}"


def load_producers(
    snapshots: ProducerSnapshots, segments: Iterable[Segment], epochs: EpochHistory, now_ms: int
) -> ProducerStates:
    """The producers as of the log's end: from the newest snapshot, and from the batches that came after it."""
    producers, offset = snapshots.load()
    for segment in segments:
        if segment.end_offset <= offset or not segment.size:
            continue
        for piece in segment.walk_from(max(offset, segment.base_offset), epochs):
            if piece.batch is not None and piece.base_offset >= offset:
                header = piece.header
                if header.has_producer_id:
                    producers.update(header, piece.base_offset, now_ms)
    return producers
