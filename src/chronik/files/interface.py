"""The file system interface for all components that store data.

Paths are relative to the data directory and use "/". A write, truncation, sync, rename or removal that fails raises
StorageError, and from then on *every* such call on the same FileSystem raises it: after a failed write or sync the
kernel may have dropped the pages, so a later success would prove nothing. Reading stays possible.

Durability:
- The bytes of a file are durable once `fdatasync` of the file has returned.
- A created, renamed or removed name is durable once `sync_directory` of its directory has returned.
"""

from __future__ import annotations

from typing import Protocol, TypeAlias

Buffer: TypeAlias = bytes | bytearray | memoryview


class File(Protocol):
    """The interface of an open file. Threads other than the owner may call only `fdatasync` and `pread`."""

    path: str
    size: int

    @property
    def has_unsynced_writes(self) -> bool:
        """Whether the file has writes that are not covered by a successful `fdatasync`."""

    def append(self, data: Buffer) -> int:
        """Append all of `data` to the file, and return the position where it starts."""

    def pwrite(self, data: Buffer, position: int) -> None: ...

    def pread(self, size: int, position: int) -> bytes:
        """Read `size` bytes from `position`, or fewer at the end of the file."""

    def fdatasync(self) -> None: ...

    def truncate(self, size: int) -> None: ...

    def preallocate(self, size: int) -> None:
        """Extend the file with zeros to `size` bytes if the file system supports this without writing the zeros.

        Later syncs are then cheaper, because the file's length stays the same. Failures are ignored: if the disk is
        full, the write itself will fail.
        """

    def close(self) -> None: ...


class FileLock(Protocol):
    """A held file lock."""

    def close(self) -> None: ...


class FileSystem(Protocol):
    """The interface of a data directory's files, which are on disk or in memory."""

    @property
    def failure(self) -> str | None:
        """Description of the first storage failure, or None. After a failure, all writes fail."""

    @property
    def is_descriptor_reserve_depleted(self) -> bool:
        """Whether open files use reserved descriptors, so that the caller should close other files."""

    def refill_descriptor_reserve(self) -> None:
        """Reserve file descriptors again, as far as the process has any left."""

    def open(self, path: str) -> File:
        """Open an existing file.

        Raises:
            FileNotFoundError: The file does not exist.
        """

    def create(self, path: str) -> File:
        """Open the file. Create an empty file if it does not exist. Its directory must exist."""

    def exists(self, path: str) -> bool: ...

    def size(self, path: str) -> int:
        """Return the size of the file in bytes.

        Raises:
            FileNotFoundError: The file does not exist.
        """

    def modified_ms(self, path: str) -> int:
        """Return the modification time of the file in milliseconds since the epoch.

        Raises:
            FileNotFoundError: The file does not exist.
        """

    def rename(self, path: str, new_path: str) -> None:
        """Atomically rename a file, replacing an existing file with the new name."""

    def remove(self, path: str) -> None:
        """Delete the file if it exists."""

    def make_directory(self, path: str) -> list[str]:
        """Create the directory and its missing parents, and return all parents, innermost first.

        The parents must be synced before anything in the directory is durable, even if it existed: they may have been
        created without a sync.
        """

    def remove_directory(self, path: str) -> None:
        """Delete an empty directory if it exists."""

    def list_directory(self, path: str) -> list[str]:
        """Return the sorted names in a directory; empty if the directory does not exist."""

    def sync_directory(self, path: str) -> None: ...

    def lock(self, path: str) -> FileLock:
        """Lock a file until the lock is closed or the process exits.

        Raises:
            DataDirectoryInUse: Another process holds the lock.
        """


def write_atomically(files: FileSystem, path: str, data: Buffer) -> None:
    """Durably replace a file. After a power failure, it has either the old or the new contents.

    The directory must exist and be durable itself.
    """
    temporary = path + ".tmp"
    files.remove(temporary)
    file = files.create(temporary)
    try:
        file.append(data)
        file.fdatasync()
    finally:
        file.close()
    files.rename(temporary, path)
    files.sync_directory(parent_directory(path))


def read_file(files: FileSystem, path: str) -> bytes | None:
    """Return the contents of a file, or None if it does not exist."""
    try:
        file = files.open(path)
    except FileNotFoundError:
        return None
    try:
        return file.pread(file.size, 0)
    finally:
        file.close()


def remove_tree(files: FileSystem, directory: str) -> None:
    """Durably delete a directory with its contents."""
    _remove_contents(files, directory)
    files.remove_directory(directory)
    files.sync_directory(parent_directory(directory))


def _remove_contents(files: FileSystem, directory: str) -> None:
    for name in files.list_directory(directory):
        path = f"{directory}/{name}"
        if files.list_directory(path):
            _remove_contents(files, path)
            files.remove_directory(path)
        elif files.exists(path):
            files.remove(path)
        else:
            files.remove_directory(path)


def parent_directory(path: str) -> str:
    """Return the parent directory of a path."""
    return path.rpartition("/")[0]


def parent_directories(path: str) -> list[str]:
    """Return all parent directories of a path, innermost first, up to the data directory itself."""
    directories = []
    while path:
        path = parent_directory(path)
        directories.append(path)
    return directories
