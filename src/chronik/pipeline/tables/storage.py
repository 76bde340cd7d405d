"""Where a table's files lie: a folder, or an object store by the same URI and options that delta-rs takes."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from pyarrow import fs

DEAD_LETTERS_SUFFIX = "~dead_letters"
"""No topic's name has a `~`, so the dead letters of one topic are never the table of another."""


def table_uri(root: str, topic: str) -> str:
    return f"{root.rstrip('/')}/{topic}"


def dead_letters_uri(root: str, topic: str) -> str:
    return table_uri(root, topic) + DEAD_LETTERS_SUFFIX


def local_folder(uri: str) -> Path | None:
    """None for an object store."""
    parts = urlsplit(uri)
    if parts.scheme == "file":
        return Path(unquote(parts.path))
    return None if "://" in uri else Path(uri)


class Storage:
    """Files under one table."""

    def __init__(self, uri: str, options: Mapping[str, str] | None = None) -> None:
        self._folder = local_folder(uri)
        if self._folder is not None:
            self.filesystem: Any = fs.LocalFileSystem()
        else:
            from deltalake.fs import DeltaStorageHandler

            self.filesystem = fs.PyFileSystem(DeltaStorageHandler(uri, dict(options) if options else None))

    def full_path(self, path: str) -> str:
        """As `filesystem` takes it."""
        return path if self._folder is None else str(self._folder / path)

    def create(self, path: str) -> Any:
        """A file to write to: has `write`, `tell` and `close`."""
        if self._folder is None:
            return self.filesystem.open_output_stream(path)
        make_folder(self._folder / Path(path).parent)
        return self.filesystem.open_output_stream(self.full_path(path))

    def make_durable(self, path: str) -> None:
        """After `close`: a commit must never name a file that a power cut can take. (Object stores have it.)"""
        if self._folder is not None:
            sync(self._folder / path)
            sync((self._folder / path).parent)

    def missing(self, paths: Sequence[str]) -> list[str]:
        """Those of these files that are not there."""
        found = self.filesystem.get_file_info([self.full_path(path) for path in paths])
        return [path for path, info in zip(paths, found, strict=True) if info.type is not fs.FileType.File]

    def remove(self, path: str) -> None:
        if self._folder is None:
            self.filesystem.delete_file(path)
        else:
            (self._folder / path).unlink(missing_ok=True)


def make_folder(folder: Path) -> None:
    """With those above it, each of them durable."""
    if not folder.exists():
        make_folder(folder.parent)
        folder.mkdir(exist_ok=True)
        sync(folder.parent)


def sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
