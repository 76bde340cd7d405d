"""Small files joined, and files that no version needs taken away. Offsets and rows stay as they are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from deltalake import DeltaTable, WriterProperties
from deltalake.exceptions import CommitFailedError

from chronik.errors import ChronikError
from chronik.pipeline.tables.committer import CommitFailed
from chronik.pipeline.tables.parquet import CODEC, FILE_BYTES_TARGET

COMPACT_TASKS_MAX = 2
"""Partitions that are joined at once: each holds row groups of all its files."""

COMPACT_ATTEMPTS_MAX = 5
"""A column that is added, or another compaction, fails this one; landing does not."""

KEEP_HOURS = 7 * 24
"""Delta's own default: queries that run, and travel back in time."""

KEEP_HOURS_MIN = 1
"""A file that was written but not committed yet looks like an orphan. Tasks write for minutes, not for an hour."""


class VacuumRefused(ChronikError):
    """It could take files that a pipeline has written and not committed yet."""


@dataclass(frozen=True, slots=True)
class Compacted:
    version: int
    files_removed: int
    files_added: int


def compact(
    uri: str,
    *,
    file_bytes: int = FILE_BYTES_TARGET,
    partitions: list[tuple[str, str, Any]] | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> Compacted:
    """Joins small files, within `partitions` (`[("_date", ">=", "2024-05-01")]`) or everywhere. Raises CommitFailed."""
    for _ in range(COMPACT_ATTEMPTS_MAX):
        table = _open(uri, storage_options)
        try:
            metrics = table.optimize.compact(
                partition_filters=partitions,
                target_size=file_bytes,
                max_concurrent_tasks=COMPACT_TASKS_MAX,
                # Each partition is committed when it is done, so that a conflict costs one of them and not all.
                min_commit_interval=timedelta(0),
                writer_properties=WriterProperties(compression=CODEC.upper(), compression_level=1),
            )
        except CommitFailedError as error:
            last = error
            continue
        return Compacted(table.version(), metrics["numFilesRemoved"], metrics["numFilesAdded"])
    raise CommitFailed(f"{uri}: {last}") from last


def vacuum(
    uri: str,
    *,
    keep_hours: int = KEEP_HOURS,
    pipeline_stopped: bool = False,
    dry_run: bool = False,
    storage_options: Mapping[str, str] | None = None,
) -> list[str]:
    """Removes files that no version of the last `keep_hours` names, orphans of killed tasks among them, and returns
    their paths. Raises VacuumRefused under an hour, unless the caller knows that no pipeline writes to this table."""
    if keep_hours < KEEP_HOURS_MIN and not pipeline_stopped:
        raise VacuumRefused(
            f"files younger than {KEEP_HOURS_MIN} h may belong to a batch that is being written: stop the pipeline"
        )
    table = _open(uri, storage_options)
    return list(table.vacuum(keep_hours, dry_run=dry_run, enforce_retention_duration=False, full=True))


def _open(uri: str, storage_options: Mapping[str, str] | None) -> DeltaTable:
    return DeltaTable(uri, storage_options=dict(storage_options) if storage_options else None)
