"""A simulated disk in memory that loses what a real disk may lose.

`crash(seed)` returns the disk as it might be after a power failure: of everything that was not synced, a part chosen by
the seed survives. Unsynced writes may be lost, kept, torn, or kept in arbitrary 512-byte sectors; each name that was
created, renamed or removed since the last `sync_directory` may or may not be durable. This is harsher than any single
file system, so the tests do not depend on one.

`before_event` is called before each change takes effect, which is where tests simulate a power failure; `fail_at` makes
one change fail.
"""

from __future__ import annotations

import copy
import errno
import os
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NoReturn

from chronik.errors import DataDirectoryInUse, StorageError
from chronik.files.interface import Buffer, parent_directories, parent_directory

SECTOR = 512  # the atomic write unit of disks


@dataclass(slots=True)
class ContentChange:
    """A write of `data` at `position`, a truncation to `position` without data, or a preallocation."""

    position: int
    data: bytes | None
    is_reservation: bool = False

    def apply(self, content: bytearray) -> None:
        if self.is_reservation:
            _resize(content, max(self.position, len(content)))
        elif self.data is None:
            _resize(content, self.position)
        else:
            _overwrite(content, self.position, self.data)


@dataclass(slots=True, eq=False)
class Inode:
    """The contents of a file (None for a directory), independent of its name."""

    content: bytearray | None
    synced: bytearray = field(default_factory=bytearray)
    pending: list[ContentChange] = field(default_factory=list)
    modified_ms: int = 0

    def __deepcopy__(self, memo: object) -> Inode:
        content = None if self.content is None else bytearray(self.content)
        return Inode(content, bytearray(self.synced), list(self.pending), self.modified_ms)  # no change ever changes

    def change(self, change: ContentChange) -> None:
        assert self.content is not None
        change.apply(self.content)
        self.pending.append(change)

    def sync(self) -> None:
        pending, self.pending = self.pending, []
        for change in pending:
            change.apply(self.synced)

    def drop_pending(self) -> None:
        """Simulate a failed fsync: the pages count as clean although they never reached the disk."""
        self.pending = []

    def after_power_failure(self, chance: random.Random) -> Inode:
        content = bytearray(self.synced)
        if self.pending:
            _apply_some(content, self.pending, chance)
        return Inode(content if self.content is not None else None, bytearray(content))


@dataclass(slots=True)
class NameChange:
    """A change of the inode that `path` refers to, or its removal; a rename also removes the old name atomically."""

    path: str
    inode: Inode | None
    old_path: str | None = None

    def apply(self, names: dict[str, Inode]) -> None:
        if self.old_path is not None:
            names.pop(self.old_path, None)
        if self.inode is not None:
            names[self.path] = self.inode
        else:
            names.pop(self.path, None)


def choose_surviving_changes(changes: list[NameChange], chance: random.Random) -> list[NameChange]:
    """Return any subset in order, because names may reach the disk in any order."""
    if chance.random() < 0.25:
        return changes
    return [change for change in changes if chance.random() < 0.5]


def _apply_some(content: bytearray, pending: list[ContentChange], chance: random.Random) -> None:
    kind = chance.randrange(4)
    if kind == 0:  # no changes
        return
    if kind == 1:  # all changes
        for change in pending:
            change.apply(content)
    elif kind == 2:  # the first changes, the last one torn
        kept = chance.randint(0, len(pending))
        for change in pending[:kept]:
            change.apply(content)
        if kept < len(pending):
            torn = pending[kept].data
            if torn:
                _overwrite(content, pending[kept].position, torn[: chance.randrange(len(torn))])
    else:
        for change in pending:
            _apply_sectors(content, change, chance)


def _apply_sectors(content: bytearray, change: ContentChange, chance: random.Random) -> None:
    if change.data is None:
        if chance.random() < 0.5:
            change.apply(content)
        return
    start, end = change.position, change.position + len(change.data)
    position = start
    while position < end:
        stop = min(end, position - position % SECTOR + SECTOR)
        if chance.random() < 0.5:
            _overwrite(content, position, change.data[position - start : stop - start])
        position = stop
    if chance.random() < 0.5 and len(content) < end:  # the new length became durable before the data: zeros
        _resize(content, end)


def _overwrite(content: bytearray, position: int, data: bytes) -> None:
    if len(content) < position:
        _resize(content, position)
    content[position : position + len(data)] = data


def _resize(content: bytearray, size: int) -> None:
    if size < len(content):
        del content[size:]
    else:
        content.extend(bytes(size - len(content)))


