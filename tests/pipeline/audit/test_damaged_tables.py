"""Audit of damaged or missing tables: they are reported, and everything else is still checked."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from chronik.cli.main import main
from chronik.client.producer import Producer
from chronik.client.records import OutgoingRecord
from chronik.ids import format_id
from chronik.pipeline.audit import AuditInputError, AuditReport, FindingKind, audit
from chronik.pipeline.audit import table_comparison as comparing
from chronik.pipeline.audit.table_comparison import compare_table, open_audited_table
from chronik.pipeline.landing.settings import ENABLED_CONFIG
from chronik.pipeline.spark.tasks import run_locally
from chronik.pipeline.tables.catalog import open_or_create_table, open_table
from chronik.pipeline.tables.layout import TableKind as TableKind
from chronik.pipeline.tables.storage import build_dead_letters_uri, table_uri
from chronik.pipeline.tables.topic_table import TableSpec
from chronik.testing import Broker
from chronik.testing.plugin import BrokerFactory
from tests.pipeline.audit.replica_logs import flip_byte
from tests.pipeline.audit.test_table_comparison import TOPIC, LandedLog
from tests.pipeline.table_fixtures import build_record_columns, commit_rows, compact_table


@pytest.fixture(params=[250_000, 25])
def world(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LandedLog:
    """A table of two files, compared as one slice and as several slices that share files."""
    monkeypatch.setattr(comparing, "ROWS_PER_SLICE", request.param)
    created_world = LandedLog(tmp_path)
    created_world.landing.land(0, 60)
    created_world.landing.land(60, 120)
    assert len(created_world.landing.files()) == 2
    return created_world


def remove(path: Path) -> None:
    path.unlink()


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:100])


def empty(path: Path) -> None:
    path.write_bytes(b"")


def flip_in_a_page(path: Path) -> None:
    flip_byte(path, path.stat().st_size // 4, 0xFF)


def flip_in_a_page_header(path: Path) -> None:
    flip_byte(path, 6, 0xFF)


DAMAGES = [remove, truncate, empty, flip_in_a_page, flip_in_a_page_header]


def find_file(world: LandedLog, offset: int) -> Path:
    landed = open_audited_table(world.landing.root, TOPIC)
    assert landed is not None
    (file,) = (file for file in landed.table.files if file.may_contain(0, offset, offset + 1))
    return Path(landed.table.storage.full_path(file.path))


@pytest.mark.parametrize("damage", DAMAGES)
def test_unreadable_table_file_is_reported_once(world: LandedLog, damage: Callable[[Path], None]) -> None:
    path = find_file(world, 0)
    damage(path)
    findings, rows = world.compare()
    assert [(each.kind, each.topic, each.file) for each in findings] == [(FindingKind.TABLE_FILE, TOPIC, str(path))]
    assert rows >= 60
    assert "\n" not in findings[0].says


def test_other_findings_are_reported_besides_missing_table_file(tmp_path: Path) -> None:
    world = LandedLog(tmp_path)
    world.landing.land(0, 60)
    world.landing.land(60, 120, leave_out=77, twice=99)
    path = find_file(world, 0)
    remove(path)
    assert sorted(world.findings(), key=str) == [
        (FindingKind.DUPLICATE_ROW, 99),
        (FindingKind.LOST_ROW, 77),
        (FindingKind.TABLE_FILE, None),
    ]


def test_unreadable_dead_letter_file_is_reported(tmp_path: Path) -> None:
    world = LandedLog(tmp_path, TableKind.DECODED)
    world.landing.land(0, 120)
    (path,) = Path(build_dead_letters_uri(world.landing.root, TOPIC)).rglob("*.parquet")
    truncate(path)
    (found,), _ = world.compare()
    assert (found.kind, found.file) == (FindingKind.TABLE_FILE, str(path))


def test_missing_file_is_reported_while_table_gets_new_versions(
    world: LandedLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each comparison reads a later version of the table than the previous one."""
    uri = table_uri(world.landing.root, TOPIC)
    remove(path := find_file(world, 0))
    before = open_audited_table(world.landing.root, TOPIC)
    assert before is not None

    def open_moved_table(root: str, topic: str, options: Mapping[str, str] | None) -> comparing.AuditedTable | None:
        open_table(uri).append_in_sequence([], "moves", len(commits))
        commits.append(topic)
        return open_audited_table(root, topic, options)

    commits: list[str] = []
    monkeypatch.setattr(comparing, "open_audited_table", open_moved_table)
    findings, _ = compare_table(run_locally, world.landing.root, before, [world.replicas.partition()])
    assert [(each.kind, each.file) for each in findings] == [(FindingKind.TABLE_FILE, str(path))]
    assert commits


