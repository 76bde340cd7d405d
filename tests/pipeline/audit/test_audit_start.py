"""Audits that cover only the later part of each partition."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest

from chronik.cli.main import main
from chronik.client.groups import commit_offsets
from chronik.client.records import OutgoingRecord, TopicPartition
from chronik.ids import format_id
from chronik.pipeline.audit import AuditInputError, AuditReport, FindingKind, audit
from chronik.pipeline.audit.start import AuditStart, read_start_from_report
from chronik.pipeline.spark.tasks import run_locally
from chronik.pipeline.tables.storage import table_uri
from chronik.protocol.batch import parse_header
from chronik.testing import Broker
from tests.pipeline.audit.replica_logs import flip_byte
from tests.pipeline.landing.landed_topic import LandedTopic
from tests.pipeline.table_fixtures import JournalledTopic

EARLY, LATE = range(10), range(10, 20)


@pytest.fixture
def landed(chronik_broker: Broker, chronik_topic: str, tmp_path: Path) -> Iterator[LandedTopic]:
    """A topic with ten early and ten late records, each in a batch of its own, which are rows of a table."""
    with chronik_broker.cluster() as cluster:
        topic = LandedTopic(JournalledTopic(chronik_broker, chronik_topic), cluster, tmp_path / "tables")
        for number in (*EARLY, *LATE):
            topic.topic.send([OutgoingRecord(b'{"n": %d}' % number, partition=0)])
        topic.land()
        yield topic


def run_audit(landed: LandedTopic, start: AuditStart | None = None, **options: Any) -> AuditReport:
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


def test_file_that_is_no_report_is_rejected(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    path.write_text('{"ends": [{"topic": "a"}]}')
    with pytest.raises(AuditInputError, match=r"report\.json is not the report of an audit: write it with --json"):
        read_start_from_report(path)
