"""Removes files that no version needs any more, and never those that a pipeline is about to commit."""

from __future__ import annotations

from chronik.errors import ChronikError
from chronik.pipeline.tables.in_flight import ORPHAN_HOURS_MIN
from chronik.pipeline.tables.topic_table import TopicTable

KEEP_HOURS = 7 * 24
"""Delta's own default: for queries that run, and for looking back in time."""

KEEP_HOURS_MIN = 1
"""Queries and jobs that run read files that a later version may have replaced. They take minutes, not an hour."""


class VacuumRefused(ChronikError):
    """It could take files that a pipeline or a query that runs still needs."""


def vacuum(
    table: TopicTable, *, keep_hours: int = KEEP_HOURS, pipeline_stopped: bool = False, dry_run: bool = False
) -> list[str]:
    """Removes files that no version of the last `keep_hours` names, and returns their paths. What no version ever named
    (orphans of killed tasks, and files that a pipeline is about to commit) goes after that time too, but not before
    `ORPHAN_HOURS_MIN`, unless the caller knows that no pipeline writes to this table. Raises VacuumRefused under an
    hour, unless the caller knows that."""
    check_keep_hours(keep_hours, pipeline_stopped)
    removed = table.remove_unused(keep_hours, orphans=False, dry_run=dry_run)
    orphan_hours = keep_hours if pipeline_stopped else max(keep_hours, ORPHAN_HOURS_MIN)
    removed += table.remove_unused(orphan_hours, orphans=True, dry_run=dry_run)
    return list(dict.fromkeys(removed))


def check_keep_hours(keep_hours: int, pipeline_stopped: bool) -> None:
    """Raises VacuumRefused."""
    if keep_hours < KEEP_HOURS_MIN and not pipeline_stopped:
        raise VacuumRefused(
            f"files that were replaced within {KEEP_HOURS_MIN} h may still be read or written: stop the pipeline"
        )
