"""Incremental copy of all partitions of a running cluster into the files of a backup."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Final, cast

import msgspec

from chronik.client.cluster import raise_for
from chronik.files import FileSystem
from chronik.ids import format_id
from chronik.moving.backup.manifest import PartitionEntry
from chronik.moving.backup.pieces import PIECE_BYTES_MIN, PieceWriter
from chronik.moving.backup.reading import PASSING, Ends, Reader
from chronik.moving.source import CannotMove
from chronik.moving.target import PAUSE_SECONDS, Key
from chronik.protocol.errors import ErrorCode
from chronik.wording import counted

PARTITIONS_AT_ONCE: Final = 250
"""The number of partitions copied concurrently."""

ANEW_MAX: Final = 5
"""The maximum number of times a partition's copy is restarted in a run because its log start moved past it."""


class Copying:
    """The copy of all partitions in one run of a backup."""

    def __init__(
        self,
        files: FileSystem,
        reader: Reader,
        ends: Mapping[Key, Ends],
        kept: Mapping[Key, PartitionEntry],
        compacted: set[bytes],
        run: int,
    ) -> None:
        """Initialize the copy.

        `kept` are copies of earlier runs to continue, `compacted` the ids of compacted topics.
        """
        self._files = files
        self._reader = reader
        self._ends = dict(ends)
        self._kept = dict(kept)
        self._compacted = compacted
        self._run = run
        self._restarts: dict[Key, int] = {}
        self._under_way: dict[Key, PieceWriter] = {}
        self.bytes_copied = 0

    def run(self, tell: Callable[[str], None]) -> dict[Key, PartitionEntry]:
        """Copy all partitions and return their manifest entries. Deleted topics are omitted.

        Raises:
            MigrationError: A partition cannot be read.
        """
        left, entries = iter(list(self._ends)), dict[Key, PartitionEntry]()
        active, progress_at = self._under_way, time.monotonic()
        while True:
            while len(active) < PARTITIONS_AT_ONCE and (key := next(left, None)) is not None:
                active[key] = self._writer(key)
            if not active:
                return entries
            completed = [key for key, writer in active.items() if writer.offset >= self._ends[key].end]
            entries.update((key, self._entry(key, active.pop(key))) for key in completed)
            of, copied = counted(len(self._ends), "partition"), counted(self.bytes_copied, "byte")
            tell(f"copied: {len(entries):,} of {of}, {copied}")
            if completed or self._copy_next():
                progress_at = time.monotonic()
                continue
            if time.monotonic() - progress_at > self._reader.timeout_s:
                raise CannotMove(f"{self._reader.about(next(iter(active)))} cannot be read: no progress in time")
            time.sleep(PAUSE_SECONDS)
            self._refresh()

    def _writer(self, key: Key) -> PieceWriter:
        kept, (start, end) = self._kept.get(key), self._ends[key]
        offset = start if kept is None else kept.end
        writer = PieceWriter(self._files, format_id(key[0]), key[1], self._run, offset, end)
        last = kept.pieces[-1] if kept is not None and kept.pieces and kept.end < end else None
        if kept is not None and last is not None and last.file.size < PIECE_BYTES_MIN:
            writer.go_on_from(last)
            self._kept[key] = msgspec.structs.replace(kept, pieces=kept.pieces[:-1])
        return writer

    def _copy_next(self) -> bool:
        """Fetch and write the next records. Return whether there was progress."""
        has_progressed = False
        for key, data in self._reader.fetch({key: each.offset for key, each in self._under_way.items()}).items():
            code = ErrorCode(data.error_code)
            if code is ErrorCode.OFFSET_OUT_OF_RANGE:
                has_progressed = self._restart(key) or has_progressed
            elif code not in PASSING:
                raise_for(code, self._reader.about(key))
                writer, records = self._under_way[key], cast(memoryview, data.records or b"")
                before = writer.offset
                writer.add(records, continues=key in self._kept)
                if writer.offset > before:
                    has_progressed = True
                    self.bytes_copied += len(records)
        return has_progressed

    def _restart(self, key: Key) -> bool:
        """Restart the copy of a partition whose log start moved past it or whose log was truncated.

        Return whether it was.
        """
        found = self._reader.ends([key]).get(key)
        if found is None:
            return False
        self._restarts[key] = self._restarts.get(key, 0) + 1
        if self._restarts[key] > ANEW_MAX:
            raise CannotMove(f"{self._reader.about(key)}: the log start moves faster than the partition can be copied")
        end = min(self._ends[key].end, found.end)
        self._ends[key] = Ends(found.start, max(found.start, end))
        self._kept.pop(key, None)
        self._under_way[key] = self._writer(key)
        return True

    def _refresh(self) -> None:
        self._reader.look_again()
        for key in [key for key in self._under_way if self._reader.is_gone(key)]:
            del self._under_way[key]

    def _entry(self, key: Key, writer: PieceWriter) -> PartitionEntry:
        writer.close()
        kept, (start, end) = self._kept.get(key), self._ends[key]
        pieces = () if kept is None else tuple(piece for piece in kept.pieces if piece.end > start)
        wrote = bool(writer.pieces)
        last_epoch, producer_ids = (-1, 0) if kept is None else (kept.last_epoch, kept.producer_ids)
        return PartitionEntry(
            format_id(key[0]),
            key[1],
            start,
            end,
            writer.last_epoch if wrote else last_epoch,
            max(producer_ids, writer.producer_ids),
            key[0] in self._compacted,
            (*pieces, *writer.pieces),
        )
