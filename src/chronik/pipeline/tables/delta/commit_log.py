"""The entries of a table's transaction log on a local disk: durable before anybody is told of them, and whole.

Delta-rs writes an entry and links it, without fsync: a power cut can leave one that has a name and no content, and an
empty one it passes over in silence, with all rows that it added. So each commit makes its entry durable, and first the
one that it follows, whoever wrote that: then only the last entry can ever be torn, and nobody relied on it. Object
stores need none of it: what they have said to have, they have, and whole.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path

from chronik.pipeline.tables.storage import local_folder, sync
from chronik.pipeline.tables.topic_table import TableTorn

LOG_FOLDER = "_delta_log"
LAST_CHECKPOINT = "_last_checkpoint"

TAIL_BYTES = 16
"""Enough to see how an entry ends, blank lines after it included."""


def make_entry_durable(uri: str, version: int) -> None:
    """Syncs the entry of this version, and the checkpoint that a commit writes after some. Raises OSError."""
    folder = local_folder(uri)
    if folder is None:
        return
    log = folder / LOG_FOLDER
    # Another may be about to write the checkpoint, or to clean up what lies before one.
    with suppress(FileNotFoundError):
        sync(_entry(log, version))
    with suppress(FileNotFoundError):
        sync(log / f"{version:020}.checkpoint.parquet")
        sync(log / LAST_CHECKPOINT)
    sync(log)
    if version == 0:
        sync(folder)  # which has got its log just now


def check_entries(uri: str) -> None:
    """Raises TableTorn when an entry since the last checkpoint is empty or breaks off."""
    folder = local_folder(uri)
    if folder is None:
        return
    log = folder / LOG_FOLDER
    version = _last_checkpoint(log) + 1
    while (whole := _is_whole(_entry(log, version))) is not None:
        if not whole:
            raise TableTorn(_said(log, version))
        version += 1


def _entry(log: Path, version: int) -> Path:
    return log / f"{version:020}.json"


def _last_checkpoint(log: Path) -> int:
    """Returns -1 when there is none, or when it cannot be read."""
    try:
        return int(json.loads((log / LAST_CHECKPOINT).read_bytes())["version"])
    except (FileNotFoundError, NotADirectoryError, ValueError, KeyError, TypeError):
        return -1


def _is_whole(entry: Path) -> bool | None:
    """Returns None when there is no such entry."""
    try:
        with entry.open("rb", buffering=0) as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - TAIL_BYTES))
            return file.read().rstrip().endswith(b"}")
    except (FileNotFoundError, NotADirectoryError):
        return None


def _said(log: Path, version: int) -> str:
    entry = _entry(log, version)
    if _entry(log, version + 1).exists():
        return f"{entry} is empty or breaks off, and later ones rely on it: the table must come from a backup"
    return f"{entry} is empty or breaks off, as a power cut leaves it: nobody was told of this commit; remove the file"
