"""Durability of a local table's transaction log.

Delta-rs writes and links a log entry without fsync. A power failure can leave an entry with a name and no content, and
delta-rs silently skips an empty one with all rows that it added. Every commit therefore syncs its entry, and first the
previous one (by any writer): only the last entry can ever be torn, and no client relies on it. Object stores need none
of this, because their writes are atomic and durable.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from pyarrow import fs

from chronik.pipeline.tables.storage import TableStorage, fsync_path, local_directory
from chronik.pipeline.tables.topic_table import TornLogError

LOG_DIRECTORY = "_delta_log"
LAST_CHECKPOINT = "_last_checkpoint"

TAIL_BYTES = 16
"""Number of bytes read from the end of an entry to detect truncation, including trailing blank lines."""


def sync_log_entry(uri: str, version: int) -> None:
    """Sync the log entry of a version, and the checkpoint that a commit may write after it.

    Raises:
        OSError: A file cannot be synced.
    """
    directory = local_directory(uri)
    if directory is None:
        return
    log = directory / LOG_DIRECTORY
    # Another writer may be about to write the checkpoint, or to clean up older entries.
    with suppress(FileNotFoundError):
        fsync_path(_build_entry_path(log, version))
    with suppress(FileNotFoundError):
        fsync_path(log / f"{version:020}.checkpoint.parquet")
        fsync_path(log / LAST_CHECKPOINT)
    fsync_path(log)
    if version == 0:
        fsync_path(directory)  # the log directory is new


def check_log_entries(uri: str) -> None:
    """Check the log entries since the last checkpoint.

    Raises:
        TornLogError: An entry is empty or truncated.
    """
    directory = local_directory(uri)
    if directory is None:
        return
    log = directory / LOG_DIRECTORY
    version = _find_last_checkpoint(log) + 1
    while (is_complete := _is_entry_complete(_build_entry_path(log, version))) is not None:
        if not is_complete:
            raise TornLogError(_format_torn_entry_message(log, version))
        version += 1


def build_entry_path(version: int) -> str:
    """Return the path of a version's log entry, relative to the table."""
    return f"{LOG_DIRECTORY}/{version:020}.json"


@dataclass(frozen=True, slots=True)
class LogExtent:
    """The number of versions that a table's log describes, and the number of entries to read."""

    versions_kept: int
    """All versions since the first entry or checkpoint."""
    entries_since_checkpoint: int


def read_log_extent(storage: TableStorage, version: int) -> LogExtent:
    """Return the extent of a table's log up to `version`.

    Raises:
        OSError: The log cannot be listed.
    """
    selector = fs.FileSelector(storage.full_path(LOG_DIRECTORY), allow_not_found=True)
    names = [info.base_name for info in storage.filesystem.get_file_info(selector)]
    starts = [start for name in names if (start := _parse_first_version(name)) is not None and start <= version]
    last_checkpoint = max((start for name in names if (start := _parse_checkpoint(name)) is not None), default=-1)
    first = min((start for start in starts if start < version), default=version)
    return LogExtent(version - first + 1, max(0, version - last_checkpoint))


def _parse_first_version(name: str) -> int | None:
    """Return the version that readers restore from this file of the log without earlier files, or None."""
    number, _, kind = name.partition(".")
    is_start = kind.startswith("checkpoint.") or (kind == "json" and not number.strip("0"))
    return int(number) if number.isdecimal() and is_start else None


def _parse_checkpoint(name: str) -> int | None:
    """Return the version of a checkpoint file, or None for another file."""
    number, _, kind = name.partition(".")
    return int(number) if number.isdecimal() and kind.startswith("checkpoint.") else None


def _build_entry_path(log: Path, version: int) -> Path:
    return log / f"{version:020}.json"


def _find_last_checkpoint(log: Path) -> int:
    """Return the version of the last readable checkpoint, or -1 if there is none."""
    try:
        return int(json.loads((log / LAST_CHECKPOINT).read_bytes())["version"])
    except (FileNotFoundError, NotADirectoryError, ValueError, KeyError, TypeError):
        return -1


def _is_entry_complete(entry: Path) -> bool | None:
    """Return whether a log entry is complete, or None if it does not exist."""
    try:
        with entry.open("rb", buffering=0) as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - TAIL_BYTES))
            return file.read().rstrip().endswith(b"}")
    except (FileNotFoundError, NotADirectoryError):
        return None


def _format_torn_entry_message(log: Path, version: int) -> str:
    entry = _build_entry_path(log, version)
    if _build_entry_path(log, version + 1).exists():
        return f"{entry} is empty or truncated, and later entries depend on it: restore the table from a backup"
    return f"{entry} is empty or truncated after a power failure; its commit was never acknowledged: delete the file"
