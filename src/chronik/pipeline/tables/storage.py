"""Storage of a table's files: a local directory, or an object store with delta-rs's URIs and options."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from pyarrow import fs

from chronik.errors import ConfigError
from chronik.pipeline.tables.storage_options import is_object_store, is_s3, resolve_storage_options

DEAD_LETTERS_SUFFIX = "~dead_letters"
"""Suffix of dead-letter tables. Topic names cannot contain `~`, so it never clashes with another topic's table."""

ENCODED_CHARACTER = re.compile("%[0-9A-Fa-f]{2}")
S3_WITHOUT_SLASHES = re.compile("s3a?:/?(?!/)", re.IGNORECASE)
"""Matches `s3:/lake`, which `pathlib.Path` makes of `s3://lake`."""

REQUESTS_MAX = 16
"""Maximum number of concurrent requests of one process to list or examine files of an object store."""


def table_uri(root: str, topic: str) -> str:
    return f"{root.rstrip('/')}/{topic}"


def build_dead_letters_uri(root: str, topic: str) -> str:
    return table_uri(root, topic) + DEAD_LETTERS_SUFFIX


def get_parent_uri(uri: str) -> str:
    """Return the URI of the table root that contains a table."""
    return uri.rstrip("/").rpartition("/")[0]


def to_absolute_root(root: str) -> str:
    """Return an absolute root, since tasks and Connect servers may have other working directories.

    Raises:
        ConfigError: The root is empty, or looks like an S3 URI with too few slashes.
    """
    if not root.strip():
        raise ConfigError("the table root is empty; expected a directory or s3://BUCKET/PREFIX")
    _check_slashes(root)
    return os.path.abspath(root) if "://" not in root else root


def local_directory(uri: str) -> Path | None:
    """Return the directory of a local table, or None for an object store."""
    parts = urlsplit(uri)
    if parts.scheme == "file":
        return Path(unquote(parts.path))
    return None if "://" in uri else Path(uri)


def check_table_uri(uri: str) -> None:
    """Check that delta-rs, which decodes directory names twice, opens the same directory for this table URI.

    Raises:
        ConfigError: The directory name contains a percent-encoded character, or the URL is ambiguous.
    """
    directory = local_directory(uri)
    _check_slashes(uri)
    if is_object_store(uri):
        _check_object_store_uri(uri)
    if directory is None:
        return
    if "://" in uri and ("?" in uri or "#" in uri):
        raise ConfigError(f"{uri}: write %3F for ? and %23 for # in a file URL")
    encoded = ENCODED_CHARACTER.search(os.path.realpath(directory))
    if encoded is not None:
        problem = f"Delta readers decode {encoded[0]} in a directory name as {unquote(encoded[0])!r}"
        raise ConfigError(f"{directory}: {problem}: choose another name")


def _check_slashes(uri: str) -> None:
    if S3_WITHOUT_SLASHES.match(uri):
        raise ConfigError(f"{uri}: write s3://BUCKET/PREFIX, as text and not as a pathlib.Path")


def _check_object_store_uri(uri: str) -> None:
    parts = urlsplit(uri)
    if not parts.netloc:
        raise ConfigError(f"{uri}: no bucket: write {parts.scheme}://BUCKET/PREFIX")
    found = next((character for character in "?#%" if character in uri), None)
    if found is not None:
        raise ConfigError(
            f"{uri}: Delta readers do not support {found} in the name of a table root: choose another name"
        )


class TableStorage:
    """The storage of one table's files, on a local disk or in an object store."""

    def __init__(self, uri: str, options: Mapping[str, str] | None = None) -> None:
        self._uri = uri.rstrip("/")
        self._options = options
        self._directory = local_directory(uri)
        if self._directory is not None:
            self.filesystem: Any = fs.LocalFileSystem()
        else:
            from chronik.pipeline.tables.object_store_files import open_object_store

            self.filesystem = open_object_store(uri, resolve_storage_options(uri, options))

    def full_path(self, path: str) -> str:
        """Return the path of a file of the table in the format that `filesystem` expects."""
        return path if self._directory is None else str(self._directory / path)

    def describe_path(self, path: str) -> str:
        """Return the location of a file of the table for use in messages: a path, or a URI in an object store."""
        return self.full_path(path) if self._directory is not None else f"{self._uri}/{path}"

    def create(self, path: str) -> Any:
        """Create a file for writing, and return an object with `write`, `tell` and `close`."""
        if self._directory is None:
            return self.filesystem.open_output_stream(path)
        make_directory_durably(self._directory / Path(path).parent)
        return self.filesystem.open_output_stream(self.full_path(path))

    def sync_file(self, path: str) -> None:
        """Sync a closed local file, because a commit must not add a file that a power failure can lose."""
        if self._directory is not None:
            fsync_path(self._directory / path)
            fsync_path((self._directory / path).parent)

    def get_modification_times(self, paths: Sequence[str]) -> dict[str, float]:
        """Return the modification time of each existing file, in seconds since the Unix epoch."""
        full_paths = [self.full_path(path) for path in paths]
        if self._directory is not None:
            found = self.filesystem.get_file_info(full_paths)
        else:
            with ThreadPoolExecutor(REQUESTS_MAX) as pool:
                found = list(pool.map(self.filesystem.get_file_info, full_paths))
        return {
            path: math.inf if info.mtime is None else info.mtime.timestamp()  # unknown counts as new
            for path, info in zip(paths, found, strict=True)
            if info.type is fs.FileType.File
        }

    def remove(self, path: str) -> None:
        """Delete a file if it exists."""
        if self._directory is None:
            with suppress(FileNotFoundError):
                self.filesystem.delete_file(path)
        else:
            (self._directory / path).unlink(missing_ok=True)

    def abort_uploads(self, before_s: float, *, dry_run: bool = False) -> list[str]:
        """Abort multipart uploads that started before a time and were never completed; return the files' paths.

        Only S3 has uploads that a killed process leaves behind.

        Raises:
            ConfigError: The package that lists uploads is not installed.
            TableStorageError: The store does not list uploads, or denies access.
        """
        if not is_s3(self._uri):
            return []
        from chronik.pipeline.tables.unfinished_uploads import abort_upload, list_unfinished_uploads

        options = resolve_storage_options(self._uri, self._options)
        uploads = [each for each in list_unfinished_uploads(self._uri, options) if each.started_s < before_s]
        for each in () if dry_run else uploads:
            abort_upload(self._uri, options, each)
        return sorted(each.path for each in uploads)

    def discard_files(self, paths: Iterable[str]) -> None:
        """Delete files that are not part of any table version; a vacuum removes those that cannot be deleted now."""
        for path in paths:
            with suppress(OSError):
                self.remove(path)


def make_directory_durably(directory: Path) -> None:
    """Create a directory and its parents, each of them durably."""
    if not directory.exists():
        make_directory_durably(directory.parent)
        directory.mkdir(exist_ok=True)
        fsync_path(directory.parent)


def fsync_path(path: Path) -> None:
    """Call fsync on a file or directory."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
