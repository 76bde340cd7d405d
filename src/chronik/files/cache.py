"""A bounded set of open files, so that thousands of partitions do not need thousands of descriptors.

Used by one thread. A file that holds unsynced writes is never closed to make room: the kernel reports a failed
write-back through descriptors that were open at the time, and a new one might not hear of it.
"""

from __future__ import annotations

from collections import OrderedDict

from chronik.files.interface import File, FileSystem

# Half of 1024, the usual limit of a process that nobody configured; the other half is for sockets.
OPEN_FILES_MAX_DEFAULT = 512

# How many unsynced files are passed over before the limit is exceeded for a while: opening
# stays cheap when all are dirty.
EVICTION_TRIES_MAX = 16


class FileCache:
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
        """Raises FileNotFoundError when there is no such file."""
        file = self._open.get(path)
        if file is not None:
            self._open.move_to_end(path)
            return file
        return self._keep(self.files.open(path))

    def create(self, path: str, *, expendable: bool = False) -> File:
        """Opens the file and makes an empty one first when there is none.

        An expendable file may be closed with unsynced writes: it can be rebuilt, so nobody ever syncs it.
        """
        if expendable:
            self._expendable.add(path)
        file = self._open.get(path)
        if file is not None:
            self._open.move_to_end(path)
            return file
        return self._keep(self.files.create(path))

    def pin(self, file: File) -> None:
        """Keeps the descriptor open until `unpin`, even when the file is forgotten: another thread is syncing it."""
        self._pins[file] = self._pins.get(file, 0) + 1

    def unpin(self, file: File) -> None:
        self._pins[file] -= 1
        if self._pins[file]:
            return
        del self._pins[file]
        if file in self._closing:
            self._closing.remove(file)
            file.close()

    def forget(self, path: str) -> None:
        """Closes the file, if open: call before it is renamed or removed."""
        self._expendable.discard(path)
        file = self._open.pop(path, None)
        if file is not None:
            self._close(file)

    def forget_folder(self, folder: str) -> None:
        """Closes what is open below `folder`: call before it is renamed or removed."""
        for path in [path for path in self._open if path.startswith(folder + "/")]:
            self.forget(path)

    def close(self) -> None:
        for path in list(self._open):
            self.forget(path)

    def _keep(self, file: File) -> File:
        self._open[file.path] = file
        if len(self._open) > self._open_files_max:
            self._evict(self._open_files_max)
        if self.files.is_short_of_descriptors:
            self._evict(len(self._open) - EVICTION_TRIES_MAX)
            self.files.replenish_descriptors()
        return file

    def _evict(self, left: int) -> None:
        """Closes files until no more than `left` are open, as far as that can be done in a few tries."""
        for _ in range(min(EVICTION_TRIES_MAX, len(self._open) - 1)):
            path, file = self._open.popitem(last=False)
            if file not in self._pins and (not file.unsynced or path in self._expendable):
                self._expendable.discard(path)
                file.close()
                if len(self._open) <= left:
                    return
            else:
                self._open[path] = file

    def _close(self, file: File) -> None:
        if file in self._pins:
            self._closing.add(file)
        else:
            file.close()
