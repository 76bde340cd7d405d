"""The part of a log that is not durable yet, and the ticket that takes it to a thread which may wait for the disk."""

from __future__ import annotations

import msgspec

from chronik.clock import Clock
from chronik.files import File, FileCache, FileSystem
from chronik.log.files import names
from chronik.log.files.offset_file import OffsetFile


class SyncTicket(msgspec.Struct, eq=False):
    """`run` makes everything durable that the log held when it gave this ticket out, and removes what is deleted."""

    storage: FileSystem
    end_offset: int
    files: list[File]
    folders: list[str]
    doomed: list[str]
    offsets: list[tuple[OffsetFile, int]]
    """Written last, since they tell of what must be durable before."""

    @property
    def is_plain(self) -> bool:
        """Whether it is one file's appended bytes and nothing else."""
        return len(self.files) == 1 and not (self.folders or self.offsets or self.doomed)

    def run(self) -> None:
        """Waits for the disk. Raises StorageFailed, after which nothing of this ticket counts."""
        for unsynced in self.files:
            unsynced.fdatasync()
        for folder in self.folders:
            self.storage.sync_folder(folder)
        for file, offset in self.offsets:
            file.write(offset)
        for path in self.doomed:
            self.storage.remove(path)


class Unsynced:
    """The files and folders that the next ticket has to sync, and the files that it may remove."""

    __slots__ = ("_cache", "_clock", "_doomed", "_files", "_folders")

    def __init__(self, cache: FileCache, clock: Clock) -> None:
        self._cache = cache
        self._clock = clock
        self._files: dict[File, None] = {}
        self._folders: dict[str, None] = {}
        self._doomed: list[tuple[int, str]] = []

    def __bool__(self) -> bool:
        if self._files or self._folders:
            return True
        return bool(self._doomed) and any(due_ms <= self._clock.now_ms() for due_ms, _ in self._doomed)

    def add_file(self, file: File) -> None:
        self._files[file] = None

    def add_folder(self, folder: str) -> None:
        self._folders[folder] = None

    def forget(self, path: str) -> None:
        """Closes a file that is about to be renamed or removed: it need not be synced any more."""
        self._cache.forget(path)
        self._files = {file: None for file in self._files if file.path != path}

    def doom(self, folder: str, path: str, delay_ms: int) -> None:
        """Takes the file out of sight; a later ticket removes it, since removing a large file can take long."""
        self.forget(path)
        if self._cache.files.exists(path):
            self._cache.files.rename(path, path + names.DELETED)
            self.add_folder(folder)
            self._doomed.append((self._clock.now_ms() + delay_ms, path + names.DELETED))

    def begin(self, end_offset: int, offsets: list[tuple[OffsetFile, int]]) -> SyncTicket:
        now_ms = self._clock.now_ms()
        ticket = SyncTicket(
            self._cache.files,
            end_offset,
            # A file that a truncation has synced meanwhile may even be closed by now.
            [file for file in self._files if file.unsynced],
            list(self._folders),
            [path for due_ms, path in self._doomed if due_ms <= now_ms],
            offsets,
        )
        for file in ticket.files:
            self._cache.pin(file)
        self._files = {}
        self._folders = {}
        self._doomed = [doomed for doomed in self._doomed if doomed[0] > now_ms]
        return ticket

    def complete(self, ticket: SyncTicket) -> None:
        for file in ticket.files:
            self._cache.unpin(file)
        for offset_file, offset in ticket.offsets:
            offset_file.stored = offset
