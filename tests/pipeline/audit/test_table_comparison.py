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
from chronik.pipeline.audit.findings import Finding, Kind, Place
from chronik.pipeline.audit.logs.records import readable_records
from chronik.pipeline.audit.logs.walk import Walk
from chronik.pipeline.audit.rows import compare as comparing
from chronik.pipeline.audit.rows.compare import beyond_the_log, compare_table, landed_table
from chronik.pipeline.records.columns import Columns
from chronik.pipeline.spark.tasks import in_this_process
from chronik.pipeline.tables.layout import Kind as TableKind
from chronik.pipeline.tables.layout import batch_of, own_columns, schema_of
from chronik.pipeline.tables.opening import open_or_create, open_table
from chronik.pipeline.tables.parquet import PartitionedWriter
from chronik.pipeline.tables.spans import Landed, Span
from chronik.pipeline.tables.storage import Storage, dead_letters_uri, table_uri
from chronik.pipeline.tables.topic_table import TableSpec, TopicTable
from chronik.pipeline.tables.values.inference import infer_fields
from chronik.pipeline.tables.values.json_rows import decode_records
from chronik.pipeline.tables.values.shaping import decode_json
from tests.pipeline.audit.replica_logs import TOPIC_ID, Copies, Written, flip
from tests.pipeline.landing_rows import compact

TOPIC = "orders"


class Landing:
    """Lands the records of a log in a table, as the pipeline does."""

    def __init__(self, root: Path, log: Path, kind: TableKind = TableKind.RAW) -> None:
        self.root, self._log = str(root), str(log)
        self._table = open_or_create(table_uri(self.root, TOPIC), TableSpec(TOPIC, TOPIC_ID, kind))
        self._dead = TableSpec(TOPIC, TOPIC_ID, TableKind.DEAD_LETTERS)

    def land(self, start: int, end: int, *, leave_out: int | None = None, twice: int | None = None) -> None:
        schema = self._table.snapshot().schema
        rows_landed: list[pa.RecordBatch] = []
        dead: list[pa.RecordBatch] = []
        for records in self._records(start, end):
            if self._table.spec.kind is TableKind.RAW:
                rows_landed.append(batch_of(own_columns(0, records), schema))
                continue
            for decoded in decode_records(0, records, schema):
                rows_landed.append(batch_of(decoded.rows, schema))
                dead += [] if decoded.dead is None else [batch_of(decoded.dead, schema_of(TableKind.DEAD_LETTERS))]
        table = pa.Table.from_batches(rows_landed, schema)
        if leave_out is not None:
            table = table.filter(pc.field("_offset") != leave_out)
        if twice is not None:
            table = pa.concat_tables([table, table.filter(pc.field("_offset") == twice)])
        if dead:
            dead_letter_table = open_or_create(dead_letters_uri(self.root, TOPIC), self._dead)
            dead_letter_table.commit([self._written(dead_letter_table, pa.Table.from_batches(dead), start, end)])
        self._table.commit([self._written(self._table, table, start, end)])

    def grow(self, value: bytes) -> None:
        """Add columns for the fields of a value."""
        self._table.add_columns(infer_fields(decode_json([value]).objects))

    def _records(self, start: int, end: int) -> list[Columns]:
        replica_id = Place(TOPIC, 0, 1)
        read = readable_records(Walk(self._log, replica_id, start, end), replica_id, start, end)
        return [each for each in read if isinstance(each, Columns)]

    def _written(self, committer: TopicTable, rows: pa.Table, start: int, end: int) -> Landed:
        with PartitionedWriter(Storage(committer.uri), rows.schema, ("_date",)) as writer:
            for batch in rows.to_batches():
                writer.write(batch)
        return Landed((Span(0, start, end),), writer.files)

    def files(self) -> list[Path]:
        return sorted(Path(table_uri(self.root, TOPIC)).rglob("*.parquet"))


class World:
    """A log and a table that it lands in."""

    def __init__(self, tmp_path: Path, kind: TableKind = TableKind.RAW) -> None:
        self.folder = tmp_path / "1"
        log = Written(self.folder, LogConfig(segment_bytes=2000))
        for number in range(12):
            values = [b'{"number": %d}' % (10 * number + each) for each in range(10)]
            if number == 4:
                values[3] = b"no JSON at all"
            if number == 5:
                log.batch((b"key", None), (None, b"{}"), *((b"key", value) for value in values[2:]))
            else:
                log.batch(*((b"key", value) for value in values))
        self.held = Copies({1: self.folder}, log.close())
        self.landing = Landing(tmp_path / "tables", self.folder, kind)

    def compared(self) -> tuple[list[Finding], int]:
        landed = landed_table(self.landing.root, TOPIC)
        assert landed is not None
        return compare_table(in_this_process, self.landing.root, landed, [self.held.partition()])

    def found(self) -> list[tuple[Kind, int | None]]:
        return [(each.kind, each.offset) for each in self.compared()[0]]


