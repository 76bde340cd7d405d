"""Vacuum: deletion of files that no table version needs, except those that a pipeline may still commit."""

from __future__ import annotations

from chronik.errors import ChronikError
from chronik.pipeline.tables.topic_table import TopicTable
from chronik.pipeline.tables.uncommitted_files import ORPHAN_HOURS_MIN

DEFAULT_KEEP_HOURS = 7 * 24
"""Default retention in hours, the same as Delta's: it serves running queries and time travel."""

KEEP_HOURS_MIN = 1
"""Minimum retention. Running queries and jobs, which take minutes, may read files that were replaced since."""


class VacuumRejectedError(ChronikError):
    """A vacuum that could delete files which a running pipeline or query still needs."""


def vacuum_table(
    table: TopicTable, *, keep_hours: int = DEFAULT_KEEP_HOURS, pipeline_stopped: bool = False, dry_run: bool = False
) -> list[str]:
    """Delete files that no version of the last `keep_hours` contains, and return their paths.

    Uncommitted files (orphans of killed tasks, and files that a pipeline is about to commit) are kept for at least
    `ORPHAN_HOURS_MIN`, unless `pipeline_stopped` guarantees that no pipeline writes to the table.

    Raises:
        VacuumRejectedError: `keep_hours` is below the minimum, without `pipeline_stopped`.
    """
    check_keep_hours(keep_hours, pipeline_stopped)
    removed = table.vacuum_files(keep_hours, orphans=False, dry_run=dry_run)
    orphan_hours = keep_hours if pipeline_stopped else max(keep_hours, ORPHAN_HOURS_MIN)
    removed += table.vacuum_files(orphan_hours, orphans=True, dry_run=dry_run)
    return list(dict.fromkeys(removed))


def check_keep_hours(keep_hours: int, pipeline_stopped: bool) -> None:
    """Raise VacuumRejectedError if the retention is below the minimum while a pipeline may be running."""
    if keep_hours < KEEP_HOURS_MIN and not pipeline_stopped:
        raise VacuumRejectedError(
            f"files replaced within the last {KEEP_HOURS_MIN} h may still be read or written: stop the pipeline first"
        )
