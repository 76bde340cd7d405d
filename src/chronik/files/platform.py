"""The few system calls that differ between Linux, macOS and Windows."""

from __future__ import annotations

import os
import sys
from typing import NamedTuple

from chronik.errors import DataFolderInUse


class DiskSpace(NamedTuple):
    total_bytes: int
    free_bytes: int
    """What is left for those who are not root."""


if sys.platform == "win32":
    # Windows knows no positional reads and writes: seek and transfer, one thread at a time.
    import msvcrt
    import threading

    _seeking = threading.Lock()
    OPEN_FLAGS = os.O_RDWR | os.O_BINARY | os.O_NOINHERIT

    def pread(fd: int, size: int, position: int) -> bytes:
        with _seeking:
            os.lseek(fd, position, os.SEEK_SET)
            return os.read(fd, size)

    def pwrite(fd: int, data: bytes | bytearray | memoryview, position: int) -> int:
        with _seeking:
            os.lseek(fd, position, os.SEEK_SET)
            return os.write(fd, data)

    sync_data = os.fsync

    def reserve(fd: int, size: int) -> None:
        """Does nothing: Windows has no call for it that takes a file descriptor."""

    def sync_folder(path: str) -> None:
        """Does nothing: NTFS journals names by itself, and folders cannot be opened for syncing."""

    def disk_space(folder: str) -> DiskSpace:
        import shutil

        usage = shutil.disk_usage(folder)
        return DiskSpace(usage.total, usage.free)

    def lock_exclusively(fd: int, path: str) -> None:
        try:
            msvcrt.locking(fd, msvcrt.LK_NBLCK, 1)
        except OSError as error:
            raise DataFolderInUse(f"{path} is locked by another process") from error

else:
    import fcntl

    OPEN_FLAGS = os.O_RDWR | os.O_CLOEXEC
    pread = os.pread
    pwrite = os.pwrite

    def disk_space(folder: str) -> DiskSpace:
        """As `shutil.disk_usage` has it, which comes with half a megabyte of codecs for archives."""
        disk = os.statvfs(folder)
        return DiskSpace(disk.f_blocks * disk.f_frsize, disk.f_bavail * disk.f_frsize)

    if sys.platform == "darwin":

        def sync_data(fd: int) -> None:
            """On macOS fsync stops at the drive's cache; only F_FULLFSYNC goes through it."""
            fcntl.fcntl(fd, fcntl.F_FULLFSYNC)

        def reserve(fd: int, size: int) -> None:
            """Does nothing: macOS sets blocks aside, but does not lengthen the file, which makes syncs cheaper."""

    else:
        sync_data = os.fdatasync

        def reserve(fd: int, size: int) -> None:
            """Raises OSError when the disk is full or the file system cannot do it."""
            os.posix_fallocate(fd, 0, size)

    def sync_folder(path: str) -> None:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def lock_exclusively(fd: int, path: str) -> None:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise DataFolderInUse(f"{path} is locked by another process") from error
