"""Files that no version needs any more, taken away; and never those that a pipeline is about to commit."""

from __future__ import annotations

from collections.abc import Mapping

from chronik.errors import ChronikError
from chronik.pipeline.tables.delta.commit_log import make_entry_durable
from chronik.pipeline.tables.delta.table import open_delta
from chronik.pipeline.tables.in_flight import ORPHAN_HOURS_MIN
from chronik.pipeline.tables.storage import Storage

KEEP_HOURS = 7 * 24
"""Delta's own default: queries that run, and travel back in time."""

KEEP_HOURS_MIN = 1
"""Queries and jobs that run read files that a later version may have replaced. They take minutes, not an hour."""


class VacuumRefused(ChronikError):
    """It could take files that a pipeline or a query that runs still needs."""


def vacuum(
    uri: str,
    *,
    keep_hours: int = KEEP_HOURS,
    pipeline_stopped: bool = False,
    dry_run: bool = False,
    storage_options: Mapping[str, str] | None = None,
) -> list[str]:
    """Removes files that no version of the last `keep_hours` names, and returns their paths. What no version ever named
    (orphans of killed tasks, and files that a pipeline is about to commit) goes after that time too, but not before
    `ORPHAN_HOURS_MIN`, unless the caller knows that no pipeline writes to this table. Raises VacuumRefused under an
    hour, unless the caller knows that."""
    check_keep_hours(keep_hours, pipeline_stopped)
    removed = _taken(uri, keep_hours, False, dry_run, storage_options)
    orphan_hours = keep_hours if pipeline_stopped else max(keep_hours, ORPHAN_HOURS_MIN)
    removed += _taken(uri, orphan_hours, True, dry_run, storage_options)
    return list(dict.fromkeys(removed))


def _taken(
    uri: str, hours: int, orphans: bool, dry_run: bool, storage_options: Mapping[str, str] | None
) -> list[str]:
    """What no version of these hours names any more, and what none ever did, if orphans are meant too."""
    table = open_delta(uri, storage_options)
    listed = table.vacuum(hours, dry_run=True, enforce_retention_duration=False, full=orphans)
    # As long as the log remembers files that were removed from the table, they are listed, be they there or not.
    there = list(Storage(uri, storage_options).modified_s(listed))
    if there and not dry_run:
        before = table.version()
        table.vacuum(hours, dry_run=False, enforce_retention_duration=False, full=orphans)
        # It says in the log that it begins and that it has ended.
        for version in range(before + 1, open_delta(uri, storage_options).version() + 1):
            make_entry_durable(uri, version)
    return there


def check_keep_hours(keep_hours: int, pipeline_stopped: bool) -> None:
    """Raises VacuumRefused."""
    if keep_hours < KEEP_HOURS_MIN and not pipeline_stopped:
        raise VacuumRefused(
            f"files that were replaced within {KEEP_HOURS_MIN} h may still be read or written: stop the pipeline"
        )
