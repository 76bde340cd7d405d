"""Where a table's files lie: a folder, or an object store by the same URI and options that delta-rs takes."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from pyarrow import fs

from chronik.errors import ConfigError

DEAD_LETTERS_SUFFIX = "~dead_letters"
"""No topic's name has a `~`, so the dead letters of one topic are never the table of another."""

ENCODED_CHARACTER = re.compile("%[0-9A-Fa-f]{2}")


def table_uri(root: str, topic: str) -> str:
    return f"{root.rstrip('/')}/{topic}"


def dead_letters_uri(root: str, topic: str) -> str:
    return table_uri(root, topic) + DEAD_LETTERS_SUFFIX


def absolute_root(root: str) -> str:
    """Makes it absolute: tasks, and a Connect server, run elsewhere, where a relative path means something else."""
    return os.path.abspath(root) if "://" not in root else root


def local_folder(uri: str) -> Path | None:
    """Returns None for an object store."""
    parts = urlsplit(uri)
    if parts.scheme == "file":
        return Path(unquote(parts.path))
    return None if "://" in uri else Path(uri)


def check_place(uri: str) -> None:
    """Raises ConfigError for a place that delta-rs would take for another: it decodes the names of folders twice."""
    folder = local_folder(uri)
    if folder is None:
        return
    if "://" in uri and ("?" in uri or "#" in uri):
        raise ConfigError(f"{uri}: in the URL of a folder, write %3F for ? and %23 for #")
    encoded = ENCODED_CHARACTER.search(os.path.realpath(folder))
    if encoded is not None:
        told = f"{encoded[0]} in the name of a folder stands for {unquote(encoded[0])!r} to readers of Delta tables"
        raise ConfigError(f"{folder}: {told}: choose another")


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
        """Returns the path as `filesystem` takes it."""
        return path if self._folder is None else str(self._folder / path)

    def create(self, path: str) -> Any:
        """Opens a file to write to, which has `write`, `tell` and `close`."""
        if self._folder is None:
            return self.filesystem.open_output_stream(path)
        make_folder(self._folder / Path(path).parent)
        return self.filesystem.open_output_stream(self.full_path(path))

    def make_durable(self, path: str) -> None:
        """Called after `close`: a commit must not name a file that a power cut can take. (Object stores see to it.)"""
        if self._folder is not None:
            sync(self._folder / path)
            sync((self._folder / path).parent)

    def modified_s(self, paths: Sequence[str]) -> dict[str, float]:
        """Returns when each of these files was written, without those that are not there."""
        found = self.filesystem.get_file_info([self.full_path(path) for path in paths])
        return {
            path: math.inf if info.mtime is None else info.mtime.timestamp()  # nobody knows: then it is not old
            for path, info in zip(paths, found, strict=True)
            if info.type is fs.FileType.File
        }

    def remove(self, path: str) -> None:
        """Does nothing when it is not there."""
        if self._folder is None:
            with suppress(FileNotFoundError):
                self.filesystem.delete_file(path)
        else:
            (self._folder / path).unlink(missing_ok=True)

    def discard(self, paths: Iterable[str]) -> None:
        """Takes back files that no version of the table names. What cannot be removed is left for vacuum."""
        for path in paths:
            with suppress(OSError):
                self.remove(path)


def make_folder(folder: Path) -> None:
    """Makes it with those above it, each of them durable."""
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
