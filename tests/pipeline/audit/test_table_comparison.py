"""Comparison of table rows with log records: lost, duplicate, foreign and different rows are reported."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from chronik.log.config import LogConfig
from chronik.pipeline.audit import table_comparison as comparing
from chronik.pipeline.audit.batch_scanner import BatchScanner, decode_valid_batches
from chronik.pipeline.audit.findings import Finding, FindingKind, ReplicaId
from chronik.pipeline.audit.table_comparison import compare_table, find_rows_beyond_log, open_audited_table
from chronik.pipeline.records.columns import RecordColumns
from chronik.pipeline.spark.tasks import run_locally
from chronik.pipeline.tables.catalog import open_or_create_table, open_table
from chronik.pipeline.tables.commit_plan import PartitionRange, TaskOutput
from chronik.pipeline.tables.layout import TableKind as TableKind
from chronik.pipeline.tables.layout import build_table_batch, initial_schema, system_columns
from chronik.pipeline.tables.parquet import PartitionedParquetWriter
from chronik.pipeline.tables.storage import TableStorage, build_dead_letters_uri, table_uri
from chronik.pipeline.tables.topic_table import TableSpec, TopicTable
from chronik.pipeline.tables.values.row_decoder import infer_statistics
from tests.pipeline.audit.replica_logs import TOPIC_ID, LogBuilder, ReplicaSet, flip_byte
from tests.pipeline.table_fixtures import compact_table

TOPIC = "orders"


class LandingHarness:
    """Lands the records of a log in a table, as the pipeline does."""

    def __init__(self, root: Path, log: Path, kind: TableKind = TableKind.RAW) -> None:
        self.root, self._log = str(root), str(log)
        self._table = open_or_create_table(table_uri(self.root, TOPIC), TableSpec(TOPIC, TOPIC_ID, kind))
        self._dead = TableSpec(TOPIC, TOPIC_ID, TableKind.DEAD_LETTERS)

    def land(self, start: int, end: int, *, leave_out: int | None = None, twice: int | None = None) -> None:
        schema = self._table.snapshot().schema
        rows_landed: list[pa.RecordBatch] = []
        dead: list[pa.RecordBatch] = []
        for records in self._records(start, end):
            if self._table.spec.kind is TableKind.RAW:
                rows_landed.append(build_table_batch(system_columns(0, records), schema))
                continue
            for decoded in self._table.descriptor().row_decoder().decode_records(0, records):
                rows_landed.append(build_table_batch(decoded.rows, schema))
                dead += (
                    []
                    if decoded.dead_letters is None
                    else [build_table_batch(decoded.dead_letters, initial_schema(TableKind.DEAD_LETTERS))]
                )
        table = pa.Table.from_batches(rows_landed, schema)
        if leave_out is not None:
            table = table.filter(pc.field("_offset") != leave_out)
        if twice is not None:
            table = pa.concat_tables([table, table.filter(pc.field("_offset") == twice)])
        if dead:
            dead_letter_table = open_or_create_table(build_dead_letters_uri(self.root, TOPIC), self._dead)
            dead_letter_table.commit([self._written(dead_letter_table, pa.Table.from_batches(dead), start, end)])
        self._table.commit([self._written(self._table, table, start, end)])

    def add_columns(self, value: bytes) -> None:
        """Add columns for the fields of a value."""
        self._table.add_columns(infer_statistics([value]))

    def _records(self, start: int, end: int) -> list[RecordColumns]:
        replica_id = ReplicaId(TOPIC, 0, 1)
        read = decode_valid_batches(BatchScanner(self._log, replica_id, start, end), replica_id, start, end)
        return [each for each in read if isinstance(each, RecordColumns)]

    def _written(self, committer: TopicTable, rows: pa.Table, start: int, end: int) -> TaskOutput:
        with PartitionedParquetWriter(TableStorage(committer.uri), rows.schema, ("_date",)) as writer:
            for batch in rows.to_batches():
                writer.write(batch)
        return TaskOutput((PartitionRange(0, start, end),), writer.files)

    def files(self) -> list[Path]:
        return sorted(Path(table_uri(self.root, TOPIC)).rglob("*.parquet"))


class LandedLog:
    """A log and a table that it lands in."""

    def __init__(self, tmp_path: Path, kind: TableKind = TableKind.RAW) -> None:
        self.directory = tmp_path / "1"
        log = LogBuilder(self.directory, LogConfig(segment_bytes=2000))
        for number in range(12):
            values = [b'{"number": %d}' % (10 * number + each) for each in range(10)]
            if number == 4:
                values[3] = b"no JSON at all"
            if number == 5:
                log.append_batch((b"key", None), (None, b"{}"), *((b"key", value) for value in values[2:]))
            else:
                log.append_batch(*((b"key", value) for value in values))
        self.replicas = ReplicaSet({1: self.directory}, log.close())
        self.landing = LandingHarness(tmp_path / "tables", self.directory, kind)

    def compare(self) -> tuple[list[Finding], int]:
        landed = open_audited_table(self.landing.root, TOPIC)
        assert landed is not None
        return compare_table(run_locally, self.landing.root, landed, [self.replicas.partition()])

    def findings(self) -> list[tuple[FindingKind, int | None]]:
        return [(each.kind, each.offset) for each in self.compare()[0]]


@pytest.fixture(autouse=True, params=[250_000, 25])
def _slice_sizes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comparing, "ROWS_PER_SLICE", request.param)


@pytest.mark.parametrize("kind", [TableKind.RAW, TableKind.DECODED])
def test_table_with_all_landed_records_is_clean(tmp_path: Path, kind: TableKind) -> None:
    world = LandedLog(tmp_path, kind)
    world.landing.land(0, 50)
    assert world.compare() == ([], 50)
    world.landing.land(50, 115)
    assert world.compare() == ([], 115)
    compact_table(table_uri(world.landing.root, TOPIC))
    assert world.compare() == ([], 115)
    world.replicas.start = 20
    assert world.compare() == ([], 95)


@pytest.mark.parametrize("kind", [TableKind.RAW, TableKind.DECODED])
def test_lost_row_is_reported_with_log_position(tmp_path: Path, kind: TableKind) -> None:
    world = LandedLog(tmp_path, kind)
    world.landing.land(0, 60)
    world.landing.land(60, 120, leave_out=77)
    (found,), _ = world.compare()
    assert (found.kind, found.topic, found.partition, found.offset) == (FindingKind.LOST_ROW, TOPIC, 0, 77)
    assert found.file == table_uri(world.landing.root, TOPIC)
    assert "the record at offset 77 has no row" in found.says
    assert str(world.directory) in found.says
    assert "byte" in found.says


def test_lost_first_and_last_rows_are_reported(tmp_path: Path) -> None:
    world = LandedLog(tmp_path)
    world.landing.land(0, 60, leave_out=0)
    world.landing.land(60, 120, leave_out=119)
    assert world.findings() == [(FindingKind.LOST_ROW, 0), (FindingKind.LOST_ROW, 119)]


def test_deleted_rows_are_reported_as_offset_ranges(tmp_path: Path) -> None:
    world = LandedLog(tmp_path)
    world.landing.land(0, 60)
    world.landing.land(60, 120, leave_out=0)
    table = open_table(table_uri(world.landing.root, TOPIC))
    opened = open_audited_table(world.landing.root, TOPIC)
    assert opened is not None
    assert len(opened.table.files) == 2
    DeltaTable(table.uri).delete("_offset >= 60")
    findings, _ = world.compare()
    assert {each.kind for each in findings} == {FindingKind.LOST_ROW}
    lost = sorted(offset for each in findings for offset in range(each.offset or 0, each.end_offset or 0))
    assert lost == list(range(60, 120))


def test_duplicate_row_is_reported_with_its_file(tmp_path: Path) -> None:
    world = LandedLog(tmp_path)
    world.landing.land(0, 60)
    world.landing.land(60, 120, twice=99)
    (found,), _ = world.compare()
    assert (found.kind, found.offset) == (FindingKind.DUPLICATE_ROW, 99)
    assert found.file in [str(path) for path in world.landing.files()]


def test_row_without_record_is_reported_as_foreign(tmp_path: Path) -> None:
    world = LandedLog(tmp_path)
    world.landing.land(0, 120)
    # Change the offset of a row, so that it belongs to no record.
    (path,) = world.landing.files()
    rows = pq.read_table(path)
    changed = rows.set_column(0, "_partition", rows["_partition"])
    offsets = rows["_offset"].to_pylist()
    offsets[offsets.index(110)] = 130
    changed = changed.set_column(changed.schema.get_field_index("_offset"), "_offset", pa.array(offsets, pa.int64()))
    pq.write_table(changed, path)
    assert sorted(world.findings()) == [(FindingKind.FOREIGN_ROW, 130), (FindingKind.LOST_ROW, 110)]


@pytest.mark.parametrize("column", ["_key", "_value", "_timestamp"])
def test_row_that_differs_from_its_record_is_reported(tmp_path: Path, column: str) -> None:
    world = LandedLog(tmp_path)
    world.landing.land(0, 120)
    (path,) = world.landing.files()
    rows = pq.read_table(path)
    values = rows[column].to_pylist()
    values[64] = values[3] if column == "_value" else values[64].replace(year=2020) if column == "_timestamp" else b"?"
    field = rows.schema.field(column)
    pq.write_table(rows.set_column(rows.schema.get_field_index(column), field, pa.array(values, field.type)), path)
    (found,), _ = world.compare()
    assert (found.kind, found.offset, found.file) == (FindingKind.DIFFERENT_ROW, 64, str(path))
    assert f"the {column.removeprefix('_')} of the row" in found.says


def test_missing_dead_letter_table_is_reported_as_lost_row(tmp_path: Path) -> None:
    world = LandedLog(tmp_path, TableKind.DECODED)
    world.landing.land(0, 120)
    assert world.findings() == []
    shutil.rmtree(build_dead_letters_uri(world.landing.root, TOPIC))
    assert world.findings() == [(FindingKind.LOST_ROW, 43)]


@pytest.mark.parametrize("kind", [TableKind.RAW, TableKind.DECODED])
def test_rows_of_records_damaged_on_all_replicas_are_unverifiable(tmp_path: Path, kind: TableKind) -> None:
    world = LandedLog(tmp_path, kind)
    world.landing.land(0, 120)
    path = world.replicas.segment_files(1)[1]
    flip_byte(path, 100)
    (damaged,) = world.replicas.findings()
    assert damaged.kind is FindingKind.CHECKSUM
    assert damaged.offset is not None
    found = [each for each in world.compare()[0] if each.kind is FindingKind.UNJUDGED_ROW]
    assert found == world.compare()[0]
    reported = sorted({offset for each in found for offset in range(each.offset or 0, each.end_offset or 0)})
    assert reported == list(range(damaged.offset, damaged.end_offset or 0))


@pytest.mark.parametrize("column", ["_value", "number"])
def test_rows_of_damaged_batch_are_compared_with_another_replica(tmp_path: Path, column: str) -> None:
    """Each replica is damaged somewhere, so that no single one has all records."""
    world = LandedLog(tmp_path, TableKind.RAW if column == "_value" else TableKind.DECODED)
    if column == "number":
        world.landing.add_columns(b'{"number": 1}')
    world.landing.land(0, 120)
    other = tmp_path / "2"
    shutil.copytree(world.directory, other)
    world.replicas.directories[2] = other
    flip_byte(world.replicas.segment_files(1)[0], 100)
    flip_byte(world.replicas.segment_files(2)[-1], 100)
    damaged = {each.node: each.offset for each in world.replicas.findings() if each.kind is FindingKind.CHECKSUM}
    assert damaged.keys() == {1, 2}
    assert world.findings() == []
    (path,) = world.landing.files()
    rows = pq.read_table(path)
    values = rows[column].to_pylist()
    wrong = [rows["_offset"].to_pylist().index(offset) for offset in damaged.values()]
    for row in wrong:
        values[row] = b"?" if column == "_value" else -1
    field = rows.schema.field(column)
    pq.write_table(rows.set_column(rows.schema.get_field_index(column), field, pa.array(values, field.type)), path)
    assert sorted(world.findings()) == sorted((FindingKind.DIFFERENT_ROW, offset) for offset in damaged.values())


@pytest.mark.parametrize("change", ["number", "text", "inner", "list", "rescued", "null"])
def test_column_that_differs_from_the_decoded_value_is_reported(tmp_path: Path, change: str) -> None:
    directory = tmp_path / "1"
    log = LogBuilder(directory)
    values = [
        b'{"number": %d, "text": "t%d", "inner": {"a": %d, "b": null}, "list": [%d, 2], "odd": 1.5}' % ((each,) * 4)
        for each in range(20)
    ]
    values[7] = b'{"number": "seven", "text": null, "odd": {"x": 18446744073709551616}}'
    log.append_batch(*((None, value) for value in values))
    held = ReplicaSet({1: directory}, log.close())
    landing = LandingHarness(tmp_path / "tables", directory, TableKind.DECODED)
    landing.add_columns(b"".join(values[:1]))
    landing.land(0, 20)

    def compared() -> list[Finding]:
        landed = open_audited_table(landing.root, TOPIC)
        assert landed is not None
        return compare_table(run_locally, landing.root, landed, [held.partition()])[0]

    assert compared() == []
    (path,) = landing.files()
    rows = pq.read_table(path)
    column = {"rescued": "_rescued", "null": "text"}.get(change, change)
    wrong = {"number": 99, "text": "?", "inner": {"a": 4}, "list": [3], "rescued": "{}", "null": None}[change]
    row_index = 7 if change == "rescued" else 3
    found = rows[column].to_pylist()
    assert found[row_index] != wrong
    found[row_index] = wrong
    field = rows.schema.field(column)
    pq.write_table(rows.set_column(rows.schema.get_field_index(column), field, pa.array(found, field.type)), path)
    (finding,) = compared()
    assert (finding.kind, finding.offset, finding.file) == (FindingKind.DIFFERENT_ROW, row_index, str(path))
    assert f"column {column} of the row" in finding.says


def test_table_beyond_the_partition_end_is_reported(tmp_path: Path) -> None:
    world = LandedLog(tmp_path)
    world.landing.land(0, 120)
    world.replicas.end = 100
    landed = open_audited_table(world.landing.root, TOPIC)
    assert landed is not None
    found = find_rows_beyond_log(landed, world.replicas.partition())
    assert found is not None
    assert (found.kind, found.offset) == (FindingKind.FOREIGN_ROW, 100)
    assert open_audited_table(world.landing.root, "nothing") is None


def test_table_is_reread_when_compaction_replaces_files(tmp_path: Path) -> None:
    world = LandedLog(tmp_path)
    world.landing.land(0, 60)
    world.landing.land(60, 120)
    before = open_audited_table(world.landing.root, TOPIC)
    assert before is not None
    compact_table(table_uri(world.landing.root, TOPIC))
    for file in before.table.files:
        Path(before.table.storage.full_path(file.path)).unlink()
    compared = compare_table(run_locally, world.landing.root, before, [world.replicas.partition()])
    assert compared == ([], 120)
