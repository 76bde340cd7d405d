"""A bounded cache of open files, so that thousands of partitions do not need thousands of file descriptors.

Only one thread uses it. A file with unsynced writes is never evicted: the kernel reports a failed write-back only to
descriptors that were open at the time.
"""

from __future__ import annotations

from collections import OrderedDict

from chronik.files.interface import File, FileSystem

# Half of 1024, the usual default limit of a process; the other half is for sockets.
OPEN_FILES_MAX_DEFAULT = 512

# Unsynced files that an eviction skips before it lets the cache exceed its limit, so that opening a file stays cheap.
EVICTION_ATTEMPTS_MAX = 16


class FileCache:
    """A cache of open files with a maximum size."""

    def __init__(self, files: FileSystem, open_files_max: int = OPEN_FILES_MAX_DEFAULT) -> None:
        self.files = files
        self._open_files_max = open_files_max
        self._open: OrderedDict[str, File] = OrderedDict()
        self._pins: dict[File, int] = {}
        self._closing: set[File] = set()
        self._expendable: set[str] = set()

    def __len__(self) -> int:
        return len(self._open)

    def get(self, path: str) -> File:
        """Return the file at this path from the cache, or open it.

        Raises:
            FileNotFoundError: The file does not exist.
        """
        file = self._open.get(path)
        if file is not None:
            self._open.move_to_end(path)
            return file
        return self._add(self.files.open(path))

    def create(self, path: str, *, is_expendable: bool = False) -> File:
        """Open the file. Create an empty file if it does not exist.

        An expendable file may be closed with unsynced writes, because it can be rebuilt and is never synced.
        """
        if is_expendable:
            self._expendable.add(path)
        file = self._open.get(path)
        if file is not None:
            self._open.move_to_end(path)
            return file
        return self._add(self.files.create(path))

    def pin(self, file: File) -> None:
        """Keep a file open until `unpin` is called, because another thread is syncing it."""
        self._pins[file] = self._pins.get(file, 0) + 1

    def unpin(self, file: File) -> None:
        """Release a file that `pin` kept open, and close it if it was removed from the cache in the meantime."""
        self._pins[file] -= 1
        if self._pins[file]:
            return
        del self._pins[file]
        if file in self._closing:
            self._closing.remove(file)
            file.close()

    def close_file(self, path: str) -> None:
        """Close the file if it is open. Call this before the file is renamed or deleted."""
        self._expendable.discard(path)
        file = self._open.pop(path, None)
        if file is not None:
            self._close_open_file(file)

    def close_directory(self, directory: str) -> None:
        """Close all open files below a directory. Call this before the directory is renamed or deleted."""
        for path in [path for path in self._open if path.startswith(directory + "/")]:
            self.close_file(path)

    def close(self) -> None:
        """Close all files."""
        for path in list(self._open):
            self.close_file(path)

    def _add(self, file: File) -> File:
        self._open[file.path] = file
        if len(self._open) > self._open_files_max:
            self._evict_idle_files(self._open_files_max)
        if self.files.is_descriptor_reserve_depleted:
            self._evict_idle_files(len(self._open) - EVICTION_ATTEMPTS_MAX)
            self.files.refill_descriptor_reserve()
        return file

    def _evict_idle_files(self, left: int) -> None:
        """Close the least recently used idle files until at most `left` files are open."""
        for _ in range(min(EVICTION_ATTEMPTS_MAX, len(self._open) - 1)):
            path, file = self._open.popitem(last=False)
            if file not in self._pins and (not file.has_unsynced_writes or path in self._expendable):
                self._expendable.discard(path)
                file.close()
                if len(self._open) <= left:
                    return
            else:
                self._open[path] = file

    def _close_open_file(self, file: File) -> None:
        if file in self._pins:
            self._closing.add(file)
        else:
            file.close()
