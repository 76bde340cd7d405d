"""What every part that stores something may ask of a disk, and nothing more.

Paths are relative to the data folder and use "/". A write, truncation, sync, rename or removal that fails raises
StorageFailed, and from then on *every* such call on the same FileSystem raises it: after a failed write or sync the
kernel may have dropped the pages, so a later success would prove nothing. Reading stays possible.

What is durable, and when:
- bytes of a file, once `fdatasync` of that file returned;
- a name that was created, renamed or removed, once `sync_folder` of its folder returned.
"""

from __future__ import annotations

from typing import Protocol, TypeAlias

Buffer: TypeAlias = bytes | bytearray | memoryview


class File(Protocol):
    """One open file. Only `fdatasync` and `pread` may be called from another thread than the owner's."""

    path: str
    size: int

    @property
    def unsynced(self) -> bool:
        """Whether something was written that no successful `fdatasync` has covered yet."""

    def append(self, data: Buffer) -> int:
        """Writes all of `data` at the end and returns the position where it begins."""

    def pwrite(self, data: Buffer, position: int) -> None: ...

    def pread(self, size: int, position: int) -> bytes:
        """Reads `size` bytes from `position`; fewer only at the end of the file."""

    def fdatasync(self) -> None: ...

    def truncate(self, size: int) -> None: ...

    def reserve(self, size: int) -> None:
        """Lengthens the file with zeros to `size`, if the disk can do that without writing them.

        Syncing what is written there later is cheaper, since the file's length stays the same. Nothing happens when the
        disk has no room or cannot do it: whether there is room for data, its write will tell.
        """

    def close(self) -> None: ...


class Lock(Protocol):
    def close(self) -> None: ...


class FileSystem(Protocol):
    @property
    def failure(self) -> str | None:
        """What failed, if something has; from then on nothing more is written."""

    @property
    def is_short_of_descriptors(self) -> bool:
        """Whether files were opened with descriptors that had been held back: others should be closed."""

    def replenish_descriptors(self) -> None:
        """Holds back descriptors again, as many as can be had."""

    def open(self, path: str) -> File:
        """Raises FileNotFoundError when there is no such file."""

    def create(self, path: str) -> File:
        """Opens the file and makes an empty one first when there is none; its folder must exist."""

    def exists(self, path: str) -> bool: ...

    def size(self, path: str) -> int:
        """Raises FileNotFoundError when there is no such file."""

    def modified_ms(self, path: str) -> int:
        """Returns when it was last written to. Raises FileNotFoundError when there is no such file."""

    def rename(self, path: str, new_path: str) -> None:
        """Renames atomically; a file of the new name is replaced."""

    def remove(self, path: str) -> None:
        """Removes the file; nothing happens when there is none."""

    def make_folder(self, path: str) -> list[str]:
        """Makes the folder and its missing parents; returns all folders above it, innermost first.

        They must be synced before anything in the folder is durable, even if it was there already: whoever made it, or
        one of its parents, may not have synced them yet.
        """

    def remove_folder(self, path: str) -> None:
        """Removes an empty folder; nothing happens when there is none."""

    def list_folder(self, path: str) -> list[str]:
        """Returns the sorted names of files and folders in it; none when there is no such folder."""

    def sync_folder(self, path: str) -> None: ...

    def lock(self, path: str) -> Lock:
        """Locks until closed or until the process ends. Raises DataFolderInUse when another process holds the lock."""


def write_atomically(files: FileSystem, path: str, data: Buffer) -> None:
    """Replaces the file durably: after a power cut it holds the old bytes or the new ones, whole.

    The folder must exist, and the caller sees to the durability of the folder's own name.
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
    files.sync_folder(folder_of(path))


def read_file(files: FileSystem, path: str) -> bytes | None:
    """Returns the whole file, or None when there is none."""
    try:
        file = files.open(path)
    except FileNotFoundError:
        return None
    try:
        return file.pread(file.size, 0)
    finally:
        file.close()


def remove_tree(files: FileSystem, folder: str) -> None:
    """Removes a folder with all that is in it and makes that durable in the folder above."""
    _remove_contents(files, folder)
    files.remove_folder(folder)
    files.sync_folder(folder_of(folder))


def _remove_contents(files: FileSystem, folder: str) -> None:
    for name in files.list_folder(folder):
        path = f"{folder}/{name}"
        if files.list_folder(path):
            _remove_contents(files, path)
            files.remove_folder(path)
        elif files.exists(path):
            files.remove(path)
        else:
            files.remove_folder(path)


def folder_of(path: str) -> str:
    return path.rpartition("/")[0]


def folders_above(path: str) -> list[str]:
    """Returns them innermost first; the last one is the data folder itself."""
    folders = []
    while path:
        path = folder_of(path)
        folders.append(path)
    return folders
