"""The unsynced changes of a log, and the sync task that makes them durable in a thread."""

from __future__ import annotations

import msgspec

from chronik.clock import Clock
from chronik.files import File, FileCache, FileSystem
from chronik.log.files import names
from chronik.log.files.offset_file import OffsetFile


class SyncTicket(msgspec.Struct, eq=False):
    """A task that makes all changes of a log durable that were made before the task was created."""

    storage: FileSystem
    end_offset: int
    files: list[File]
    folders: list[str]
    doomed: list[str]
    offsets: list[tuple[OffsetFile, int]]
    """Checkpoints to write. They are written last because they refer to data that must be durable before."""

    @property
    def is_plain(self) -> bool:
        """Whether the task only syncs one file."""
        return len(self.files) == 1 and not (self.folders or self.offsets or self.doomed)

    def run(self) -> None:
        """Sync the files and directories, write the checkpoints and delete files. Blocks on the disk.

        Raises:
            StorageFailed: A write or sync failed; nothing of this task may be considered durable.
        """
        for unsynced in self.files:
            unsynced.fdatasync()
        for directory in self.folders:
            self.storage.sync_folder(directory)
        for file, offset in self.offsets:
            file.write(offset)
        for path in self.doomed:
            self.storage.remove(path)


class Unsynced:
    """The files and directories that the next sync task syncs, and the files that it deletes."""

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

    def add_folder(self, directory: str) -> None:
        self._directories[directory] = None

    def forget(self, path: str) -> None:
        """Close a file that is about to be renamed or deleted and needs no sync any more."""
        self._cache.forget(path)
        self._files = {file: None for file in self._files if file.path != path}

    def doom(self, directory: str, path: str, delay_ms: int) -> None:
        """Rename a file to `….deleted`, and let a later sync task delete it.

        Deleting a large file can take long.
        """
        self.forget(path)
        if self._cache.files.exists(path):
            self._cache.files.rename(path, path + names.DELETED)
            self.add_folder(directory)
            self._doomed.append((self._clock.now_ms() + delay_ms, path + names.DELETED))

    def begin(self, end_offset: int, offsets: list[tuple[OffsetFile, int]]) -> SyncTicket:
        """Return a sync task for all pending changes."""
        now_ms = self._clock.now_ms()
        ticket = SyncTicket(
            self._cache.files,
            end_offset,
            # Files that a truncation has synced since are skipped; they may be closed by now.
            [file for file in self._files if file.unsynced],
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

    def complete(self, ticket: SyncTicket) -> None:
        """Record that a sync task has run."""
        for file in ticket.files:
            self._cache.unpin(file)
        for offset_file, offset in ticket.offsets:
            offset_file.stored = offset
