"""Tests that small rounds run in the driver's process, and large ones on Spark."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest

from chronik.pipeline.landing import local_runner
from chronik.pipeline.landing.landing_task import LandingTask, LandingTaskResult
from chronik.pipeline.landing.local_runner import LocalFirstTaskRunner
from chronik.testing import Broker
from tests.pipeline.landing.landed_topic import LandedTopic
from tests.pipeline.table_fixtures import JournalledTopic


@pytest.fixture
def landed(chronik_broker: Broker, chronik_topic: str, tmp_path: Path) -> Iterator[LandedTopic]:
    with chronik_broker.cluster() as cluster:
        yield LandedTopic(JournalledTopic(chronik_broker, chronik_topic), cluster, tmp_path)


class FakeSparkRunner:
    """Stands for Spark, and records the tasks that reach it."""

    started: ClassVar[list[FakeSparkRunner]] = []

    def __init__(self, session: Any) -> None:
        self.tasks: list[LandingTask] = []
        FakeSparkRunner.started.append(self)

    def parallelism(self) -> int:
        return 7

    def run(self, function: Any, groups: list[list[LandingTask]]) -> list[list[LandingTaskResult]]:
        self.tasks += [task for group in groups for task in group]
        return [function(group) for group in groups]


class FakeSession:
    def __init__(self) -> None:
        self.is_stopped = False

    def stop(self) -> None:
        self.is_stopped = True


@pytest.fixture
def spark_runners(monkeypatch: pytest.MonkeyPatch) -> list[FakeSparkRunner]:
    monkeypatch.setattr(FakeSparkRunner, "started", [])
    monkeypatch.setattr(local_runner, "SparkTaskRunner", FakeSparkRunner)
    monkeypatch.setattr(local_runner, "stop_session", lambda session: session.stop())
    return FakeSparkRunner.started


def run_round(landed: LandedTopic, runner: LocalFirstTaskRunner) -> str | None:
    """Land a round with the runner, and return where it ran."""
    round = landed.landing().plan_next_round(2)
    while round.tasks:
        round.add_results(runner.run(round.tasks))
    return round.commit().engine


def test_small_round_runs_in_this_process(landed: LandedTopic, spark_runners: list[FakeSparkRunner]) -> None:
    runner = LocalFirstTaskRunner(FakeSession)
    landed.send(b'{"a": 1}', b"no JSON", b'{"b": 2}')
    assert run_round(landed, runner) == "driver"
    assert spark_runners == []
    assert (landed.offsets(), landed.dead_letters()) == ([0, 2], [1])


@pytest.mark.parametrize("limit", [{"records_max": 2}, {"bytes_max": 20}])
def test_round_beyond_a_limit_runs_on_spark_and_leaves_it_running(
    landed: LandedTopic, spark_runners: list[FakeSparkRunner], limit: dict[str, int]
) -> None:
    session = FakeSession()
    runner = LocalFirstTaskRunner(lambda: session, **limit)
    landed.send(*[b'{"a": 1}'] * 3)
    assert run_round(landed, runner) == "spark"
    assert landed.offsets() == [0, 1, 2]
    landed.send(b'{"a": 1}')
    assert run_round(landed, runner) == "driver", "a small round does not need Spark even if it runs"
    landed.send(*[b'{"a": 1}'] * 3)
    assert run_round(landed, runner) == "spark"
    assert len(spark_runners) == 1
    assert runner.parallelism() == 7
    assert not session.is_stopped
    runner.close()
    assert session.is_stopped


def test_task_beyond_the_byte_limit_leaves_no_files(landed: LandedTopic, spark_runners: list[FakeSparkRunner]) -> None:
    landed.send(*[b'{"a": 1}'] * 3)
    (task,) = landed.landing().plan_next_round(1).tasks
    runner = LocalFirstTaskRunner(FakeSession, bytes_max=1)
    assert runner._run_tasks_in_driver([task]) == []
    assert not list(Path(landed.root).rglob("*.parquet"))
