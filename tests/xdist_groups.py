"""Distribution of tests over the workers of pytest-xdist in `make test`.

Cluster tests mostly wait, so there are more workers than CPUs. But clusters slow each other down, and so do Spark
sessions. Their test files therefore form groups with a limited number of concurrent workers: a worker that is done with
a file gets the next file of a group with a free slot. Tests that share a Spark session, or the JVMs of other clients,
all run in one worker. Groups start first because they take longest, then other slow tests; quick tests fill the gaps at
the end. Tests of a file with a module-scoped fixture stay together.

A file's group is determined by its text: a mark `xdist_group("cluster")`, or a fixture. `--dist loadgroup` selects this
scheduler. (pytest-xdist's own implementation does not work with pytest 9.2, which moved the names of groups.)
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling

from tests.quick import SLOW_FIXTURES, TESTS_DIRECTORY

GROUP_WORKERS_MAX = {"jvms": 1, "spark": 1, "cluster": 2, "clients": 1}
"""Maximum number of concurrent workers by group, in starting order."""

SINGLE_WORKER_GROUPS = frozenset({"spark", "clients"})
"""Groups whose tests share state that lives as long as a worker."""

MARK = re.compile(r'\bxdist_group\("(\w+)"\)')
SPARK = re.compile(r"\bspark: SparkSession\b")
CLUSTER = re.compile(r"\bchronik_cluster_factory: ClusterFactory\b")
SHARED = 'scope="module"'
SLOW = re.compile(rf"\bmark\.slow\b|\b(?:{'|'.join(sorted(SLOW_FIXTURES))})\b")


class GroupScheduler(LoadScopeScheduling):  # type: ignore[misc] # it has no types
    """A scheduler of pytest-xdist that limits the concurrent workers of each group."""

    def __init__(self, config: pytest.Config, log: Any) -> None:
        super().__init__(config, log)
        self._assigned_workers: dict[str, Any] = {}
        """Worker of each assigned scope that belongs to a group."""

    def _split_scope(self, nodeid: str) -> str:
        name = nodeid.partition("::")[0]
        file = Path(self.config.rootpath, name)
        group = group_of(file)
        if group in SINGLE_WORKER_GROUPS:
            return group
        return name if group or SHARED in source(file) else nodeid

    def _assign_work_unit(self, node: Any) -> None:
        """Assign the next scope. If only groups without a free slot are left, their limit is ignored."""
        scope = next((each for each in self.workqueue if self._has_free_slot(each, node)), next(iter(self.workqueue)))
        if self._group_of(scope):
            self._assigned_workers[scope] = node
        self.workqueue.move_to_end(scope, last=False)
        super()._assign_work_unit(node)

    def _has_free_slot(self, scope: str, node: Any) -> bool:
        group = self._group_of(scope)
        if group is None:
            return True
        workers = {
            self._assigned_workers[each]
            for each in self._assigned_workers
            if self._group_of(each) == group and self._is_running(each)
        }
        return len(workers - {node}) < GROUP_WORKERS_MAX[group]

    def _is_running(self, scope: str) -> bool:
        """Return whether the worker of a scope still has tests of it to run."""
        return not all(self.assigned_work.get(self._assigned_workers[scope], {}).get(scope, {}).values())

    def _group_of(self, scope: str) -> str | None:
        return (
            scope if scope in SINGLE_WORKER_GROUPS else group_of(Path(self.config.rootpath, scope.partition("::")[0]))
        )


@pytest.hookimpl(optionalhook=True)  # pytest-xdist may not be installed
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> GroupScheduler | None:
    if config.getvalue("dist") != "loadgroup":
        return None
    config.option.loadscopereorder = False  # the number of tests says little about their duration
    return GroupScheduler(config, log)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not hasattr(config, "workerinput"):
        return
    items.sort(key=lambda item: start_order(item.path))


def pytest_sessionstart(session: pytest.Session) -> None:
    """Suppress three of the six messages per test that no one needs (start, setup and teardown passed): they would take
    more time than many tests.
    """
    option = session.config.option
    if not hasattr(session.config, "workerinput") or option.durations is not None or option.verbose > 0:
        return
    for plugin in session.config.pluginmanager.get_plugins():
        if hasattr(plugin, "sendevent"):  # the plugin of pytest-xdist
            plugin.sendevent = only_relevant_events(plugin.sendevent)


def only_relevant_events(send: Callable[..., None]) -> Callable[..., None]:
    def send_if_relevant(name: str, **what: Any) -> None:
        report = what["data"] if name == "testreport" else None
        if name != "logstart" and (report is None or report["when"] == "call" or report["outcome"] != "passed"):
            send(name, **what)

    return send_if_relevant


def pytest_runtest_setup(item: pytest.Item) -> None:
    if "spark" in getattr(item, "fixturenames", ()) and group_of(item.path) != "spark":
        pytest.fail("declare the fixture as `spark: SparkSession`: see tests/xdist_groups.py", pytrace=False)


@cache
def start_order(file: Path) -> int:
    """Return the position of a file's tests in the run. Cached, because it reads the whole file."""
    if group := group_of(file):
        return list(GROUP_WORKERS_MAX).index(group)
    return len(GROUP_WORKERS_MAX) if SLOW.search(source(file)) else len(GROUP_WORKERS_MAX) + 1


@cache
def group_of(file: Path) -> str | None:
    """Return the group of a test file, or None."""
    if file.parent == TESTS_DIRECTORY / "clients":
        return "clients"
    if SPARK.search(source(file)):
        return "spark"
    if mark := MARK.search(source(file)):
        return mark[1]
    return "cluster" if CLUSTER.search(source(file)) else None


@cache
def source(file: Path) -> str:
    return file.read_text(encoding="utf-8")
