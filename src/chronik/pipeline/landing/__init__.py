"""Landing: writing the records of topics to tables, each exactly once.

`chronik pipeline run` starts it, or `run(…)` in a notebook. There is no checkpoint. Each round reads the next offsets
from the table's transaction log, plans ranges up to the last stable offsets, lets the tasks of one Spark job fetch,
decode and write the records as Parquet files, and commits the files together with their offsets. After a crash, files
that no table version references remain, and the next round starts from the same offsets.

`runner` starts a session and a driver, `driver` runs rounds, `topic_landing` plans and commits the rounds of one topic
and keeps dead-letter records and rows disjoint, `round_plan` decides which ranges are read, and `landing_task` reads
them on executors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from chronik.pipeline.landing.driver import LandingSummary
    from chronik.pipeline.landing.runner import run

__all__ = ["LandingSummary", "run"]

_LAZY_NAMES = ("chronik.pipeline.landing.driver.LandingSummary", "chronik.pipeline.landing.runner.run")


def __getattr__(name: str) -> object:
    """Import a public name lazily, since tasks and code that reads only settings do not need the driver."""
    from importlib import import_module

    for path in _LAZY_NAMES:
        module, _, attribute = path.rpartition(".")
        if attribute == name:
            return getattr(import_module(module), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
