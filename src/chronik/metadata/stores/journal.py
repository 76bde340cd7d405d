"""The files of a standalone node's metadata: a write-ahead log of commands and the newest snapshot, in one folder.

Every method but `append` may wait for the disk: a store calls them in a thread of their own, one at a time. Only the
snapshot that `begin_snapshot` returns may be written at the same time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from chronik.errors import DataDamaged
from chronik.files import FileSystem
from chronik.metadata.apply import apply
from chronik.metadata.commands.envelope import decode_command
from chronik.metadata.image import Image
from chronik.metadata.snapshot import decode_snapshot
from chronik.meters import Histogram
from chronik.wal.log import Entry, WriteAheadLog
from chronik.wal.snapshots import SnapshotWriter, newest_snapshot, read_snapshot, remove_older_snapshots

FOLDER: Final = "__meta"


class Journal:
    """Call `recover` first."""

    def __init__(self, files: FileSystem, folder: str = FOLDER) -> None:
        self._files = files
        self._folder = folder
        self._log: WriteAheadLog | None = None
        self.entries_since_snapshot = 0

    @property
    def bytes_since_snapshot(self) -> int:
        return self._opened.segment_bytes

    @property
    def sync_times(self) -> Histogram:
        return self._opened.sync_times

    def recover(self) -> Image:
        """Returns the image as of the last durable command. Raises DataDamaged, and LevelNotSupported or UnknownCommand
        when a newer version has written it."""
        image, snapshot_index = self._read_snapshot()
        self._log, entries = WriteAheadLog.open(self._files, self._folder, after=snapshot_index)
        remove_older_snapshots(self._files, self._folder)
        _replay(image, entries)
        self.entries_since_snapshot = len(entries)
        return image

    def append(self, commands: Sequence[bytes]) -> None:
        """Appends the commands with one write: they outlive the process, and the next `write` makes them durable."""
        self._opened.append(commands)
        self.entries_since_snapshot += len(commands)

    def write(self, commands: Sequence[bytes]) -> None:
        """Appends the commands with one write and one sync; they, and all before them, are durable when this returns.
        There may be none."""
        if commands:
            self.append(commands)
        self._opened.sync()

    def begin_snapshot(self) -> SnapshotWriter:
        """Begins a snapshot of the image as of the last command written; all must be applied."""
        self._opened.roll()
        self.entries_since_snapshot = 0
        return SnapshotWriter(self._files, self._folder, self._opened.last_index)

    def forget_through(self, index: int) -> None:
        """Removes the log up to `index`: a snapshot up to there is durable."""
        self._opened.drop_through(index)

    def close(self) -> None:
        if self._log is not None:
            self._log.close()
            self._log = None

    @property
    def _opened(self) -> WriteAheadLog:
        assert self._log is not None, "recover() first"
        return self._log

    def _read_snapshot(self) -> tuple[Image, int]:
        index = newest_snapshot(self._files, self._folder)
        if index is None:
            return Image(), 0
        image = decode_snapshot(read_snapshot(self._files, self._folder, index))
        if image.applied_index != index:
            raise DataDamaged(f"the snapshot named {index} holds the state at {image.applied_index}")
        return image, index


def _replay(image: Image, entries: Sequence[Entry]) -> None:
    for entry in entries:
        apply(image, decode_command(entry.payload), entry.index)
