"""Topics into tables, each record exactly once: `chronik pipeline run`, or `run(…)` in a notebook.

There is no checkpoint. A round reads from the table's own log how far it is, plans explicit ranges of offsets up to
what brokers have committed, lets the tasks of one Spark job fetch, decode and write them as Parquet files, and commits
these files together with the offsets behind them. Whoever dies in between leaves files that no version of a table
names: the next round starts from the same offsets.

`running` has a session and a driver, `driver` runs rounds, `topic` plans and commits those of one topic, `plan` decides
what is read, `task` does it on executors, and `letters` keeps dead letters and rows apart.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from chronik.pipeline.landing.driver import Summary
    from chronik.pipeline.landing.running import run

__all__ = ["Summary", "run"]

_HOMES = {"Summary": "driver", "run": "running"}


def __getattr__(name: str) -> object:
    """Imports nothing before it is used: tasks, and whoever asks for settings, need no driver."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
