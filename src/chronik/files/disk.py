"""The file system on disk, accessed through file descriptors, and a reserve of descriptors."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Final, NoReturn, TypeVar

from chronik.errors import StorageError
from chronik.files import platform
from chronik.files.interface import Buffer, parent_directories

T = TypeVar("T")

RESERVED_DESCRIPTORS: Final = 32
"""Number of reserved file descriptors, for opening files while the process has no other descriptors left."""

DESCRIPTORS_EXHAUSTED_ERRNOS: Final = (errno.EMFILE, errno.ENFILE)
"""The errno values that report that the process or the system has no file descriptors left."""

FILE_MODE: Final = 0o600
DIRECTORY_MODE: Final = 0o700
"""Mode of new directories. Only the node's user has access, unless the root directory is accessible to the group."""

GROUP_READ: Final = 0o040
GROUP_READ_EXECUTE: Final = 0o050
GROUP_AND_OTHERS_ALL: Final = 0o077

_pread = platform.pread
_pwrite = platform.pwrite


class DescriptorReserve:
    """A thread-safe reserve of file descriptors, for opening files when the process has reached its descriptor limit.

    Connections can use up descriptors faster than the node rejects them. A write without a descriptor would be a failed
    write, and the node would have to stop. So a few descriptors are opened on /dev/null and released when needed.
    """

    def __init__(self, count: int = RESERVED_DESCRIPTORS) -> None:
        self._count = count
        self._held: list[int] = []
        self._lock = threading.Lock()
        self.replenish()

    @property
    def is_depleted(self) -> bool:
        """Whether any reserved descriptor is in use."""
        return len(self._held) < self._count

    def open_with_reserve(self, opens: Callable[[], T]) -> T:
        """Call `opens`, which opens a file. If no descriptors are left, release a reserved one and retry.

        Raises:
            OSError: `opens` failed for another reason, or the reserve is empty.
        """
        while True:
            try:
                return opens()
            except OSError as error:
                if error.errno not in DESCRIPTORS_EXHAUSTED_ERRNOS or not self._release_reserved_descriptor():
                    raise

    def replenish(self) -> None:
        """Reserve file descriptors again, as far as the process has any left."""
        with self._lock, contextlib.suppress(OSError):
            while len(self._held) < self._count:
                self._held.append(os.open(os.devnull, os.O_RDONLY))

    def close(self) -> None:
        """Release all reserved descriptors."""
        while self._release_reserved_descriptor():
            pass

    def _release_reserved_descriptor(self) -> bool:
        with self._lock:
            if not self._held:
                return False
            os.close(self._held.pop())
            return True


