"""Crashes of `chronik pipeline run` at every failpoint, in local mode: each record lands exactly once.

Each run continues from the tables alone: there is no checkpoint, and even the group differs. After every run, the
tables must contain exactly the records below their next offsets, compared with the producer's journal by partition,
offset and CRC.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from chronik.client.records import OutgoingRecord
from chronik.pipeline import failpoints
from chronik.pipeline.landing.settings import FORMAT_CONFIG
from chronik.pipeline.tables.catalog import open_table
from chronik.pipeline.tables.storage import build_dead_letters_uri, table_uri
from chronik.pipeline.tables.topic_table import TableMissingError
from chronik.testing import Broker
from tests.pipeline.table_fixtures import JournalledTopic, read_positions
from tests.run_size import sized

pytestmark = pytest.mark.xdist_group("jvms")

RECORDS = sized(20_000, 200_000)
PARTITIONS = 3
RUN_SECONDS_MAX = 300

RUNS = (
    (failpoints.SCHEMA_CHANGE,),  # of the columns that a sample suggests
    (failpoints.BEFORE_FILES, failpoints.SCHEMA_CHANGE),
    (failpoints.AFTER_FILES, failpoints.SPARK_COMMIT),
    (failpoints.DEAD_LETTER_COMMIT,),
    (failpoints.DATA_COMMIT,),
    (f"{failpoints.GROUP_COMMIT}:2",),  # for the second topic
    (),
)
WORKER_DIED = "Python worker exited unexpectedly"


@pytest.fixture
def topics(chronik_broker: Broker, chronik_topic: str) -> dict[str, JournalledTopic]:
    names = {kind: f"{chronik_topic}-{kind}" for kind in ("json", "raw")}  # landed in this order
    for kind, name in names.items():
        chronik_broker.create_topic(name, PARTITIONS, {FORMAT_CONFIG: kind})
    return {kind: JournalledTopic(chronik_broker, name) for kind, name in names.items()}


def build_records(run_number: int, size: int) -> list[OutgoingRecord]:
    """Build JSON records with a field that is new in each run, some tombstones, and some invalid values."""
    records = []
    for number in range(size):
        value: bytes | None = json.dumps({"n": number, f"new_in_{run_number}": number / 2}).encode()
        if number % 97 == 0:
            value = b"not JSON %d" % number
        elif number % 89 == 0:
            value = None
        records.append(OutgoingRecord(value, key=b"%d" % number, partition=number % PARTITIONS))
    return records


def run(broker: Broker, root: Path, names: list[str], run_number: int, points: tuple[str, ...]) -> tuple[int, str]:
    arguments = ["--once", "-b", broker.bootstrap, "--table-root", str(root), "--topics", ",".join(names)]
    arguments += ["--master", "local[*,4]"]  # so that tasks run in workers
    done = subprocess.run(
        [sys.executable, "-P", "-m", "chronik", "pipeline", "run", *arguments, "--group", f"turn-{run_number}"],
        env=os.environ | {failpoints.ENVIRONMENT_VARIABLE: ",".join(points)},
        capture_output=True,
        text=True,
        timeout=RUN_SECONDS_MAX,
        check=False,
    )
    return done.returncode, done.stderr


def check(root: Path, topic: JournalledTopic) -> int:
    """Check that the tables have each record below their next offsets once, and return the number of records."""
    uri, dead_uri = table_uri(str(root), topic.name), build_dead_letters_uri(str(root), topic.name)
    try:
        committer = open_table(uri)
    except TableMissingError:
        return 0
    ends = committer.next_offsets()
    expected = sorted((each for each in topic.acknowledged if each[1] < ends.get(each[0], 0)), key=_position_key)
    good = read_positions(uri)
    assert len(set(good)) == len(good)
    dead = read_positions(dead_uri) if Path(dead_uri).exists() else []
    assert len(set(dead)) == len(dead)
    # Dead-letter records are committed first: a crashed run may have left some beyond the rows.
    assert sorted(good + [each for each in dead if each[1] < ends.get(each[0], 0)], key=_position_key) == expected
    assert not set(good) & set(dead)
    assert set(dead) <= set(topic.acknowledged)
    return len(expected)


def _position_key(position: tuple[int, int, int | None]) -> tuple[int, int]:
    return position[:2]


def parquet_files(root: Path, topic: JournalledTopic) -> tuple[int, int]:
    """Return the number of Parquet files in the directory, and of those in the table."""
    uri = table_uri(str(root), topic.name)
    return len(list(Path(uri).rglob("*.parquet"))), len(open_table(uri).snapshot().file_uris)


def test_each_record_lands_once_despite_crash_at_any_failpoint(
    chronik_broker: Broker, topics: dict[str, JournalledTopic], tmp_path: Path
) -> None:
    size = RECORDS // len(RUNS) // len(topics) + 1
    names = [topic.name for topic in topics.values()]
    for run_number, points in enumerate(RUNS):
        for topic in topics.values():
            topic.send(build_records(run_number, size))
        code, output = run(chronik_broker, tmp_path, names, run_number, points)
        assert code == (failpoints.EXIT_CODE if points else 0), output
        assert (WORKER_DIED in output) == any(point in failpoints.TASK_FAILPOINTS for point in points), output
        landed = [check(tmp_path, topic) for topic in topics.values()]
        if failpoints.AFTER_FILES in points:
            written, referenced = parquet_files(tmp_path, topics["raw"])
            assert written > referenced == 0, "files written before the crash are not part of the table"
    assert landed == [len(topic.acknowledged) for topic in topics.values()]
    assert sum(landed) >= RECORDS
    dead = read_positions(build_dead_letters_uri(str(tmp_path), topics["json"].name))
    assert len(dead) == len(RUNS) * len(range(0, size, 97))
