"""Failpoints of the pipeline: named points at which tests can make the process exit, as if it had been killed.

    CHRONIK_FAIL_POINT=after_files,data_commit:3 chronik pipeline run …

The process exits when it reaches a failpoint for the NTH time (by default the first). Failpoints in tasks exit the
worker process, in a task's first attempt only; Spark then retries the task.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from chronik.errors import ConfigError

ENVIRONMENT_VARIABLE = "CHRONIK_FAIL_POINT"
EXIT_CODE = 77

BEFORE_FILES = "before_files"
"""Failpoint in a task, before it writes files."""
AFTER_FILES = "after_files"
"""Failpoint in a task, after its files are durable and before the driver receives its result."""
SCHEMA_CHANGE = "schema_change"
"""Failpoint in the driver, after new columns are committed and before rows are."""
SPARK_COMMIT = "spark_commit"
"""Failpoint in the driver, after all tasks have returned and before the first commit."""
DEAD_LETTER_COMMIT = "dead_letter_commit"
"""Failpoint in the driver, after dead-letter records are committed and before rows are."""
DATA_COMMIT = "data_commit"
"""Failpoint in the driver, after rows and next offsets are committed and before the consumer group's offsets are."""
GROUP_COMMIT = "group_commit"
"""Failpoint in the driver, after all commits and before the round is reported."""

ICEBERG_PLAN = "iceberg_plan"
"""Failpoint in a commit to an Iceberg table, after it is planned and before its manifests are written."""
ICEBERG_MANIFESTS = "iceberg_manifests"
"""Failpoint in a commit to an Iceberg table, after its manifests are durable and before the request is sent."""
ICEBERG_RESPONSE = "iceberg_response"
"""Failpoint in a commit to an Iceberg table, after the catalog has responded or the response was lost."""
ICEBERG_RELOAD = "iceberg_reload"
"""Failpoint in a commit to an Iceberg table, after the table was loaded again because of a response but success."""

COMPACTION_FILES = "compaction_files"
"""Failpoint after the merged files are written and before the commit that replaces the old ones."""
COMPACTION_COMMIT = "compaction_commit"
"""Failpoint after the commit of a compaction."""
VERSION_EXPIRY = "version_expiry"
"""Failpoint after old versions are removed and before their files are deleted."""
VACUUM_FILES = "vacuum_files"
"""Failpoint after unused files are deleted and before the vacuum is recorded."""

TASK_FAILPOINTS = (BEFORE_FILES, AFTER_FILES)
DRIVER_FAILPOINTS = (SCHEMA_CHANGE, SPARK_COMMIT, DEAD_LETTER_COMMIT, DATA_COMMIT, GROUP_COMMIT)
ICEBERG_FAILPOINTS = (ICEBERG_PLAN, ICEBERG_MANIFESTS, ICEBERG_RESPONSE, ICEBERG_RELOAD)
"""Failpoints in the driver's commits to Iceberg tables: of dead-letter records, of rows, and of maintenance."""
MAINTENANCE_FAILPOINTS = (COMPACTION_FILES, COMPACTION_COMMIT, VERSION_EXPIRY, VACUUM_FILES)
"""Failpoints in the driver's maintenance of tables."""
FAILPOINTS = (*TASK_FAILPOINTS, *DRIVER_FAILPOINTS, *ICEBERG_FAILPOINTS, *MAINTENANCE_FAILPOINTS)


def parse_failpoints(text: str) -> dict[str, int]:
    """Parse failpoints and return, by name, at which hit each one exits the process.

    Raises:
        ConfigError: A failpoint is unknown or its count is not a number.
    """
    points: dict[str, int] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, _, nth = part.partition(":")
        if name not in FAILPOINTS or not (nth or "1").isdecimal():
            known = ", ".join(FAILPOINTS)
            raise ConfigError(
                f"invalid {ENVIRONMENT_VARIABLE} = {text!r}: expected NAME or NAME:NTH, with NAME one of {known}"
            )
        points[name] = int(nth or "1")
    return points


def _read_environment(environment: Mapping[str, str]) -> dict[str, int]:
    text = environment.get(ENVIRONMENT_VARIABLE)
    return parse_failpoints(text) if text else {}


_points = _read_environment(os.environ)


def hit_failpoint(name: str) -> None:
    """Exit the process if this failpoint is armed and has reached its configured number of hits."""
    if _points:
        _count_down_failpoint(name)


def _count_down_failpoint(name: str) -> None:
    if name not in _points or (name in TASK_FAILPOINTS and _get_task_attempt() > 0):
        return
    _points[name] -= 1
    if _points[name] == 0:
        os._exit(EXIT_CODE)


def _get_task_attempt() -> int:
    from pyspark import TaskContext

    context = TaskContext.get()
    return 0 if context is None else context.attemptNumber()
