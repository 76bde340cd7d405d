"""Audits that cover only the later part of each partition."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest

from chronik.cli.main import main
from chronik.client.groups import commit_offsets
from chronik.client.records import OutgoingRecord, TopicPartition
from chronik.files.disk import DiskFileSystem
from chronik.ids import format_id
from chronik.log.config import LogConfig
from chronik.pipeline.audit import AuditInputError, AuditReport, FindingKind, audit
from chronik.pipeline.audit.data_directories import find_offset_of_time
from chronik.pipeline.audit.start import OTHER_TOPICS, AuditPoint, AuditPoints, AuditStart, read_start_from_report
from chronik.pipeline.spark.tasks import run_locally
from chronik.pipeline.tables.storage import table_uri
from chronik.protocol.batch import parse_header
from chronik.testing import Broker
from tests.log.harness import FOLDER, NOW_MS, LogHarness, batch
from tests.pipeline.audit.replica_logs import flip_byte
from tests.pipeline.landing.landed_topic import LandedTopic
from tests.pipeline.table_fixtures import JournalledTopic

EARLY, LATE = range(10), range(10, 20)


@pytest.fixture
def later_ms() -> int:
    """A time after the timestamps of all records that have been produced without one."""
    return int(time.time() * 1000) + 600_000


@pytest.fixture
def landed(chronik_broker: Broker, chronik_topic: str, tmp_path: Path) -> Iterator[LandedTopic]:
    """A topic with ten early and ten late records, each in a batch of its own, which are rows of a table."""
    with chronik_broker.cluster() as cluster:
        topic = LandedTopic(JournalledTopic(chronik_broker, chronik_topic), cluster, tmp_path / "tables")
        for number in (*EARLY, *LATE):
            topic.topic.send([OutgoingRecord(b'{"n": %d}' % number, partition=0)])
        topic.land()
        yield topic


def run_audit(landed: LandedTopic, start: AuditStart | AuditPoints | None = None, **options: Any) -> AuditReport:
    broker = landed.topic.broker
    options = {"bootstrap": broker.bootstrap, "table_root": landed.root} | options
    return audit([broker.data_dir], topics=[landed.topic.name], tasks=run_locally, start=start, **options)


def damage_record(landed: LandedTopic, number: int) -> None:
    """Flip a byte of the batch with a record."""
    topic_id = format_id(landed.cluster.topic(landed.topic.name).topic_id)
    (path,) = (landed.topic.broker.data_dir / "topics" / topic_id / "0").glob("*.log")
    data, position = path.read_bytes(), 0
    while (header := parse_header(data, position)).base_offset < number:  # the running broker has allocated more
        position += header.size
    flip_byte(path, position + header.size - 1)


def list_findings(report: AuditReport) -> set[tuple[FindingKind, int | None]]:
    return {(each.kind, each.offset) for each in report.findings}


def start_at(landed: LandedTopic, offset: int) -> AuditStart:
    topic_id = format_id(landed.cluster.topic(landed.topic.name).topic_id)
    return AuditStart({(topic_id, 0): offset})


def test_audit_reads_only_later_records_and_rows(landed: LandedTopic) -> None:
    assert (run_audit(landed).records, run_audit(landed).rows) == (20, 20)
    report = run_audit(landed, start_at(landed, 10))
    assert report.is_clean, report.to_text()
    assert (report.records, report.rows) == (10, 10)
    assert "10 of 20 offsets audited; earlier ones were skipped" in report.notes


def test_damage_is_found_only_in_the_audited_part(landed: LandedTopic) -> None:
    damage_record(landed, 3)
    assert (FindingKind.CHECKSUM, 3) in list_findings(run_audit(landed))
    assert run_audit(landed, start_at(landed, 10)).is_clean
    damage_record(landed, 15)
    assert {offset for _, offset in list_findings(run_audit(landed, start_at(landed, 10)))} == {15}


def test_divergent_rows_are_found_only_in_the_audited_part(landed: LandedTopic) -> None:
    table = deltalake.DeltaTable(table_uri(landed.root, landed.topic.name))
    rows = pa.table(table.to_pyarrow_table())
    for lost, changed, twice in ((1, 2, 4), (11, 12, 14)):
        numbers = [each for each in range(20) if each != lost] + [twice]
        wrong = rows.sort_by("_offset").take(numbers)
        values = [-1 if number == changed else number for number in numbers]
        wrong = wrong.set_column(wrong.column_names.index("n"), "n", pa.array(values, pa.int64()))
        deltalake.write_deltalake(table, wrong, mode="overwrite")
        expected = {
            (FindingKind.LOST_ROW, lost),
            (FindingKind.DIFFERENT_ROW, changed),
            (FindingKind.DUPLICATE_ROW, twice),
        }
        assert list_findings(run_audit(landed)) == expected
        assert list_findings(run_audit(landed, start_at(landed, 10))) == (expected if lost in LATE else set())


def test_audit_continues_from_the_report_of_an_earlier_one(
    landed: LandedTopic, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "report.json"
    path.write_text(json.dumps(run_audit(landed).to_json()))
    landed.topic.send([OutgoingRecord(b'{"n": 20}', partition=0)])
    assert run_audit(landed, read_start_from_report(path)).records == 1
    broker = landed.topic.broker
    where = ["--data-dir", str(broker.data_dir), "-b", broker.bootstrap, "--topics", landed.topic.name]
    assert main(["pipeline", "audit", *where, "--json", "--since", str(path)]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["records"], found["ends"][0]["end"]) == (1, 21)
    assert main(["pipeline", "audit", *where, "--since", str(tmp_path / "missing")]) == 2
    assert "missing: No such file or directory" in capsys.readouterr().err


def test_topic_that_was_created_again_is_audited_completely(landed: LandedTopic) -> None:
    assert run_audit(landed, AuditStart({("AAAAAAAAAAAAAAAAAAAAAQ", 0): 15})).records == 20


def test_offsets_committed_before_the_start_are_no_findings(landed: LandedTopic) -> None:
    commit_offsets(landed.cluster, f"{landed.topic.name}-readers", {TopicPartition(landed.topic.name, 0): 2})
    assert run_audit(landed, start_at(landed, 10)).is_clean


def test_audit_starts_at_a_time_or_at_offsets(
    landed: LandedTopic, capsys: pytest.CaptureFixture[str], later_ms: int
) -> None:
    name, broker = landed.topic.name, landed.topic.broker
    for number in range(20, 30):
        record = OutgoingRecord(b'{"n": %d}' % number, partition=0, timestamp=later_ms + number)
        landed.topic.send([record])
    points = {
        f"{(later_ms + 25)}": 5,
        f"{name}={later_ms}": 10,
        "3000-01-01": 0,
        "1970-01-01T00:00:00Z": 30,
        "offset:28": 2,
        f'{name}={{"0": 12}}': 18,
        f"other-{name}=offset:5": None,
        f'{name}={{"1": 12}}': None,
    }
    where = ["--data-dir", str(broker.data_dir), "-b", broker.bootstrap, "--topics", name, "--json"]
    for point, expected in points.items():
        code = main(["pipeline", "audit", *where, "--since", point])
        out, error = capsys.readouterr()
        if expected is None:
            assert code == 2
            assert "cannot start in" in error
        else:
            assert (code, json.loads(out)["records"]) == (0, expected), point


def test_damaged_batch_is_not_skipped_by_a_time(landed: LandedTopic, later_ms: int) -> None:
    for number in range(20, 30):
        landed.topic.send([OutgoingRecord(b'{"n": %d}' % number, partition=0, timestamp=later_ms + number)])
    damage_record(landed, 15)
    report = run_audit(landed, {OTHER_TOPICS: AuditPoint(timestamp_ms=later_ms)}, table_root=None)
    assert (FindingKind.CHECKSUM, 15) in list_findings(report)


@pytest.mark.parametrize("closes", [True, False])
def test_time_is_found_in_segments_with_and_without_complete_indexes(tmp_path: Path, closes: bool) -> None:
    """The lookup equals a search in all batches; the last index entries of an open log are not on disk."""
    log = LogHarness(DiskFileSystem(tmp_path), LogConfig(segment_bytes=1000, index_interval_bytes=200))
    generator = random.Random(5)
    times = [NOW_MS + 10 * number + generator.randrange(50) for number in range(60)]
    for time_ms in times:
        log.append(batch(b"a", b"b", timestamp=time_ms))
    log.sync()
    if closes:
        log.close()
    directory = str(tmp_path / FOLDER)
    for wanted in range(NOW_MS - 5, NOW_MS + 700, 5):
        expected = next((2 * number for number, time_ms in enumerate(times) if time_ms + 1 >= wanted), 120)
        assert find_offset_of_time(directory, wanted) == expected
    assert find_offset_of_time(str(tmp_path), NOW_MS) is None


@pytest.mark.parametrize("point", ["offset:x", '{"a": 1}', "{}", '{"0": -1}', "orders=report.json"])
def test_invalid_start_is_rejected(point: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pipeline", "audit", "--data-dir", str(tmp_path), "--since", point]) == 2
    assert "expected" in capsys.readouterr().err


def test_file_that_is_no_report_is_rejected(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    path.write_text('{"ends": [{"topic": "a"}]}')
    with pytest.raises(AuditInputError, match=r"report\.json is not the report of an audit: write it with --json"):
        read_start_from_report(path)