class SimulatedFileSystem:
    """A FileSystem on a simulated disk."""

    def __init__(self) -> None:
        self.failure: str | None = None
        self.now_ms = 0  # the modification time of written files; tests set it
        self.events = 0
        self.before_event: Callable[[str, str], None] | None = None
        self.reserves = True
        """Whether preallocation works; not every file system supports it, and none on a full disk."""
        self._names: dict[str, Inode] = {"": Inode(None)}
        self._durable_names: dict[str, Inode] = dict(self._names)
        self._pending_names: dict[str, list[NameChange]] = {}
        self._failure_at: int | None = None
        self._failure_errno = 0
        self._locked: set[str] = set()

    # -- faults -------------------------------------------------------------------------------------------------------

    def fail_at(self, event: int, error_number: int) -> None:
        """Make the change fail that follows `event` events."""
        self._failure_at = event
        self._failure_errno = error_number

    def crash(self, seed: int) -> SimulatedFileSystem:
        """Return the disk as found after a power failure now; this one does not change."""
        chance = random.Random(seed)
        names = dict(self._durable_names)
        for changes in self._pending_names.values():
            for change in choose_surviving_changes(changes, chance):
                change.apply(names)
        after = SimulatedFileSystem()
        inodes: dict[int, Inode] = {}
        for path, inode in names.items():
            if _all_folders_exist(path, names):
                if id(inode) not in inodes:
                    inodes[id(inode)] = inode.after_power_failure(chance)
                after._names[path] = inodes[id(inode)]
        after._durable_names = dict(after._names)
        return after

    def kill(self) -> SimulatedFileSystem:
        """Return the disk as found after `kill -9`: the kernel still has everything that was written."""
        after = SimulatedFileSystem()
        after._names, after._durable_names, after._pending_names = copy.deepcopy(
            (self._names, self._durable_names, self._pending_names)
        )
        return after

    def read(self, path: str) -> bytes:
        return bytes(self._content(path))

    def overwrite(self, path: str, content: bytes) -> None:
        """Overwrite a file durably, bypassing the file system."""
        inode = self._names[path]
        inode.content, inode.synced, inode.pending = bytearray(content), bytearray(content), []

    def paths(self) -> list[str]:
        return sorted(path for path, inode in self._names.items() if inode.content is not None)

    # -- FileSystem ---------------------------------------------------------------------------------------------------

    @property
    def is_descriptor_reserve_depleted(self) -> bool:
        return False

    def refill_descriptor_reserve(self) -> None:
        """Do nothing: a simulated disk has no limit of descriptors."""

    def open(self, path: str) -> SimulatedFile:
        self._content(path)
        return SimulatedFile(self, path, self._names[path])

    def create(self, path: str) -> SimulatedFile:
        if path not in self._names:
            self.count_event("create", path)
            self._require_folder(path)
            self._rename_durably_later(path, NameChange(path, Inode(bytearray())))
        return self.open(path)

    def exists(self, path: str) -> bool:
        inode = self._names.get(path)
        return inode is not None and inode.content is not None

    def size(self, path: str) -> int:
        return len(self._content(path))

    def modified_ms(self, path: str) -> int:
        self._content(path)
        return self._names[path].modified_ms

    def rename(self, path: str, new_path: str) -> None:
        self.count_event("rename", path)
        inode = self._names.get(path)
        if inode is None or parent_directory(new_path) not in self._names:
            self.fail("rename", path, errno.ENOENT)
        self._rename_durably_later(new_path, NameChange(new_path, inode, old_path=path))

    def remove(self, path: str) -> None:
        if path in self._names:
            self.count_event("remove", path)
            self._rename_durably_later(path, NameChange(path, None))

    def make_directory(self, path: str) -> list[str]:
        for directory in [*reversed(parent_directories(path)), path]:
            if directory not in self._names:
                self.count_event("make directory", directory)
                self._rename_durably_later(directory, NameChange(directory, Inode(None)))
        return parent_directories(path)

    def remove_directory(self, path: str) -> None:
        if path in self._names:
            self.count_event("remove directory", path)
            if self.list_directory(path):
                self.fail("remove directory", path, errno.ENOTEMPTY)
            self._rename_durably_later(path, NameChange(path, None))

    def list_directory(self, path: str) -> list[str]:
        prefix = path + "/" if path else ""
        inside = (name[len(prefix) :] for name in self._names if name.startswith(prefix) and name != path)
        return sorted(name for name in inside if "/" not in name)

    def sync_directory(self, path: str) -> None:
        self.count_event("sync directory", path)
        if path not in self._names:
            self.fail("sync directory", path, errno.ENOENT)
        for change in self._pending_names.pop(path, ()):
            change.apply(self._durable_names)

    def lock(self, path: str) -> SimulatedLock:
        if path in self._locked:
            raise DataDirectoryInUse(f"{path} is locked")
        self._locked.add(path)
        return SimulatedLock(self._locked, path)

    # -- for TwinFile -------------------------------------------------------------------------------------------------

    def count_event(self, action: str, path: str) -> None:
        """Count a change. Raise StorageError if it has to fail, or if an earlier one failed."""
        self.raise_if_failed()
        if self.before_event is not None:
            self.before_event(action, path)
        self.events += 1
        if self.is_failing:
            self.fail(action, path, self._failure_errno)

    def raise_if_failed(self) -> None:
        if self.failure is not None:
            raise StorageError(f"storage failed earlier: {self.failure}")

    @property
    def is_failing(self) -> bool:
        """Whether the change that was just counted has to fail."""
        return self._failure_at is not None and self.events == self._failure_at + 1

    def fail(self, action: str, path: str, error_number: int) -> NoReturn:
        self.failure = f"{action} {path}: {os.strerror(error_number)}"
        raise StorageError(self.failure)

    # -- internals ----------------------------------------------------------------------------------------------------

    def _content(self, path: str) -> bytearray:
        inode = self._names.get(path)
        if inode is None or inode.content is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return inode.content

    def _require_folder(self, path: str) -> None:
        if parent_directory(path) not in self._names:
            self.fail("create", path, errno.ENOENT)

    def _rename_durably_later(self, path: str, change: NameChange) -> None:
        change.apply(self._names)
        self._pending_names.setdefault(parent_directory(path), []).append(change)


