"""Tests of `chronik pipeline tables`: the state of tables from their metadata, and the lag from the brokers."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from chronik.cli.main import main
from chronik.cli.pipeline.table_listing import format_size
from chronik.client.cluster import ClusterClient
from chronik.pipeline.maintenance.compaction import compact_tables
from chronik.pipeline.maintenance.table_listing import TableStatus, list_tables
from chronik.pipeline.table_maintenance.policy import DAY_MS
from chronik.pipeline.table_maintenance.settings import MAINTENANCE_CONFIG
from chronik.pipeline.tables.topic_table import TableMissingError
from chronik.testing import Broker
from tests.pipeline.landing.landed_topic import LandedTopic
from tests.pipeline.table_fixtures import JournalledTopic

NOW_TOLERANCE_MS = 600_000


@pytest.fixture
def cluster(chronik_broker: Broker) -> Iterator[ClusterClient]:
    with chronik_broker.cluster() as cluster:
        yield cluster


@pytest.fixture
def landed(chronik_broker: Broker, chronik_topic: str, cluster: ClusterClient, tmp_path: Path) -> LandedTopic:
    return LandedTopic(JournalledTopic(chronik_broker, chronik_topic), cluster, tmp_path)


def find_status(landed: LandedTopic, suffix: str = "") -> TableStatus:
    found = {each.table: each for each in list_tables(landed.root, cluster=landed.cluster)}
    return found[landed.topic.name + suffix]


def test_listing_reports_size_lag_dead_letters_and_next_vacuum(landed: LandedTopic) -> None:
    landed.send(b'{"id": 1}', b'{"id": 2}', b"bad")
    landed.land()
    status = find_status(landed)
    assert (status.topic, status.format, status.files, status.rows) == (landed.topic.name, "delta", 1, 2)
    assert (status.lag_records, status.lag_seconds, status.dead_letters) == (0, 0.0, 1)
    assert (
        status.average_file_bytes == status.size_bytes == sum(each.size_bytes for each in landed.open().files().files)
    )
    assert status.versions == landed.open().snapshot().version + 1
    assert (status.last_maintenance, status.maintained_by) == (None, None)
    assert status.next_maintenance is not None
    assert status.next_maintenance.action == "vacuum"
    in_a_week_ms = time.time_ns() // 1_000_000 + 7 * DAY_MS
    assert abs(status.next_maintenance.due_ms - in_a_week_ms) < NOW_TOLERANCE_MS
    dead_letters = find_status(landed, "~dead_letters")
    assert (dead_letters.rows, dead_letters.dead_letters, dead_letters.lag_records) == (1, None, None)


def test_lag_counts_records_and_age_of_the_oldest(landed: LandedTopic) -> None:
    landed.send(b'{"id": 1}')
    landed.land()
    landed.send(b'{"id": 2}', b'{"id": 3}')
    status = find_status(landed)
    assert status.lag_records == 2
    assert status.lag_seconds is not None
    assert 0 < status.lag_seconds < NOW_TOLERANCE_MS / 1000


def test_compaction_becomes_due_and_is_then_reported(landed: LandedTopic) -> None:
    for number in range(8):
        landed.send(b'{"id": %d}' % number)
        landed.land()
    due = find_status(landed).next_maintenance
    assert due is not None
    assert (due.action, due.due_ms <= time.time_ns() // 1_000_000) == ("compaction", True)
    compact_tables(landed.root)
    status = find_status(landed)
    assert status.last_maintenance is not None
    assert (status.last_maintenance.files_removed, status.last_maintenance.files_added) == (8, 1)
    assert status.next_maintenance is not None
    assert status.next_maintenance.action == "vacuum"


def test_command_prints_table_and_json(landed: LandedTopic, capsys: pytest.CaptureFixture[str]) -> None:
    landed.send(b'{"id": 1}')
    landed.land()
    words = ["pipeline", "tables", "--table-root", landed.root, "-b", landed.topic.broker.bootstrap]
    assert main([*words, landed.topic.name]) == 0
    heading, line, _ = capsys.readouterr().out.splitlines()
    assert heading.split() == [
        "TABLE", "FORMAT", "ROWS", "SIZE", "FILES", "AVG-FILE", "VERSIONS", "LAG", "LAG-TIME", "DEAD",
        "LAST-MAINTENANCE", "NEXT",
    ]  # fmt: skip
    assert line.split()[:3] == [landed.topic.name, "delta", "1"]
    assert line.endswith("vacuum in 6 d")
    assert main([*words, "--json"]) == 0
    first, _ = json.loads(capsys.readouterr().out)
    assert (first["table"], first["rows"], first["lag_records"]) == (landed.topic.name, 1, 0)
    assert first["average_file_bytes"] == first["size_bytes"]


def test_topic_config_disables_next_maintenance(chronik_broker: Broker, cluster: ClusterClient, tmp_path: Path) -> None:
    chronik_broker.create_topic("unmaintained", 1, {MAINTENANCE_CONFIG: "false"})
    landed = LandedTopic(JournalledTopic(chronik_broker, "unmaintained"), cluster, tmp_path)
    landed.send(b'{"id": 1}')
    landed.land()
    assert find_status(landed).next_maintenance is None


def test_tables_are_listed_without_brokers(landed: LandedTopic, capsys: pytest.CaptureFixture[str]) -> None:
    landed.send(b'{"id": 1}')
    landed.land()
    words = ["pipeline", "tables", "--table-root", landed.root, "-b", "127.0.0.1:1", "--timeout", "0.5", "--json"]
    assert main(words) == 0
    printed = capsys.readouterr()
    assert [each["lag_records"] for each in json.loads(printed.out)] == [None, None]
    assert printed.err.endswith("; the lag is unknown\n")
    with pytest.raises(TableMissingError, match="no table of orderz"):
        list_tables(landed.root, ["orderz"])


@pytest.mark.parametrize(
    ("size_bytes", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (128 << 20, "128.0 MiB"), (5 << 50, "5120.0 TiB")],
)
def test_size_has_binary_unit(size_bytes: int, text: str) -> None:
    assert format_size(size_bytes) == text
