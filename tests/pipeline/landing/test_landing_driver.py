"""Rounds of the landing driver over several topics, with a real broker and tasks in this process."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from chronik.client.admin import NewTopic, create_topics, delete_topics
from chronik.client.cluster import ClusterClient
from chronik.client.records import OutgoingRecord
from chronik.pipeline.journal.reports import ProgressReporter, TopicReport
from chronik.pipeline.landing import round_budget
from chronik.pipeline.landing.driver import LandingDriver
from chronik.pipeline.landing.landing_task import LandingTask, LandingTaskResult, run_landing_task
from chronik.pipeline.landing.local_runner import LandingTaskRunner
from chronik.pipeline.landing.settings import LandingSettings, TableSettings
from chronik.pipeline.tables.layout import TableKind
from chronik.pipeline.tables.storage import table_uri
from chronik.pipeline_journal import LandingState
from chronik.testing import Broker
from tests.pipeline.table_fixtures import JournalledTopic, read_positions


class InThisProcess(LandingTaskRunner):
    """A task runner that runs tasks in this process, and records the jobs."""

    def __init__(self) -> None:
        self.jobs: list[list[LandingTask]] = []

    def parallelism(self) -> int:
        return 2

    def run(self, tasks: Sequence[LandingTask]) -> list[LandingTaskResult]:
        self.jobs.append(list(tasks))
        return [run_landing_task(task) for task in tasks]


class RecordingReporter(ProgressReporter):
    """A reporter that records the reports, and stops the driver when every topic is up to date or failing."""

    def __init__(self, topics: Sequence[str]) -> None:
        self.stop = threading.Event()
        self._topics = topics
        self.restart()

    def restart(self) -> None:
        self.stop.clear()
        self.reports: list[TopicReport] = []
        self._remaining = set(self._topics)

    def report(self, report: TopicReport) -> None:
        self.reports.append(report)
        if report.state in (LandingState.WAITING, LandingState.FAILING):
            self._remaining.discard(report.topic)
        if not self._remaining:
            self.stop.set()


class LandedTopics:
    """Topics that a driver lands together."""

    def __init__(self, broker: Broker, cluster: ClusterClient, root: Path, prefix: str, count: int) -> None:
        self.broker, self.cluster, self.root = broker, cluster, str(root)
        self.names = [f"{prefix}-{index}" for index in range(count)]
        create_topics(cluster, [NewTopic(name, 1) for name in self.names])

    def send(self, name: str, count: int) -> None:
        JournalledTopic(self.broker, name).send([OutgoingRecord(b"value", partition=0)] * count)

    def driver(self, runner: LandingTaskRunner, reporter: RecordingReporter) -> LandingDriver:
        settings = LandingSettings(
            self.broker.bootstrap, self.root, tuple(self.names), TableSettings(TableKind.RAW), "lands"
        )
        return LandingDriver(settings, self.cluster, runner, reporter, reporter.stop)

    def offsets(self, name: str) -> list[int]:
        return [offset for _, offset, _ in read_positions(table_uri(self.root, name))]

    def table(self, name: str) -> Path:
        return Path(table_uri(self.root, name))


@pytest.fixture
def topics(chronik_broker: Broker, chronik_topic: str, tmp_path: Path) -> Iterator[LandedTopics]:
    with chronik_broker.cluster() as cluster:
        yield LandedTopics(chronik_broker, cluster, tmp_path, chronik_topic, 3)


def test_topics_of_round_run_in_one_job_with_fair_shares(topics: LandedTopics, monkeypatch: pytest.MonkeyPatch) -> None:
    huge, *small = topics.names
    topics.send(huge, 600)
    for name in small:
        topics.send(name, 10)
    monkeypatch.setattr(round_budget, "ROUND_BYTES_START", 200 * 1024)  # of records of unknown size
    monkeypatch.setattr(round_budget, "ROUND_BYTES_MIN", 1)
    runner, reporter = InThisProcess(), RecordingReporter(topics.names)
    topics.driver(runner, reporter).run()
    counts = [{task.topic: task.offset_count for task in job} for job in runner.jobs]
    assert counts[0] == {huge: 180, **dict.fromkeys(small, 10)}, "small topics get all their records in the first round"
    assert len(counts) > 1
    for name, expected in ((huge, 600), *((name, 10) for name in small)):
        assert topics.offsets(name) == list(range(expected))


class ThrottledOnce(InThisProcess):
    """A task runner whose first job is throttled by the store."""

    def run(self, tasks: Sequence[LandingTask]) -> list[LandingTaskResult]:
        if not self.jobs:
            self.jobs.append(list(tasks))
            return [LandingTaskResult(error="s3://lake: SlowDown: reduce your request rate") for _ in tasks]
        return super().run(tasks)


def test_throttling_store_gets_smaller_rounds(
    topics: LandedTopics, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    name = topics.names[0]
    topics.send(name, 300)
    monkeypatch.setattr(round_budget, "ROUND_BYTES_START", 200 * 1024)
    monkeypatch.setattr(round_budget, "ROUND_BYTES_MIN", 1)
    runner, reporter = ThrottledOnce(), RecordingReporter([name])
    driver = topics.driver(runner, reporter)
    driver.run()
    assert "landing rounds reduced: the store throttles requests" in caplog.text
    reporter.restart()
    driver.run()
    counts = [sum(task.offset_count for task in job) for job in runner.jobs]
    assert counts[:2] == [200, 100]
    assert reporter.reports[0].round_bytes_max == 100 * 1024
    assert topics.offsets(name) == list(range(300))


def test_idle_topic_is_planned_without_reading_its_table(topics: LandedTopics) -> None:
    name, *others = topics.names
    topics.send(name, 5)
    reporter = RecordingReporter(topics.names)
    driver = topics.driver(InThisProcess(), reporter)
    driver.run()
    topics.table(name).rename(topics.table(name).with_suffix(".away"))
    topics.send(others[0], 1)
    reporter.stop.clear()  # the next report, on the topic with records, stops the driver
    driver.run()
    assert LandingState.FAILING not in {report.state for report in reporter.reports}
    assert topics.offsets(others[0]) == [0]


def test_rows_of_another_driver_are_detected_after_idle_rounds(topics: LandedTopics) -> None:
    name = topics.names[0]
    drivers = []
    for _ in range(2):
        reporter = RecordingReporter([name])
        drivers.append((topics.driver(InThisProcess(), reporter), reporter))
    for number in range(5):
        topics.send(name, 5)
        driver, reporter = drivers[number % 2]
        reporter.restart()
        driver.run()
        assert topics.offsets(name) == list(range(5 * number + 5))


def test_unavailable_topic_does_not_stop_other_topics(topics: LandedTopics) -> None:
    lost, *others = topics.names
    for name in others:
        topics.send(name, 3)
    delete_topics(topics.cluster, [lost])
    reporter = RecordingReporter(topics.names)
    topics.driver(InThisProcess(), reporter).run()
    states = {each.topic: each.state for each in reporter.reports if each.state is not LandingState.STOPPED}
    assert states == {lost: LandingState.FAILING, **dict.fromkeys(others, LandingState.WAITING)}
    assert all(topics.offsets(name) == [0, 1, 2] for name in others)
