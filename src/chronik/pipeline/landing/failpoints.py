"""Named places where a landing can be made to die, for tests that prove that it may.

    CHRONIK_FAIL_POINT=after_files,data_commit:3 chronik pipeline run …

A process that comes to a point for the NTH time (the first, unless it says otherwise) ends there at once, as if it had
been killed. Points in tasks end the worker's process, at the first attempt of a task only: Spark tries it again.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from chronik.errors import ConfigError

VARIABLE = "CHRONIK_FAIL_POINT"
EXIT_CODE = 77

BEFORE_FILES = "before_files"
"""In a task, before it writes."""
AFTER_FILES = "after_files"
"""In a task: all its files are durable, and nobody knows of them."""
SCHEMA_CHANGE = "schema_change"
"""The table has new columns, and no rows for them."""
SPARK_COMMIT = "spark_commit"
"""The driver has the answers of all tasks, and has committed nothing."""
DEAD_LETTER_COMMIT = "dead_letter_commit"
"""Dead letters are committed, the rows around them are not."""
DATA_COMMIT = "data_commit"
"""Rows and offsets are committed, the group knows nothing of it."""
GROUP_COMMIT = "group_commit"
"""All is done, and nobody was told."""

IN_TASKS = (BEFORE_FILES, AFTER_FILES)
IN_DRIVERS = (SCHEMA_CHANGE, SPARK_COMMIT, DEAD_LETTER_COMMIT, DATA_COMMIT, GROUP_COMMIT)


def parse(text: str) -> dict[str, int]:
    """Returns, by name, how many times each is passed until the process ends. Raises ConfigError."""
    points: dict[str, int] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, _, nth = part.partition(":")
        if name not in (*IN_TASKS, *IN_DRIVERS) or not (nth or "1").isdecimal():
            known = ", ".join((*IN_TASKS, *IN_DRIVERS))
            raise ConfigError(f"{VARIABLE} = {text!r}: expected NAME or NAME:NTH, of {known}")
        points[name] = int(nth or "1")
    return points


def _armed(environment: Mapping[str, str]) -> dict[str, int]:
    text = environment.get(VARIABLE)
    return parse(text) if text else {}


_points = _armed(os.environ)


def reached(name: str) -> None:
    if _points:
        _count_down(name)


def _count_down(name: str) -> None:
    if name not in _points or (name in IN_TASKS and _attempt() > 0):
        return
    _points[name] -= 1
    if _points[name] == 0:
        os._exit(EXIT_CODE)


def _attempt() -> int:
    from pyspark import TaskContext

    context = TaskContext.get()
    return 0 if context is None else context.attemptNumber()
