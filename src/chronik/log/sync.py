"""The unsynced changes of a log, and the sync task that makes them durable in a thread."""

from __future__ import annotations

import msgspec

from chronik.clock import Clock
from chronik.files import File, FileCache, FileSystem
from chronik.log.files import names
from chronik.log.files.checkpoints import OffsetCheckpointFile


class SyncTask(msgspec.Struct, eq=False):
    """A task that makes a log's unsynced changes durable: those made before the task was created."""

    storage: FileSystem
    end_offset: int
    files: list[File]
    directories: list[str]
    deletable_paths: list[str]
    checkpoints: list[tuple[OffsetCheckpointFile, int]]
    """Checkpoints to write after everything else, because the data that they refer to must be durable first."""

    @property
    def is_single_file(self) -> bool:
        """Whether the task syncs one file and does nothing else."""
        return len(self.files) == 1 and not (self.directories or self.checkpoints or self.deletable_paths)

    def run(self) -> None:
        """Sync the files and directories, write the checkpoints and delete files. Blocks on the disk.

        Raises:
            StorageError: A write or sync failed; nothing of this task may be considered durable.
        """
        for unsynced in self.files:
            unsynced.fdatasync()
        for directory in self.directories:
            self.storage.sync_directory(directory)
        for file, offset in self.checkpoints:
            file.write(offset)
        for path in self.deletable_paths:
            self.storage.remove(path)


class PendingSync:
    """The files and directories that the next sync of a log must sync, and the files that it must delete."""

    __slots__ = ("_cache", "_clock", "_directories", "_doomed", "_files")

    def __init__(self, cache: FileCache, clock: Clock) -> None:
        self._cache = cache
        self._clock = clock
        self._files: dict[File, None] = {}
        self._directories: dict[str, None] = {}
        self._doomed: list[tuple[int, str]] = []

    def __bool__(self) -> bool:
        if self._files or self._directories:
            return True
        return bool(self._doomed) and any(due_ms <= self._clock.now_ms() for due_ms, _ in self._doomed)

    def add_file(self, file: File) -> None:
        self._files[file] = None

    def add_directory(self, directory: str) -> None:
        self._directories[directory] = None

    def discard_file(self, path: str) -> None:
        """Close a file that is about to be renamed or deleted, and remove it from the next sync."""
        self._cache.close_file(path)
        self._files = {file: None for file in self._files if file.path != path}

    def schedule_deletion(self, directory: str, path: str, delay_ms: int) -> None:
        """Rename a file to `….deleted`, and schedule its deletion by a later sync task.

        Deleting a large file can take long.
        """
        self.discard_file(path)
        if self._cache.files.exists(path):
            self._cache.files.rename(path, path + names.DELETED)
            self.add_directory(directory)
            self._doomed.append((self._clock.now_ms() + delay_ms, path + names.DELETED))

    def create_task(self, end_offset: int, offsets: list[tuple[OffsetCheckpointFile, int]]) -> SyncTask:
        """Return a sync task for all unsynced changes."""
        now_ms = self._clock.now_ms()
        ticket = SyncTask(
            self._cache.files,
            end_offset,
            # Files that a truncation has synced since are skipped; they may be closed by now.
            [file for file in self._files if file.has_unsynced_writes],
            list(self._directories),
            [path for due_ms, path in self._doomed if due_ms <= now_ms],
            offsets,
        )
        for file in ticket.files:
            self._cache.pin(file)
        self._files = {}
        self._directories = {}
        self._doomed = [doomed for doomed in self._doomed if doomed[0] > now_ms]
        return ticket

    def complete_task(self, ticket: SyncTask) -> None:
        """Release the files of a completed sync task, and record the checkpoints that it wrote."""
        for file in ticket.files:
            self._cache.unpin(file)
        for offset_file, offset in ticket.checkpoints:
            offset_file.stored_offset = offset
