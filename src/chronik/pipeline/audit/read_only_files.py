"""A read-only file system for data directories of running nodes, for users without write permission."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NoReturn

from chronik.errors import StorageError
from chronik.files.disk import DiskFile, DiskFileSystem

_READ_FLAGS = os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)


class ReadOnlyFileSystem(DiskFileSystem):
    """A file system that rejects changes. Creating directories and syncing names, as readers do on open, are no-ops."""

    def __init__(self, root: str | Path) -> None:
        self.root = str(root)
        self.failure = None

    def open(self, path: str) -> DiskFile:
        return DiskFile(self, path, os.open(self._full(path), _READ_FLAGS))

    def create(self, path: str) -> DiskFile:
        return self.open(path)

    def make_directory(self, path: str) -> list[str]:
        return []

    def sync_directory(self, path: str) -> None:
        return

    def rename(self, path: str, new_path: str) -> NoReturn:
        raise StorageError(f"cannot rename {self._full(path)}: the audit opens data directories read-only")

    def remove(self, path: str) -> NoReturn:
        raise StorageError(f"cannot remove {self._full(path)}: the audit opens data directories read-only")
