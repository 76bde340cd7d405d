"""Files that no version needs any more, taken away; and never those that a pipeline is about to commit."""

from __future__ import annotations

from collections.abc import Mapping

from chronik.errors import ChronikError
from chronik.pipeline.tables.commit_log import make_entry_durable
from chronik.pipeline.tables.delta import open_delta

KEEP_HOURS = 7 * 24
"""Delta's own default: queries that run, and travel back in time."""

KEEP_HOURS_MIN = 1
"""A file that was written but not committed yet looks like an orphan. Tasks write for minutes, not for an hour."""


class VacuumRefused(ChronikError):
    """It could take files that a pipeline has written and not committed yet."""


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
    check_keep_hours(keep_hours, pipeline_stopped)
    table = open_delta(uri, storage_options)
    before = table.version()
    removed = list(table.vacuum(keep_hours, dry_run=dry_run, enforce_retention_duration=False, full=True))
    # It says in the log that it begins and that it has ended.
    for version in range(before + 1, open_delta(uri, storage_options).version() + 1):
        make_entry_durable(uri, version)
    return removed


def check_keep_hours(keep_hours: int, pipeline_stopped: bool) -> None:
    """Raises VacuumRefused."""
    if keep_hours < KEEP_HOURS_MIN and not pipeline_stopped:
        raise VacuumRefused(
            f"files younger than {KEEP_HOURS_MIN} h may belong to a batch that is being written: stop the pipeline"
        )