@pytest.fixture(autouse=True, params=[250_000, 25])
def _slice_sizes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comparing, "ROWS_PER_SLICE", request.param)


@pytest.mark.parametrize("kind", [TableKind.RAW, TableKind.DECODED])
def test_table_with_all_landed_records_is_clean(tmp_path: Path, kind: TableKind) -> None:
    world = World(tmp_path, kind)
    world.landing.land(0, 50)
    assert world.compared() == ([], 50)
    world.landing.land(50, 115)
    assert world.compared() == ([], 115)
    compact(table_uri(world.landing.root, TOPIC))
    assert world.compared() == ([], 115)
    world.held.start = 20
    assert world.compared() == ([], 95)


@pytest.mark.parametrize("kind", [TableKind.RAW, TableKind.DECODED])
def test_lost_row_is_reported_with_log_position(tmp_path: Path, kind: TableKind) -> None:
    world = World(tmp_path, kind)
    world.landing.land(0, 60)
    world.landing.land(60, 120, leave_out=77)
    (found,), _ = world.compared()
    assert (found.kind, found.topic, found.partition, found.offset) == (Kind.LOST_ROW, TOPIC, 0, 77)
    assert found.file == table_uri(world.landing.root, TOPIC)
    assert "the record at offset 77 has no row" in found.says
    assert str(world.folder) in found.says
    assert "byte" in found.says