class DiskFileSystem:
    """The files below a root directory, which is created if missing."""

    _spare: DescriptorReserve | None = None

    def __init__(self, root: str | Path, spare: DescriptorReserve | None = None) -> None:
        """Open the root directory. `spare` is a reserve of descriptors for its files; the caller closes it."""
        self.root = str(root)
        self.failure: str | None = None
        self._spare = spare
        self._file_mode = FILE_MODE
        self._folder_mode = DIRECTORY_MODE
        os.makedirs(self.root, DIRECTORY_MODE, exist_ok=True)

    @property
    def is_descriptor_reserve_depleted(self) -> bool:
        return self._spare is not None and self._spare.is_depleted

    def refill_descriptor_reserve(self) -> None:
        if self._spare is not None:
            self._spare.replenish()

    def open(self, path: str) -> DiskFile:
        full = self._get_full_path(path)
        return DiskFile(self, path, self._open_with_reserve(lambda: os.open(full, platform.OPEN_FLAGS)))

    def create(self, path: str) -> DiskFile:
        full = self._get_full_path(path)
        with self._fail_stop("create", path):
            fd = self._open_with_reserve(lambda: os.open(full, platform.OPEN_FLAGS | os.O_CREAT, self._file_mode))
        return DiskFile(self, path, fd)

    def exists(self, path: str) -> bool:
        return os.path.isfile(self._get_full_path(path))

    def size(self, path: str) -> int:
        return os.stat(self._get_full_path(path)).st_size

    def modified_ms(self, path: str) -> int:
        return os.stat(self._get_full_path(path)).st_mtime_ns // 1_000_000

    def rename(self, path: str, new_path: str) -> None:
        with self._fail_stop("rename", path):
            os.replace(self._get_full_path(path), self._get_full_path(new_path))

    def remove(self, path: str) -> None:
        with self._fail_stop("remove", path), contextlib.suppress(FileNotFoundError):
            os.unlink(self._get_full_path(path))

    def make_directory(self, path: str) -> list[str]:
        with self._fail_stop("make directory", path):
            for directory in (*reversed(parent_directories(path)[:-1]), path):
                with contextlib.suppress(FileExistsError):
                    os.mkdir(self._get_full_path(directory), self._folder_mode)
        return parent_directories(path)

    def remove_directory(self, path: str) -> None:
        with self._fail_stop("remove directory", path), contextlib.suppress(FileNotFoundError):
            os.rmdir(self._get_full_path(path))

    def list_directory(self, path: str) -> list[str]:
        full = self._get_full_path(path)
        try:
            return sorted(self._open_with_reserve(lambda: os.listdir(full)))
        except (FileNotFoundError, NotADirectoryError):
            return []

    def sync_directory(self, path: str) -> None:
        full = self._get_full_path(path)
        with self._fail_stop("sync directory", path):
            self._open_with_reserve(lambda: platform.sync_directory(full))

    def lock(self, path: str) -> DiskFileLock:
        fd = os.open(self._get_full_path(path), platform.OPEN_FLAGS | os.O_CREAT, FILE_MODE)
        try:
            platform.lock_exclusive(fd, self._get_full_path(path))
        except BaseException:
            os.close(fd)
            raise
        return DiskFileLock(fd)

    def restrict_permissions(self, paths: Iterable[str]) -> None:
        """Remove all permissions for group and others from the root directory and the given paths below it.

        Raises:
            OSError: The permissions cannot be changed.
        """
        if sys.platform == "win32":
            return
        _restrict_permissions(self.root)
        for path in map(self._get_full_path, paths):
            _restrict_permissions(path)
            for directory, directories, names in os.walk(path):
                for name in (*directories, *names):
                    _restrict_permissions(f"{directory}/{name}")

    def apply_root_group_permissions(self) -> None:
        """Make new files readable by the group if the group may read the root directory."""
        if sys.platform == "win32":
            return
        root_mode = stat.S_IMODE(os.stat(self.root).st_mode)
        self._file_mode = FILE_MODE | root_mode & GROUP_READ
        self._folder_mode = DIRECTORY_MODE | root_mode & GROUP_READ_EXECUTE

    def fail(self, action: str, path: str, error: OSError) -> NoReturn:
        """Record a failed disk operation, after which all writes fail, and raise StorageError."""
        self.failure = f"{action} {path}: {error.strerror or error}"
        raise StorageError(self.failure) from error

    def raise_if_failed(self) -> None:
        """Raise StorageError if an earlier write has failed."""
        if self.failure is not None:
            raise StorageError(f"storage failed earlier: {self.failure}")

    def _open_with_reserve(self, opens: Callable[[], T]) -> T:
        return opens() if self._spare is None else self._spare.open_with_reserve(opens)

    def _get_full_path(self, path: str) -> str:
        return f"{self.root}/{path}" if path else self.root

    @contextlib.contextmanager
    def _fail_stop(self, action: str, path: str) -> Iterator[None]:
        self.raise_if_failed()
        try:
            yield
        except OSError as error:
            self.fail(action, path, error)


def _restrict_permissions(path: str) -> None:
    if os.path.exists(path) and not os.path.islink(path):
        os.chmod(path, stat.S_IMODE(os.stat(path).st_mode) & ~GROUP_AND_OTHERS_ALL)


class DiskFileLock:
    """A file lock that is held until it is closed."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class DiskFile:
    """An open file on disk."""

    __slots__ = ("_fd", "_files", "_writes", "_writes_synced", "path", "size")

    def __init__(self, files: DiskFileSystem, path: str, fd: int) -> None:
        self.path = path
        self.size = os.fstat(fd).st_size
        self._files = files
        self._fd = fd
        # A counter instead of a flag, because a sync does not cover writes that arrive while it runs.
        self._writes = 0
        self._writes_synced = 0

    @property
    def has_unsynced_writes(self) -> bool:
        return self._writes != self._writes_synced

    def append(self, data: Buffer) -> int:
        position = self.size
        self.pwrite(data, position)
        return position

    def pwrite(self, data: Buffer, position: int) -> None:
        files = self._files
        if files.failure is not None:
            files.raise_if_failed()
        self._writes += 1
        size = len(data)
        try:
            written = _pwrite(self._fd, data, position)
            while written < size:
                written += _pwrite(self._fd, memoryview(data)[written:], position + written)
        except OSError as error:
            files.fail("write", self.path, error)
        if position + size > self.size:
            self.size = position + size

    def pread(self, size: int, position: int) -> bytes:
        try:
            data = _pread(self._fd, size, position)
            while len(data) < size:
                more = _pread(self._fd, size - len(data), position + len(data))
                if not more:
                    break
                data += more
        except OSError as error:
            raise StorageError(f"read {self.path}: {error.strerror}") from error
        return data

    def fdatasync(self) -> None:
        self._files.raise_if_failed()
        covered = self._writes
        try:
            platform.sync_data(self._fd)
        except OSError as error:
            self._files.fail("sync", self.path, error)
        self._writes_synced = max(covered, self._writes_synced)

    def truncate(self, size: int) -> None:
        self._files.raise_if_failed()
        self._writes += 1
        try:
            os.ftruncate(self._fd, size)
        except OSError as error:
            self._files.fail("truncate", self.path, error)
        self.size = size

    def preallocate(self, size: int) -> None:
        self._files.raise_if_failed()
        self._writes += 1
        with contextlib.suppress(OSError):
            platform.preallocate(self._fd, size)
        self.size = os.fstat(self._fd).st_size  # a full disk may have allocated only a part

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
