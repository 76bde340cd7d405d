"""System calls that differ between Linux, macOS and Windows."""

from __future__ import annotations

import os
import sys
from typing import NamedTuple

from chronik.errors import DataDirectoryInUse


class DiskSpace(NamedTuple):
    """The size and free space of a file system."""

    total_bytes: int
    free_bytes: int
    """Bytes available to unprivileged processes."""


if sys.platform == "win32":
    # Windows has no positional reads and writes: seek and transfer under a lock.
    import msvcrt
    import threading

    _seek_lock = threading.Lock()
    OPEN_FLAGS = os.O_RDWR | os.O_BINARY | os.O_NOINHERIT

    def pread(fd: int, size: int, position: int) -> bytes:
        with _seek_lock:
            os.lseek(fd, position, os.SEEK_SET)
            return os.read(fd, size)

    def pwrite(fd: int, data: bytes | bytearray | memoryview, position: int) -> int:
        with _seek_lock:
            os.lseek(fd, position, os.SEEK_SET)
            return os.write(fd, data)

    sync_data = os.fsync

    def preallocate(fd: int, size: int) -> None:
        """Do nothing: Windows has no equivalent call for file descriptors."""

    def sync_directory(path: str) -> None:
        """Do nothing: NTFS journals file names, and directories cannot be opened for syncing."""

    def get_disk_space(directory: str) -> DiskSpace:
        import shutil

        usage = shutil.disk_usage(directory)
        return DiskSpace(usage.total, usage.free)

    def lock_exclusive(fd: int, path: str) -> None:
        try:
            msvcrt.locking(fd, msvcrt.LK_NBLCK, 1)
        except OSError as error:
            raise DataDirectoryInUse(f"{path} is locked by another process") from error

else:
    import fcntl

    OPEN_FLAGS = os.O_RDWR | os.O_CLOEXEC
    pread = os.pread
    pwrite = os.pwrite

    def get_disk_space(directory: str) -> DiskSpace:
        """Return the disk space like `shutil.disk_usage`, but without importing the archive codecs of `shutil`."""
        disk = os.statvfs(directory)
        return DiskSpace(disk.f_blocks * disk.f_frsize, disk.f_bavail * disk.f_frsize)

    if sys.platform == "darwin":

        def sync_data(fd: int) -> None:
            """Sync with F_FULLFSYNC, because fsync on macOS does not flush the drive's cache."""
            fcntl.fcntl(fd, fcntl.F_FULLFSYNC)

        def preallocate(fd: int, size: int) -> None:
            """Do nothing: macOS preallocates blocks without extending the file, so syncs do not get cheaper."""

    else:
        sync_data = os.fdatasync

        def preallocate(fd: int, size: int) -> None:
            """Extend the file with zeros to `size`.

            Raises:
                OSError: The disk is full, or the file system does not support it.
            """
            os.posix_fallocate(fd, 0, size)

    def sync_directory(path: str) -> None:
        """Sync a directory, which makes its entries durable."""
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def lock_exclusive(fd: int, path: str) -> None:
        """Acquire an exclusive lock on a file without waiting.

        Raises:
            DataDirectoryInUse: Another process holds the lock.
        """
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise DataDirectoryInUse(f"{path} is locked by another process") from error
