"""Distribution of tests over the workers of `make test`: see tests/xdist_groups.py."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests import xdist_groups
from tests.quick import TESTS_DIRECTORY

CLUSTER = (
    "tests/cluster/test_rolling_restart.py",
    "tests/cluster/test_elect_leaders.py",
    "tests/cluster/test_topics_are_everywhere.py",
    "tests/cluster/test_leaders_die_under_load.py",
)
SPARK = ("tests/pipeline/landing/test_landing_in_spark.py", "tests/pipeline/query/test_sql_in_spark.py")
QUICK = "tests/raft/test_raft_paper.py"


@pytest.mark.parametrize(
    ("file", "group"),
    [
        ("clients/test_groups.py", "clients"),
        ("cluster/test_rolling_restart.py", "cluster"),
        ("testing/test_broker.py", "cluster"),
        ("pipeline/landing/test_landing_in_spark.py", "spark"),
        ("pipeline/landing/test_failpoints.py", "jvms"),
        ("cli/test_demo.py", "jvms"),
        ("raft/test_raft_paper.py", None),
    ],
)
def test_test_file_belongs_to_expected_group(file: str, group: str | None) -> None:
    assert xdist_groups.group_of(TESTS_DIRECTORY / file) == group


def test_every_group_is_defined_and_used() -> None:
    assert {xdist_groups.group_of(file) for file in TESTS_DIRECTORY.rglob("test_*.py")} == {
        None,
        *xdist_groups.GROUP_WORKERS_MAX,
    }


def test_groups_run_first_and_quick_tests_last(tmp_path: Path) -> None:
    slow, quick = tmp_path / "test_slow.py", tmp_path / "test_quick.py"
    slow.write_text("def test_it(chronik_broker): pass\n")
    quick.write_text("def test_it(): pass\n")
    ranks = [
        xdist_groups.start_order(each)
        for each in (TESTS_DIRECTORY.parent / SPARK[0], TESTS_DIRECTORY.parent / CLUSTER[0], slow, quick)
    ]
    assert ranks == sorted(set(ranks))


class Worker:
    shutting_down = False

    def __init__(self) -> None:
        self.has_been_sent: list[int] = []

    def send_runtest_some(self, indexes: list[int]) -> None:
        self.has_been_sent += indexes

    def shutdown(self) -> None:
        pass


class Run:
    """Four workers and a queue with one test of each of the given files."""

    def __init__(self, config: pytest.Config, files: Iterable[str]) -> None:
        self.tests = [f"{file}::test_it" for file in files]
        self.scheduler = xdist_groups.GroupScheduler.__new__(
            xdist_groups.GroupScheduler
        )  # without __init__, which looks for workers
        self.scheduler.config = config
        self.scheduler._assigned_workers = {}
        self.scheduler.workqueue = OrderedDict()
        for test in self.tests:
            self.scheduler.workqueue.setdefault(self.scheduler._split_scope(test), {})[test] = False
        self.workers = [Worker() for _ in range(4)]
        self.scheduler.assigned_work = {worker: {} for worker in self.workers}
        self.scheduler.registered_collections = dict.fromkeys(self.workers, self.tests)

    def assign(self, worker: int) -> list[str]:
        """Assign the next work to a worker, and return the files of its tests."""
        before = len(self.workers[worker].has_been_sent)
        self.scheduler._assign_work_unit(self.workers[worker])
        return [self.tests[index].partition("::")[0] for index in self.workers[worker].has_been_sent[before:]]

    def finish(self, worker: int) -> None:
        for unit in self.scheduler.assigned_work[self.workers[worker]].values():
            unit.update(dict.fromkeys(unit, True))


def test_worker_that_finishes_a_file_frees_a_slot_of_its_group(pytestconfig: pytest.Config) -> None:
    run = Run(pytestconfig, [*CLUSTER, QUICK])
    assert run.assign(0) == [CLUSTER[0]]
    assert run.assign(1) == [CLUSTER[1]]
    assert run.assign(2) == [QUICK]
    run.finish(1)
    assert run.assign(3) == [CLUSTER[2]]


def test_worker_in_group_continues_with_the_same_group(pytestconfig: pytest.Config) -> None:
    run = Run(pytestconfig, [*CLUSTER, QUICK])
    assert run.assign(0) + run.assign(1) + run.assign(0) == [*CLUSTER[:3]]


def test_group_limit_is_ignored_when_only_its_files_are_left(pytestconfig: pytest.Config) -> None:
    run = Run(pytestconfig, CLUSTER)
    assert [run.assign(worker) for worker in range(4)] == [[file] for file in CLUSTER]


def test_tests_that_share_a_session_run_in_one_worker(pytestconfig: pytest.Config) -> None:
    run = Run(pytestconfig, [*SPARK, QUICK])
    assert run.assign(0) == [*SPARK]
    assert run.assign(1) == [QUICK]


def test_tests_with_module_fixture_run_in_one_worker(pytestconfig: pytest.Config) -> None:
    scope = Run(pytestconfig, [QUICK]).scheduler._split_scope
    for shared in (CLUSTER[0], "tests/bench/test_bench_gaps.py"):
        assert scope(f"{shared}::test_one[a::b]") == scope(f"{shared}::test_two") == shared
    assert scope(f"{QUICK}::test_one") == f"{QUICK}::test_one"


def test_workers_send_only_relevant_events() -> None:
    events: list[str] = []
    send = xdist_groups.only_relevant_events(
        lambda name, **what: events.append(" ".join([name, *what.get("data", {}).values()]))
    )
    send("logstart", nodeid="x", location=())
    for when, outcome in (("setup", "passed"), ("call", "passed"), ("teardown", "passed")):
        send("testreport", data={"when": when, "outcome": outcome})
    for when, outcome in (("setup", "skipped"), ("call", "failed"), ("teardown", "failed")):
        send("testreport", data={"when": when, "outcome": outcome})
    send("runtest_protocol_complete", item_index=1)
    reports = ["call passed", "setup skipped", "call failed", "teardown failed"]
    assert events == [*(f"testreport {each}" for each in reports), "runtest_protocol_complete"]