def test_files_replaced_by_compaction_are_not_missing(world: LandedLog) -> None:
    before = open_audited_table(world.landing.root, TOPIC)
    assert before is not None
    compact_table(table_uri(world.landing.root, TOPIC))
    remove(Path(before.table.storage.full_path(before.table.files[0].path)))
    compared = compare_table(run_locally, world.landing.root, before, [world.replicas.partition()])
    assert compared == ([], 120)


# With a broker


TOPICS = ("orders", "payments")


class BrokerWithTables:
    """A broker with two topics that have both landed."""

    def __init__(self, broker: Broker, root: Path | str) -> None:
        self.broker, self.root = broker, str(root)
        for topic in TOPICS:
            broker.create_topic(topic, 1)
            self.send(topic)
            self.land(topic)

    def send(self, topic: str) -> None:
        with self.broker.cluster() as client:
            Producer(client).send(topic, [OutgoingRecord(b"%d" % number, b"key") for number in range(20)])

    def land(self, topic: str) -> None:
        """Land the topic's records in two files."""
        with self.broker.cluster() as client:
            spec = TableSpec(topic, format_id(client.topic(topic).topic_id), TableKind.RAW)
        table = open_or_create_table(table_uri(self.root, topic), spec)
        landing = self.broker.records(topic)
        for part in (landing[:10], landing[10:]):
            offsets, times = [each.offset for each in part], [each.timestamp for each in part]
            values = [each.value for each in part]
            commit_rows(
                table, 0, build_record_columns(offsets, values, keys=[each.key for each in part], timestamps_ms=times)
            )

    def log(self, topic: str) -> list[Path]:
        return sorted(Path(table_uri(self.root, topic), "_delta_log").glob("*.json"))

    def audit(self, root: str | None = None, *, topics: list[str] | None = None, running: bool = True) -> AuditReport:
        return audit(
            [self.broker.data_dir],
            bootstrap=self.broker.bootstrap if running else None,
            table_root=root or self.root,
            topics=topics,
            tasks=run_locally,
        )


@pytest.fixture
def site(chronik_broker_factory: BrokerFactory, tmp_path: Path) -> BrokerWithTables:
    return BrokerWithTables(chronik_broker_factory(), tmp_path / "tables")


def test_damaged_table_file_does_not_prevent_other_checks(site: BrokerWithTables) -> None:
    assert site.audit().is_clean
    path = next(Path(table_uri(site.root, "orders")).rglob("*.parquet"))
    truncate(path)
    remove(deleted := next(Path(table_uri(site.root, "payments")).rglob("*.parquet")))
    report = site.audit()
    assert {(each.kind, each.topic, each.file) for each in report.findings} == {
        (FindingKind.TABLE_FILE, "orders", str(path)),
        (FindingKind.TABLE_FILE, "payments", str(deleted)),
    }
    assert (report.exit_code, report.tables, report.unchecked) == (1, 2, [])
    assert "FAILED 20 rows of 2 tables match their records: 2 findings" in report.to_text()


