"""A copy-on-write overlay of a directory: changes stay in memory and are discarded.

It opens a log in another node's data directory exactly as that node would, including recovery, without modifying it.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Final

from chronik.errors import StorageError
from chronik.files import platform
from chronik.files.disk import DiskFileLock
from chronik.files.interface import Buffer, parent_directories, parent_directory

READ_FLAGS: Final = os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)

IN_MEMORY_COPY_BYTES_MAX: Final = 256 << 20
"""Maximum size in bytes of a file that is copied to memory when it is written to."""


class _FileContent:
    """The contents of a file in an overlay: a prefix of the file on disk or, after a write, a copy in memory."""

    __slots__ = ("copy", "kept", "modified_ms", "real")

    def __init__(self, real: str | None) -> None:
        self.real = real
        self.copy: bytearray | None = None if real is not None else bytearray()
        self.kept = os.stat(real).st_size if real is not None else 0
        self.modified_ms = os.stat(real).st_mtime_ns // 1_000_000 if real is not None else _now_ms()

    @property
    def size(self) -> int:
        return self.kept if self.copy is None else len(self.copy)

    def get_writable_copy(self) -> bytearray:
        """Return the in-memory copy, creating it if necessary."""
        self.modified_ms = _now_ms()
        if self.copy is None:
            assert self.real is not None
            if self.kept > IN_MEMORY_COPY_BYTES_MAX:
                raise StorageError(f"{self.real} is read-only and too large for an in-memory copy")
            with open(self.real, "rb") as file:
                self.copy = bytearray(file.read(self.kept))
        return self.copy

    def truncate(self, size: int) -> None:
        if self.copy is None and size <= self.kept:
            self.kept = size
            return
        copy = self.get_writable_copy()
        del copy[size:]
        copy.extend(bytes(size - len(copy)))


class OverlayFileSystem:
    """A file system whose changes to an existing directory stay in memory."""

    failure: Final = None
    is_descriptor_reserve_depleted: Final = False

    def __init__(self, root: str | Path) -> None:
        self.root = str(root)
        self._contents: dict[str, _FileContent] = {}
        self._removed: set[str] = set()
        self._directories: set[str] = set()

    def refill_descriptor_reserve(self) -> None:
        """Do nothing: an overlay has no reserve of descriptors."""

    def open(self, path: str) -> OverlayFile:
        return OverlayFile(path, self._get_content(path))

    def create(self, path: str) -> OverlayFile:
        if not self.exists(path):
            self._contents[path] = _FileContent(None)
            self._removed.discard(path)
        return self.open(path)

    def exists(self, path: str) -> bool:
        return path in self._contents or (path not in self._removed and os.path.isfile(self._get_full_path(path)))

    def size(self, path: str) -> int:
        return self._get_content(path).size

    def modified_ms(self, path: str) -> int:
        return self._get_content(path).modified_ms

    def rename(self, path: str, new_path: str) -> None:
        self._contents[new_path] = self._get_content(path)
        self._removed.discard(new_path)
        self.remove(path)

    def remove(self, path: str) -> None:
        self._contents.pop(path, None)
        self._removed.add(path)

    def make_directory(self, path: str) -> list[str]:
        self._directories.update({path, *parent_directories(path)})
        self._removed.difference_update({path, *parent_directories(path)})
        return parent_directories(path)

    def remove_directory(self, path: str) -> None:
        self._directories.discard(path)
        self._removed.add(path)

    def list_directory(self, path: str) -> list[str]:
        prefix = f"{path}/" if path else ""
        try:
            names = {name for name in os.listdir(self._get_full_path(path)) if prefix + name not in self._removed}
        except (FileNotFoundError, NotADirectoryError):
            names = set()
        if path in self._removed:
            names = set()
        made = (*self._contents, *self._directories)
        return sorted(names | {each[len(prefix) :] for each in made if each and parent_directory(each) == path})

    def sync_directory(self, path: str) -> None:
        """Do nothing: changes are never durable."""

    def lock(self, path: str) -> DiskFileLock:
        """Lock an existing file.

        Raises:
            FileNotFoundError: The file does not exist.
            DataDirectoryInUse: Another process holds the lock.
        """
        fd = os.open(self._get_full_path(path), READ_FLAGS)
        try:
            platform.lock_exclusive(fd, self._get_full_path(path))
        except BaseException:
            os.close(fd)
            raise
        return DiskFileLock(fd)

    def _get_content(self, path: str) -> _FileContent:
        content = self._contents.get(path)
        if content is None:
            if path in self._removed or not os.path.isfile(self._get_full_path(path)):
                raise FileNotFoundError(path)
            content = self._contents[path] = _FileContent(self._get_full_path(path))
        return content

    def _get_full_path(self, path: str) -> str:
        return f"{self.root}/{path}" if path else self.root


class OverlayFile:
    """An open file of an overlay."""

    __slots__ = ("_content", "_fd", "_is_unsynced", "path")

    def __init__(self, path: str, content: _FileContent) -> None:
        self.path = path
        self._content = content
        self._fd = -1
        self._is_unsynced = False

    @property
    def size(self) -> int:
        return self._content.size

    @size.setter
    def size(self, size: int) -> None:
        self._content.truncate(size)

    @property
    def has_unsynced_writes(self) -> bool:
        return self._is_unsynced

    def append(self, data: Buffer) -> int:
        position = self.size
        self.pwrite(data, position)
        return position

    def pwrite(self, data: Buffer, position: int) -> None:
        self._is_unsynced = True
        copy = self._content.get_writable_copy()
        copy.extend(bytes(max(0, position - len(copy))))
        copy[position : position + len(data)] = data

    def pread(self, size: int, position: int) -> bytes:
        content = self._content
        if content.copy is not None:
            return bytes(content.copy[position : position + size])
        assert content.real is not None
        if self._fd < 0:
            self._fd = os.open(content.real, READ_FLAGS)
        left = max(0, min(size, content.kept - position))
        data = b""
        while len(data) < left:
            more = platform.pread(self._fd, left - len(data), position + len(data))
            if not more:
                break
            data += more
        return data

    def fdatasync(self) -> None:
        self._is_unsynced = False

    def truncate(self, size: int) -> None:
        self._is_unsynced = True
        self._content.truncate(size)

    def preallocate(self, size: int) -> None:
        self._is_unsynced = True
        if size > self.size:
            self._content.truncate(size)

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
