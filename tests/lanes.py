"""Who runs beside whom in `make test`: what pytest-xdist's workers are handed, and in which order.

Most of what a test of a cluster does is wait, and a machine has time for others meanwhile; so there are more workers
than processors. But clusters slow each other down where all do something at once, so their files form two lanes, and a
worker is handed a lane as a whole; those of Spark, which share its session, form one, and those of other clients, which
share their JVMs. Lanes begin, because they take longest. Of the rest, slow tests come first, and what is quick fills
the gaps at the end; the tests of a file that share something of its own stay together.

A file is in a lane by what stands in it: a mark, `xdist_group("cluster")`, or a fixture. `--dist loadgroup` means these
lanes. (pytest-xdist's own meaning is lost with pytest 9.2: it puts the names of groups where pytest no longer looks.)
"""

from __future__ import annotations

import re
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling

from tests.tiers import FIXTURES, HERE

LANES = {"cluster": 2, "spark": 1, "clients": 1}
"""By the name of a group: in how many lanes its files run."""

TEST = re.compile(r"^(?:async )?def test_", re.MULTILINE)
MARK = re.compile(r'\bxdist_group\("(\w+)"\)')
SPARK = re.compile(r"\bspark: SparkSession\b")
SHARED = 'scope="module"'
SLOW = re.compile(rf"\bmark\.slow\b|\b(?:{'|'.join(sorted(FIXTURES))})\b")


class Lanes(LoadScopeScheduling):  # type: ignore[misc] # it has no types
    def _split_scope(self, nodeid: str) -> str:
        name = nodeid.partition("::")[0]
        file = Path(self.config.rootpath, name)
        return lanes().get(file) or (name if SHARED in source(file) else nodeid)


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


def pytest_runtest_setup(item: pytest.Item) -> None:
    if "spark" in getattr(item, "fixturenames", ()) and group_of(item.path) != "spark":
        pytest.fail("it asks for `spark`, and not for `spark: SparkSession`: see tests/lanes.py", pytrace=False)


def rank(file: Path) -> int:
    if file in lanes():
        return 0
    return 1 if SLOW.search(source(file)) else 2


@cache
def lanes() -> dict[Path, str]:
    """The lane of each file that has one; lanes of a group have about as many tests."""
    sizes = {file: len(TEST.findall(source(file))) for file in HERE.rglob("test_*.py")}
    loads: Counter[str] = Counter()
    found = {}
    for file, size in sorted(sizes.items(), key=lambda each: (-each[1], each[0])):
        if group := group_of(file):
            lane = min((f"{group}-{number}" for number in range(LANES[group])), key=lambda name: loads[name])
            loads[lane] += size
            found[file] = lane
    return found


@cache
def group_of(file: Path) -> str | None:
    if file.parent == HERE / "clients":
        return "clients"
    if SPARK.search(source(file)):
        return "spark"
    mark = MARK.search(source(file))
    return mark[1] if mark else None


@cache
def source(file: Path) -> str:
    return file.read_text(encoding="utf-8")
