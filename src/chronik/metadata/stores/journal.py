"""The files of a standalone node's metadata: a write-ahead log of commands and the newest snapshot.

All methods but `append` may block on the disk. A store calls them in a dedicated thread, one at a time. Only the
snapshot that `begin_snapshot` returns may be written concurrently.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from chronik.errors import DamagedDataError
from chronik.files import FileSystem
from chronik.histogram import Histogram
from chronik.metadata.apply import apply
from chronik.metadata.commands.envelope import decode_command
from chronik.metadata.image import Image
from chronik.metadata.snapshot import decode_snapshot
from chronik.wal.log import WalEntry, WriteAheadLog
from chronik.wal.snapshots import WalSnapshotWriter, find_newest_snapshot, read_snapshot, remove_older_snapshots

METADATA_DIRECTORY: Final = "__meta"
"""The name of the subdirectory of the data directory that contains a standalone node's metadata log."""


class MetadataJournal:
    """The write-ahead log and snapshots of a standalone node's metadata. `recover` must be called first."""

    def __init__(self, files: FileSystem, directory: str = METADATA_DIRECTORY) -> None:
        self._files = files
        self._directory = directory
        self._log: WriteAheadLog | None = None
        self.entries_since_snapshot = 0

    @property
    def bytes_since_snapshot(self) -> int:
        return self._opened_log.segment_bytes

    @property
    def sync_times(self) -> Histogram:
        return self._opened_log.sync_times

    def recover(self) -> Image:
        """Open the metadata log, replay it, and return the image after the last durable command.

        Raises:
            DamagedDataError: The files are damaged.
            UnsupportedLevelError: A newer version has written them.
            UnknownCommandError: A newer version has written them.
        """
        image, snapshot_index = self._read_snapshot()
        self._log, entries = WriteAheadLog.open(self._files, self._directory, after=snapshot_index)
        remove_older_snapshots(self._files, self._directory)
        _replay_entries(image, entries)
        self.entries_since_snapshot = len(entries)
        return image

    def append(self, commands: Sequence[bytes]) -> None:
        """Append commands to the log without a sync; the next `write` makes them durable."""
        self._opened_log.append(commands)
        self.entries_since_snapshot += len(commands)

    def write(self, commands: Sequence[bytes]) -> None:
        """Append commands and sync the log, which makes these and all earlier commands durable."""
        if commands:
            self.append(commands)
        self._opened_log.sync()

    def begin_snapshot(self) -> WalSnapshotWriter:
        """Return a writer for a snapshot of the current image, to which all written commands must have been applied."""
        self._opened_log.roll()
        self.entries_since_snapshot = 0
        return WalSnapshotWriter(self._files, self._directory, self._opened_log.last_index)

    def truncate_through(self, index: int) -> None:
        """Delete the log entries up to `index`, which a durable snapshot contains."""
        self._opened_log.delete_segments_through(index)

    def close(self) -> None:
        if self._log is not None:
            self._log.close()
            self._log = None

    @property
    def _opened_log(self) -> WriteAheadLog:
        assert self._log is not None, "recover() first"
        return self._log

    def _read_snapshot(self) -> tuple[Image, int]:
        index = find_newest_snapshot(self._files, self._directory)
        if index is None:
            return Image(), 0
        image = decode_snapshot(read_snapshot(self._files, self._directory, index))
        if image.applied_index != index:
            raise DamagedDataError(
                f"the snapshot file for index {index} contains the state at index {image.applied_index}"
            )
        return image, index


def _replay_entries(image: Image, entries: Sequence[WalEntry]) -> None:
    for entry in entries:
        apply(image, decode_command(entry.payload), entry.index)
