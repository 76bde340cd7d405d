"""Who runs beside whom in `make test`: what pytest-xdist's workers are handed, in which order, and what they tell.

Most of what a test of a cluster does is wait, and a machine has time for others meanwhile; so there are more workers
than processors. But clusters slow each other down where all do something at once, and Sparks each other; so their files
form lanes, which have room for few workers at a time: whoever is done with a file is handed the next one of a lane that
has room for another. The tests that share Spark's session are handed to one worker as a whole, and those of other
clients, which share their JVMs. Lanes begin, because they take longest. Of the rest, slow tests come first, and what is
quick fills the gaps at the end; the tests of a file that share something of its own stay together.

A file is in a lane by what stands in it: a mark, `xdist_group("cluster")`, or a fixture. `--dist loadgroup` means these
lanes. (pytest-xdist's own meaning is lost with pytest 9.2: it puts the names of groups where pytest no longer looks.)
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling

from tests.tiers import FIXTURES, HERE

LANES = {"jvms": 1, "spark": 1, "cluster": 2, "clients": 1}
"""How many workers are in a lane at a time. Lanes begin in this order."""

SHARING = frozenset({"spark", "clients"})
"""Their tests share what lives as long as a worker."""

MARK = re.compile(r'\bxdist_group\("(\w+)"\)')
SPARK = re.compile(r"\bspark: SparkSession\b")
CLUSTER = re.compile(r"\bchronik_cluster_factory: ClusterFactory\b")
SHARED = 'scope="module"'
SLOW = re.compile(rf"\bmark\.slow\b|\b(?:{'|'.join(sorted(FIXTURES))})\b")


class Lanes(LoadScopeScheduling):  # type: ignore[misc] # it has no types
    def __init__(self, config: pytest.Config, log: Any) -> None:
        super().__init__(config, log)
        self._handed: dict[str, Any] = {}
        """What is in a lane, by scope: to which worker."""

    def _split_scope(self, nodeid: str) -> str:
        name = nodeid.partition("::")[0]
        file = Path(self.config.rootpath, name)
        lane = lane_of(file)
        if lane in SHARING:
            return lane
        return name if lane or SHARED in source(file) else nodeid

    def _assign_work_unit(self, node: Any) -> None:
        """Also where no lane has room: then nothing is left but lanes, and processors have time."""
        scope = next((each for each in self.workqueue if self._has_room(each, node)), next(iter(self.workqueue)))
        if self._lane_of(scope):
            self._handed[scope] = node
        self.workqueue.move_to_end(scope, last=False)
        super()._assign_work_unit(node)

    def _has_room(self, scope: str, node: Any) -> bool:
        lane = self._lane_of(scope)
        if lane is None:
            return True
        there = {self._handed[each] for each in self._handed if self._lane_of(each) == lane and self._is_at(each)}
        return len(there - {node}) < LANES[lane]

    def _is_at(self, scope: str) -> bool:
        """Whether whoever was handed it has not done all of it."""
        return not all(self.assigned_work.get(self._handed[scope], {}).get(scope, {}).values())

    def _lane_of(self, scope: str) -> str | None:
        return scope if scope in SHARING else lane_of(Path(self.config.rootpath, scope.partition("::")[0]))


@pytest.hookimpl(optionalhook=True)  # where pytest-xdist is
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Lanes | None:
    if config.getvalue("dist") != "loadgroup":
        return None
    config.option.loadscopereorder = False  # by the number of tests, which says little of the time that they take
    return Lanes(config, log)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not hasattr(config, "workerinput"):
        return
    items.sort(key=lambda item: rank(item.path))


def pytest_sessionstart(session: pytest.Session) -> None:
    """Of six messages for each test, three say what nobody asks for: that it begins, that its fixtures were made, and
    that they are gone. They would take more time than many a test."""
    option = session.config.option
    if not hasattr(session.config, "workerinput") or option.durations is not None or option.verbose > 0:
        return
    for plugin in session.config.pluginmanager.get_plugins():
        if hasattr(plugin, "sendevent"):  # pytest-xdist's
            plugin.sendevent = only_news(plugin.sendevent)


def only_news(send: Callable[..., None]) -> Callable[..., None]:
    def told(name: str, **what: Any) -> None:
        report = what["data"] if name == "testreport" else None
        if name != "logstart" and (report is None or report["when"] == "call" or report["outcome"] != "passed"):
            send(name, **what)

    return told


def pytest_runtest_setup(item: pytest.Item) -> None:
    if "spark" in getattr(item, "fixturenames", ()) and lane_of(item.path) != "spark":
        pytest.fail("it asks for `spark`, and not for `spark: SparkSession`: see tests/lanes.py", pytrace=False)


@cache
def rank(file: Path) -> int:
    """Which of a file's tests begin when. It is asked for each test, and looks through all of the file."""
    if lane := lane_of(file):
        return list(LANES).index(lane)
    return len(LANES) if SLOW.search(source(file)) else len(LANES) + 1


@cache
def lane_of(file: Path) -> str | None:
    if file.parent == HERE / "clients":
        return "clients"
    if SPARK.search(source(file)):
        return "spark"
    if mark := MARK.search(source(file)):
        return mark[1]
    return "cluster" if CLUSTER.search(source(file)) else None


@cache
def source(file: Path) -> str:
    return file.read_text(encoding="utf-8")
