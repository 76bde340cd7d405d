"""Copies what is new of all partitions of a running cluster, many at a time, into files of a backup."""

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

ANEW_MAX: Final = 5
"""How often one partition is begun anew in a run, since the start of its log has overtaken the copy."""


class Copying:
    def __init__(
        self,
        files: FileSystem,
        reader: Reader,
        ends: Mapping[Key, Ends],
        kept: Mapping[Key, PartitionEntry],
        compacted: set[bytes],
        run: int,
    ) -> None:
        """`kept` are the copies of an earlier run that are gone on with, `compacted` the ids of compacted topics."""
        self._files = files
        self._reader = reader
        self._ends = dict(ends)
        self._kept = dict(kept)
        self._compacted = compacted
        self._run = run
        self._anew: dict[Key, int] = {}
        self._under_way: dict[Key, PieceWriter] = {}
        self.bytes_copied = 0

    def run(self, tell: Callable[[str], None]) -> dict[Key, PartitionEntry]:
        """Returns all partitions as they are in the backup, without those of topics that are gone. Raises
        CannotMove."""
        left, entries = iter(list(self._ends)), dict[Key, PartitionEntry]()
        under_way, moved_at = self._under_way, time.monotonic()
        while True:
            while len(under_way) < PARTITIONS_AT_ONCE and (key := next(left, None)) is not None:
                under_way[key] = self._writer(key)
            if not under_way:
                return entries
            whole = [key for key, writer in under_way.items() if writer.offset >= self._ends[key].end]
            entries.update((key, self._entry(key, under_way.pop(key))) for key in whole)
            of, copied = counted(len(self._ends), "partition"), counted(self.bytes_copied, "byte")
            tell(f"copied: {len(entries):,} of {of}, {copied}")
            if whole or self._take():
                moved_at = time.monotonic()
                continue
            if time.monotonic() - moved_at > self._reader.timeout_s:
                raise CannotMove(f"{self._reader.about(next(iter(under_way)))} cannot be read now")
            time.sleep(PAUSE_SECONDS)
            self._look_again()

    def _writer(self, key: Key) -> PieceWriter:
        kept, (start, end) = self._kept.get(key), self._ends[key]
        offset = start if kept is None else kept.end
        writer = PieceWriter(self._files, format_id(key[0]), key[1], self._run, offset, end)
        last = kept.pieces[-1] if kept is not None and kept.pieces and kept.end < end else None
        if kept is not None and last is not None and last.file.size < PIECE_BYTES_MIN:
            writer.go_on_from(last)
            self._kept[key] = msgspec.structs.replace(kept, pieces=kept.pieces[:-1])
        return writer

    def _take(self) -> bool:
        """Returns whether anything has come."""
        has_moved = False
        for key, data in self._reader.fetch({key: each.offset for key, each in self._under_way.items()}).items():
            code = ErrorCode(data.error_code)
            if code is ErrorCode.OFFSET_OUT_OF_RANGE:
                has_moved = self._begin_anew(key) or has_moved
            elif code not in PASSING:
                raise_for(code, self._reader.about(key))
                writer, records = self._under_way[key], cast(memoryview, data.records or b"")
                before = writer.offset
                writer.add(records, continues=key in self._kept)
                if writer.offset > before:
                    has_moved = True
                    self.bytes_copied += len(records)
        return has_moved

    def _begin_anew(self, key: Key) -> bool:
        """The start of the log has overtaken the copy, or an unclean election has cut it. Returns whether it begins."""
        found = self._reader.ends([key]).get(key)
        if found is None:
            return False
        self._anew[key] = self._anew.get(key, 0) + 1
        if self._anew[key] > ANEW_MAX:
            raise CannotMove(f"{self._reader.about(key)}: its start moves faster than it can be copied")
        end = min(self._ends[key].end, found.end)
        self._ends[key] = Ends(found.start, max(found.start, end))
        self._kept.pop(key, None)
        self._under_way[key] = self._writer(key)
        return True

    def _look_again(self) -> None:
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
