"""Landing whose tables are maintained at the same time: small files are merged, and each record lands exactly once."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from chronik.client.records import OutgoingRecord
from chronik.pipeline import failpoints
from chronik.pipeline.journal.reports import MaintenanceReport, ProgressReporter, TopicReport
from chronik.pipeline.landing.runner import run
from chronik.pipeline.table_maintenance.policy import FILES_PER_MERGE
from chronik.pipeline.table_maintenance.settings import MAINTENANCE_CONFIG, MaintenanceOptions
from chronik.pipeline.tables.catalog import open_table
from chronik.pipeline.tables.storage import table_uri
from chronik.testing import Broker
from tests.pipeline.table_fixtures import JournalledTopic, read_positions

WAIT_SECONDS = 600.0


class WaitingReporter(ProgressReporter):
    """A reporter with which a test waits for reports."""

    def __init__(self) -> None:
        self.landed = 0
        self.maintenance: list[MaintenanceReport] = []
        self.lines: list[TopicReport] = []
        self._changed = threading.Condition()

    def report(self, report: TopicReport) -> None:
        with self._changed:
            self.landed = max(self.landed, sum(report.next_offsets.values()))
            self._changed.notify_all()

    def report_maintenance(self, report: MaintenanceReport) -> None:
        with self._changed:
            self.maintenance.append(report)
            self._changed.notify_all()

    def wait_for_records(self, count: int) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: self.landed >= count, WAIT_SECONDS)

    def wait_for_maintenance(self, count: int) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.maintenance) >= count, WAIT_SECONDS)


@pytest.fixture
def topic(chronik_broker: Broker, chronik_topic: str) -> JournalledTopic:
    return JournalledTopic(chronik_broker, chronik_topic)


@contextmanager
def running_pipeline(topic: JournalledTopic, root: Path, maintenance: MaintenanceOptions) -> Iterator[WaitingReporter]:
    reporter, stop = WaitingReporter(), threading.Event()
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(
            lambda: run(
                topic.broker.bootstrap,
                str(root),
                [topic.name],
                interval_s=0.05,
                group=f"lands-{root.name}",
                maintenance=maintenance,
                reporter=reporter,
                stop=stop,
            )
        )
        try:
            yield reporter
        finally:
            stop.set()
            running.result()


def send_and_land(topic: JournalledTopic, reporter: WaitingReporter, rounds: int) -> None:
    for _ in range(rounds):
        topic.send([OutgoingRecord(b"record %d" % len(topic.acknowledged), partition=0)])
        reporter.wait_for_records(len(topic.acknowledged))


def check_table(topic: JournalledTopic, root: Path) -> int:
    """Check that the table has each acknowledged record once, and return the number of its files."""
    uri = table_uri(str(root), topic.name)
    assert read_positions(uri) == sorted(topic.acknowledged)
    return len(open_table(uri).snapshot().file_uris)


def test_pipeline_compacts_its_table_while_it_lands(topic: JournalledTopic, tmp_path: Path) -> None:
    with running_pipeline(topic, tmp_path, MaintenanceOptions()) as reporter:
        send_and_land(topic, reporter, 2 * FILES_PER_MERGE)
        reporter.wait_for_maintenance(1)
        send_and_land(topic, reporter, 2)
    assert {(each.action, each.outcome) for each in reporter.maintenance} == {("compaction", "done")}
    assert check_table(topic, tmp_path) <= FILES_PER_MERGE + 3


def test_maintenance_is_off_by_option_or_topic_config(topic: JournalledTopic, tmp_path: Path) -> None:
    with running_pipeline(topic, tmp_path / "option", MaintenanceOptions(is_enabled=False)) as reporter:
        send_and_land(topic, reporter, FILES_PER_MERGE)
    assert check_table(topic, tmp_path / "option") == FILES_PER_MERGE
    disabled = JournalledTopic(topic.broker, f"{topic.name}-disabled")
    topic.broker.create_topic(disabled.name, 1, {MAINTENANCE_CONFIG: "false"})
    with running_pipeline(disabled, tmp_path / "config", MaintenanceOptions()) as reporter:
        send_and_land(disabled, reporter, FILES_PER_MERGE + 1)
    files = check_table(disabled, tmp_path / "config")
    assert (files, reporter.maintenance) == (FILES_PER_MERGE + 1, [])
    code, output = run_once(disabled, tmp_path / "config", None)
    assert code == 0, output
    assert check_table(disabled, tmp_path / "config") == FILES_PER_MERGE + 1


def run_once(topic: JournalledTopic, root: Path, failpoint: str | None, *options: str) -> tuple[int, str]:
    arguments = ["--once", "-b", topic.broker.bootstrap, "--table-root", str(root), "--topics", topic.name]
    environment = os.environ | ({} if failpoint is None else {failpoints.ENVIRONMENT_VARIABLE: failpoint})
    done = subprocess.run(
        [sys.executable, "-P", "-m", "chronik", "pipeline", "run", *arguments, *options],
        env=environment,
        capture_output=True,
        text=True,
        timeout=WAIT_SECONDS,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def test_records_land_once_despite_kills_during_maintenance(topic: JournalledTopic, tmp_path: Path) -> None:
    with running_pipeline(topic, tmp_path, MaintenanceOptions(is_enabled=False)) as reporter:
        send_and_land(topic, reporter, FILES_PER_MERGE)
    for failpoint, files in ((failpoints.COMPACTION_FILES, FILES_PER_MERGE + 1), (failpoints.COMPACTION_COMMIT, 1)):
        topic.send([OutgoingRecord(b"another", partition=0)])
        code, output = run_once(topic, tmp_path, failpoint)
        assert code == failpoints.EXIT_CODE, output
        assert check_table(topic, tmp_path) == files
    code, output = run_once(topic, tmp_path, None, "--no-maintenance")
    assert code == 0, output
    assert "landed: 0 rows" in output
