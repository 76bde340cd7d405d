"""Which worker of `make test` runs what: see tests/lanes.py."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests import lanes
from tests.tiers import HERE


def test_lanes_have_about_as_many_tests_and_all_are_used() -> None:
    loads: Counter[str] = Counter()
    largest = 0
    for file, lane in lanes.lanes().items():
        size = len(lanes.TEST.findall(file.read_text()))
        loads[lane] += size
        largest = max(largest, size)
    assert set(loads) == {f"{group}-{number}" for group, count in lanes.LANES.items() for number in range(count)}
    assert abs(loads["cluster-0"] - loads["cluster-1"]) <= largest


@pytest.mark.parametrize(
    ("file", "group"),
    [
        ("clients/test_groups.py", "clients"),
        ("cluster/test_rolling_restart.py", "cluster"),
        ("pipeline/landing/test_landing_in_spark.py", "spark"),
        ("cli/demo/test_the_demo_runs_to_its_end.py", "spark"),
        ("raft/test_the_raft_paper.py", None),
    ],
)
def test_a_file_is_in_the_lane_that_it_names(file: str, group: str | None) -> None:
    assert lanes.group_of(HERE / file) == group


def test_lanes_begin_and_what_is_quick_ends(tmp_path: Path) -> None:
    slow, quick = tmp_path / "test_slow.py", tmp_path / "test_quick.py"
    slow.write_text("def test_it(chronik_broker): pass\n")
    quick.write_text("def test_it(): pass\n")
    in_a_lane = next(iter(lanes.lanes()))
    assert [lanes.rank(each) for each in (in_a_lane, slow, quick)] == [0, 1, 2]


def test_workers_are_handed_whole_lanes_and_whole_files_where_tests_share_something(
    pytestconfig: pytest.Config,
) -> None:
    scheduler = lanes.Lanes.__new__(lanes.Lanes)  # without the workers that it would look for
    scheduler.config = pytestconfig
    scope = scheduler._split_scope
    lane = scope("tests/cluster/test_rolling_restart.py::test_one[a::b]")
    assert lane.startswith("cluster-")
    assert scope("tests/cluster/test_rolling_restart.py::test_two") == lane
    shared = "tests/bench/test_gaps_in_service_are_seen.py"
    assert scope(f"{shared}::test_one") == scope(f"{shared}::test_two") == shared
    alone = "tests/raft/test_the_raft_paper.py::test_one"
    assert scope(alone) == alone