def test_lost_first_and_last_rows_are_reported(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.landing.land(0, 60, leave_out=0)
    world.landing.land(60, 120, leave_out=119)
    assert world.found() == [(Kind.LOST_ROW, 0), (Kind.LOST_ROW, 119)]


def test_deleted_rows_are_reported_as_offset_ranges(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.landing.land(0, 60)
    world.landing.land(60, 120, leave_out=0)
    table = open_table(table_uri(world.landing.root, TOPIC))
    opened = landed_table(world.landing.root, TOPIC)
    assert opened is not None
    assert len(opened.table.files) == 2
    DeltaTable(table.uri).delete("_offset >= 60")
    findings, _ = world.compared()
    assert {each.kind for each in findings} == {Kind.LOST_ROW}
    lost = sorted(offset for each in findings for offset in range(each.offset or 0, each.end_offset or 0))
    assert lost == list(range(60, 120))


def test_duplicate_row_is_reported_with_its_file(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.landing.land(0, 60)
    world.landing.land(60, 120, twice=99)
    (found,), _ = world.compared()
    assert (found.kind, found.offset) == (Kind.DUPLICATE_ROW, 99)
    assert found.file in [str(path) for path in world.landing.files()]


def test_row_without_record_is_reported_as_foreign(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.landing.land(0, 120)
    # Change the offset of a row, so that it belongs to no record.
    (path,) = world.landing.files()
    rows = pq.read_table(path)
    changed = rows.set_column(0, "_partition", rows["_partition"])
    offsets = rows["_offset"].to_pylist()
    offsets[offsets.index(110)] = 130
    changed = changed.set_column(changed.schema.get_field_index("_offset"), "_offset", pa.array(offsets, pa.int64()))
    pq.write_table(changed, path)
    assert sorted(world.found()) == [(Kind.FOREIGN_ROW, 130), (Kind.LOST_ROW, 110)]


@pytest.mark.parametrize("column", ["_key", "_value", "_timestamp"])
def test_row_that_differs_from_its_record_is_reported(tmp_path: Path, column: str) -> None:
    world = World(tmp_path)
    world.landing.land(0, 120)
    (path,) = world.landing.files()
    rows = pq.read_table(path)
    values = rows[column].to_pylist()
    values[64] = values[3] if column == "_value" else values[64].replace(year=2020) if column == "_timestamp" else b"?"
    field = rows.schema.field(column)
    pq.write_table(rows.set_column(rows.schema.get_field_index(column), field, pa.array(values, field.type)), path)
    (found,), _ = world.compared()
    assert (found.kind, found.offset, found.file) == (Kind.DIFFERENT_ROW, 64, str(path))
    assert f"the {column.removeprefix('_')} of the row" in found.says


def test_missing_dead_letter_table_is_reported_as_lost_row(tmp_path: Path) -> None:
    world = World(tmp_path, TableKind.DECODED)
    world.landing.land(0, 120)
    assert world.found() == []
    shutil.rmtree(dead_letters_uri(world.landing.root, TOPIC))
    assert world.found() == [(Kind.LOST_ROW, 43)]


@pytest.mark.parametrize("kind", [TableKind.RAW, TableKind.DECODED])
def test_rows_of_records_damaged_on_all_replicas_are_unverifiable(tmp_path: Path, kind: TableKind) -> None:
    world = World(tmp_path, kind)
    world.landing.land(0, 120)
    path = world.held.files(1)[1]
    flip(path, 100)
    (damaged,) = world.held.findings()
    assert damaged.kind is Kind.CHECKSUM
    assert damaged.offset is not None
    found = [each for each in world.compared()[0] if each.kind is Kind.UNJUDGED_ROW]
    assert found == world.compared()[0]
    reported = sorted({offset for each in found for offset in range(each.offset or 0, each.end_offset or 0)})
    assert reported == list(range(damaged.offset, damaged.end_offset or 0))


@pytest.mark.parametrize("column", ["_value", "number"])
def test_rows_of_damaged_batch_are_compared_with_another_replica(tmp_path: Path, column: str) -> None:
    """Each replica is damaged somewhere, so that no single one has all records."""
    world = World(tmp_path, TableKind.RAW if column == "_value" else TableKind.DECODED)
    if column == "number":
        world.landing.grow(b'{"number": 1}')
    world.landing.land(0, 120)
    other = tmp_path / "2"
    shutil.copytree(world.folder, other)
    world.held.folders[2] = other
    flip(world.held.files(1)[0], 100)
    flip(world.held.files(2)[-1], 100)
    damaged = {each.node: each.offset for each in world.held.findings() if each.kind is Kind.CHECKSUM}
    assert damaged.keys() == {1, 2}
    assert world.found() == []
    (path,) = world.landing.files()
    rows = pq.read_table(path)
    values = rows[column].to_pylist()
    wrong = [rows["_offset"].to_pylist().index(offset) for offset in damaged.values()]
    for row in wrong:
        values[row] = b"?" if column == "_value" else -1
    field = rows.schema.field(column)
    pq.write_table(rows.set_column(rows.schema.get_field_index(column), field, pa.array(values, field.type)), path)
    assert sorted(world.found()) == sorted((Kind.DIFFERENT_ROW, offset) for offset in damaged.values())


@pytest.mark.parametrize("change", ["number", "text", "inner", "list", "rescued", "null"])
def test_column_that_differs_from_the_decoded_value_is_reported(tmp_path: Path, change: str) -> None:
    directory = tmp_path / "1"
    log = Written(directory)
    values = [
        b'{"number": %d, "text": "t%d", "inner": {"a": %d, "b": null}, "list": [%d, 2], "odd": 1.5}' % ((each,) * 4)
        for each in range(20)
    ]
    values[7] = b'{"number": "seven", "text": null, "odd": {"x": 18446744073709551616}}'
    log.batch(*((None, value) for value in values))
    held = Copies({1: directory}, log.close())
    landing = Landing(tmp_path / "tables", directory, TableKind.DECODED)
    landing.grow(b"".join(values[:1]))
    landing.land(0, 20)

    def compared() -> list[Finding]:
        landed = landed_table(landing.root, TOPIC)
        assert landed is not None
        return compare_table(in_this_process, landing.root, landed, [held.partition()])[0]

    assert compared() == []
    (path,) = landing.files()
    rows = pq.read_table(path)
    column = {"rescued": "_rescued", "null": "text"}.get(change, change)
    wrong = {"number": 99, "text": "?", "inner": {"a": 3, "b": 4}, "list": [3], "rescued": "{}", "null": None}[change]
    row_index = 7 if change == "rescued" else 3
    found = rows[column].to_pylist()
    assert found[row_index] != wrong
    found[row_index] = wrong
    field = rows.schema.field(column)
    pq.write_table(rows.set_column(rows.schema.get_field_index(column), field, pa.array(found, field.type)), path)
    (finding,) = compared()
    assert (finding.kind, finding.offset, finding.file) == (Kind.DIFFERENT_ROW, row_index, str(path))
    assert f"column {column} of the row" in finding.says


def test_table_beyond_the_partition_end_is_reported(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.landing.land(0, 120)
    world.held.end = 100
    landed = landed_table(world.landing.root, TOPIC)
    assert landed is not None
    found = beyond_the_log(landed, world.held.partition())
    assert found is not None
    assert (found.kind, found.offset) == (Kind.FOREIGN_ROW, 100)
    assert landed_table(world.landing.root, "nothing") is None


def test_table_is_reread_when_compaction_replaces_files(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.landing.land(0, 60)
    world.landing.land(60, 120)
    before = landed_table(world.landing.root, TOPIC)
    assert before is not None
    compact(table_uri(world.landing.root, TOPIC))
    for file in before.table.files:
        Path(before.table.storage.full_path(file.path)).unlink()
    compared = compare_table(in_this_process, world.landing.root, before, [world.held.partition()])
    assert compared == ([], 120)