class SimulatedLock:
    """A lock on a simulated disk."""

    def __init__(self, locked: set[str], path: str) -> None:
        self._locked = locked
        self._path = path

    def close(self) -> None:
        self._locked.discard(self._path)


class SimulatedFile:
    """An open file of a simulated disk."""

    def __init__(self, files: SimulatedFileSystem, path: str, inode: Inode) -> None:
        assert inode.content is not None
        self.path = path
        self.size = len(inode.content)
        self._files = files
        self._inode = inode
        self._content = inode.content
        self._writes = 0
        self._writes_synced = 0
        self._closed = False

    @property
    def has_unsynced_writes(self) -> bool:
        return self._writes != self._writes_synced

    def append(self, data: Buffer) -> int:
        position = self.size
        self.pwrite(data, position)
        return position

    def pwrite(self, data: Buffer, position: int) -> None:
        self._require_open()
        self._writes += 1
        try:
            self._files.count_event("write", self.path)
        except StorageError:
            if self._files.is_failing:  # a full disk writes a part
                self._inode.change(ContentChange(position, bytes(data[: len(data) // 2])))
            raise
        self._inode.change(ContentChange(position, bytes(data)))
        self._inode.modified_ms = self._files.now_ms
        self.size = max(self.size, position + len(data))

    def pread(self, size: int, position: int) -> bytes:
        self._require_open()
        return bytes(self._content[position : position + size])

    def fdatasync(self) -> None:
        self._require_open()
        covered = self._writes
        try:
            self._files.count_event("sync", self.path)
        except StorageError:
            if self._files.is_failing:
                self._inode.drop_pending()
            raise
        self._inode.sync()
        self._writes_synced = max(covered, self._writes_synced)

    def truncate(self, size: int) -> None:
        self._require_open()
        self._writes += 1
        self._files.count_event("truncate", self.path)
        self._inode.change(ContentChange(size, None))
        self.size = size

    def preallocate(self, size: int) -> None:
        """Preallocate space. This is not an event: it cannot fail, and a power failure follows at the next event."""
        self._require_open()
        self._files.raise_if_failed()
        self._writes += 1
        if self._files.reserves:
            self._inode.change(ContentChange(size, None, is_reservation=True))
            self.size = max(self.size, size)

    def close(self) -> None:
        self._closed = True

    def _require_open(self) -> None:
        if self._closed:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF), self.path)


def _all_folders_exist(path: str, names: dict[str, Inode]) -> bool:
    while path:
        path = parent_directory(path)
        if path not in names:
            return False
    return True
