"""`chronik pipeline run --table-format iceberg`: each record lands exactly once, also after a kill at any point."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from chronik.client.records import OutgoingRecord
from chronik.pipeline.landing import failpoints
from chronik.pipeline.tables.catalog import list_table_names, open_table
from chronik.pipeline.tables.storage import build_dead_letters_uri, table_uri
from chronik.pipeline.tables.table_files import TableFiles, scan
from chronik.pipeline.tables.topic_table import TableFormat
from chronik.testing import Broker
from tests.pipeline.table_fixtures import JournalledTopic, RecordPosition
from tests.run_size import sized

RECORDS = sized(1_500, 100_000)
PARTITIONS = 2
RUN_SECONDS_MAX = 300

KILLED_BEFORE_REQUEST, KILLED_BEFORE_RESPONSE = "before the request", "before the response"
KILLS = (KILLED_BEFORE_REQUEST, KILLED_BEFORE_RESPONSE)

RUNS = (
    failpoints.SCHEMA_CHANGE,
    failpoints.SPARK_COMMIT,
    failpoints.DEAD_LETTER_COMMIT,
    KILLED_BEFORE_REQUEST,
    KILLED_BEFORE_RESPONSE,
    failpoints.DATA_COMMIT,
    failpoints.GROUP_COMMIT,
    None,
)

RUN_AND_KILL = """
import os, sys
from pyiceberg.catalog.sql import SqlCatalog
from chronik.__main__ import run
commit = SqlCatalog.commit_table
def commit_and_exit(self, table, requirements, updates):
    if table.name()[-1] != IDENTIFIER or not any(type(each).__name__ == "AddSnapshotUpdate" for each in updates):
        return commit(self, table, requirements, updates)
    if IS_APPLIED:
        commit(self, table, requirements, updates)
    os._exit(77)
SqlCatalog.commit_table = commit_and_exit
run()
"""
"""A program that is killed while it commits rows: when the catalog has, or has not, applied the request."""


def run_pipeline(
    broker: Broker, root: Path, topic: str, kill: str | None, number: int
) -> subprocess.CompletedProcess[str]:
    program = ["-m", "chronik"]
    if kill in KILLS:
        values = f"IDENTIFIER, IS_APPLIED = {topic!r}, {kill == KILLED_BEFORE_RESPONSE}\n"
        program = ["-c", values + RUN_AND_KILL]
    arguments = ["pipeline", "run", "--once", "-b", broker.bootstrap, "--table-root", str(root), "--topics", topic]
    arguments += ["--table-format", "iceberg", "--format", "json", "--group", f"run-{number}"]
    points = kill if kill in failpoints.DRIVER_FAILPOINTS else ""
    return subprocess.run(
        [sys.executable, "-P", *program, *arguments],
        env=os.environ | {failpoints.ENVIRONMENT_VARIABLE: points},
        capture_output=True,
        text=True,
        timeout=RUN_SECONDS_MAX,
        check=False,
    )


def build_records(run_number: int, size: int) -> list[OutgoingRecord]:
    """Build JSON records with a field that is new in each run, and some invalid values."""
    return [
        OutgoingRecord(
            b"not JSON %d" % number
            if number % 97 == 0
            else json.dumps({"n": number, f"new_in_{run_number}": number / 2, "tags": [{"a": "b"}]}).encode(),
            partition=number % PARTITIONS,
        )
        for number in range(size)
    ]


def read_positions(files: TableFiles) -> list[RecordPosition]:
    return [
        position
        for batch in scan(files, ["_partition", "_offset", "_value_crc32c"])
        for position in zip(*(column.to_pylist() for column in batch.columns), strict=True)
    ]


def check(root: Path, topic: JournalledTopic) -> int:
    """Check that the tables have each record below their next offsets once, and return the number of records."""
    if topic.name not in list_table_names(str(root)):
        return 0
    table = open_table(table_uri(str(root), topic.name))
    assert table.spec.table_format is TableFormat.ICEBERG
    ends = table.next_offsets()
    expected = sorted(each[:2] for each in topic.acknowledged if each[1] < ends.get(each[0], 0))
    good = read_positions(table.files())
    dead = read_positions(open_table(build_dead_letters_uri(str(root), topic.name)).files())
    assert sorted(each[:2] for each in [*good, *dead] if each[1] < ends.get(each[0], 0)) == expected
    assert set(good) | set(dead) <= set(topic.acknowledged)
    return len(expected)


@pytest.mark.slow
def test_each_record_lands_once_despite_kills(chronik_broker: Broker, chronik_topic: str, tmp_path: Path) -> None:
    name = chronik_topic.replace("-", "_").lower()
    chronik_broker.create_topic(name, PARTITIONS)
    topic = JournalledTopic(chronik_broker, name)
    for number, kill in enumerate(RUNS):
        topic.send(build_records(number, RECORDS // len(RUNS)))
        done = run_pipeline(chronik_broker, tmp_path, name, kill, number)
        assert done.returncode == (0 if kill is None else failpoints.EXIT_CODE), done.stderr
        landed = check(tmp_path, topic)
    assert landed == len(topic.acknowledged)
    columns = open_table(table_uri(str(tmp_path), name)).descriptor().schema.names
    assert {f"new_in_{number}" for number in range(len(RUNS))} <= set(columns)