def test_unopenable_table_is_reported_and_others_are_checked(site: BrokerWithTables) -> None:
    truncated_entry = site.log("orders")[-1]
    truncated_entry.write_bytes(truncated_entry.read_bytes()[:50])
    report = site.audit()
    (message,) = report.unchecked
    assert message.startswith(table_uri(site.root, "orders"))
    assert "\n" not in message
    assert (report.exit_code, report.findings, report.tables, report.rows) == (2, [], 1, 20)
    remove(next(Path(table_uri(site.root, "payments")).rglob("*.parquet")))
    report = site.audit()
    assert (report.exit_code, report.unchecked) == (1, [message])
    assert [(each.kind, each.topic) for each in report.findings] == [(FindingKind.TABLE_FILE, "payments")]


def test_table_damaged_during_audit_is_reported_as_unchecked(
    site: BrokerWithTables, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Findings are confirmed by a second comparison, and by then the table cannot be opened."""
    remove(next(Path(table_uri(site.root, "orders")).rglob("*.parquet")))
    opened: list[str] = []

    def break_and_open(root: str, topic: str, options: Mapping[str, str] | None) -> comparing.AuditedTable | None:
        opened.append(topic)
        truncate(site.log("orders")[-1])
        return open_audited_table(root, topic, options)

    monkeypatch.setattr(comparing, "open_audited_table", break_and_open)
    report = site.audit()
    assert opened == ["orders"]
    assert (report.exit_code, report.findings, len(report.unchecked), report.tables) == (2, [], 1, 1)


# Missing tables


def test_missing_table_root_is_an_error(site: BrokerWithTables, capsys: pytest.CaptureFixture[str]) -> None:
    mistyped = f"{site.root}x"
    with pytest.raises(AuditInputError, match="does not exist"):
        site.audit(mistyped)
    directory, bootstrap = str(site.broker.data_dir), site.broker.bootstrap
    assert main(["pipeline", "audit", "--data-dir", directory, "-b", bootstrap, "--table-root", mistyped]) == 2
    assert capsys.readouterr().err == f"chronik: table root {mistyped} does not exist\n"


def test_table_root_without_any_matching_table_is_not_clean(site: BrokerWithTables, tmp_path: Path) -> None:
    other = tmp_path / "other"
    shutil.copytree(table_uri(site.root, "orders"), other / "something else")
    report = site.audit(str(other))
    assert (report.exit_code, report.unchecked) == (2, [f"{other} has no table for any of the topics"])
    assert "match their records" not in report.to_text()


@pytest.mark.parametrize("running", [True, False])
def test_landing_topic_with_records_and_no_table_is_reported(site: BrokerWithTables, running: bool) -> None:
    site.broker.create_topic("landing", 1, {ENABLED_CONFIG: "true"})
    site.broker.create_topic("plain", 1)
    site.broker.create_topic("new", 1, {ENABLED_CONFIG: "true"})
    assert site.audit().is_clean
    site.send("plain")
    assert site.audit().is_clean
    site.send("landing")
    if not running:
        site.broker.stop()
    report = site.audit(running=running)
    assert (report.exit_code, report.tables, report.rows) == (2, 2, 40)
    assert report.unchecked == [f"{site.root} has no table for landing, which has {ENABLED_CONFIG}=true and records"]


def test_requested_topic_without_table_is_reported(site: BrokerWithTables) -> None:
    assert site.audit(topics=["orders"]).is_clean
    site.broker.create_topic("plain", 1)
    report = site.audit(topics=["orders", "plain"])
    assert (report.exit_code, report.tables) == (2, 1)
    assert report.unchecked == [f"{site.root} has no table for plain, which was requested"]


@pytest.mark.parametrize("leftover", ["empty", "no folder"])
def test_table_files_without_transaction_log_are_reported(site: BrokerWithTables, leftover: str) -> None:
    uri = table_uri(site.root, "orders")
    if leftover == "empty":
        for path in site.log("orders"):
            path.unlink()
    else:
        shutil.rmtree(Path(uri, "_delta_log"))
    report = site.audit()
    assert (report.exit_code, report.tables, report.findings) == (2, 1, [])
    assert report.unchecked == [f"table {uri} has Parquet files but no transaction log"]
