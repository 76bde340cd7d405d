"""Tests of rebuilding a table with another schema: records keep their rows, and readers see one of two versions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from chronik.client.records import TopicPartition
from chronik.errors import ConfigError
from chronik.pipeline.landing import landing_task
from chronik.pipeline.landing.settings import TableSettings
from chronik.pipeline.landing.topic_landing import TopicLanding
from chronik.pipeline.maintenance.dead_letters import retry_dead_letters
from chronik.pipeline.maintenance.rebuild import RebuildResult, RebuildSource, rebuild_table
from chronik.pipeline.records.columns import RecordColumns
from chronik.pipeline.source.range_reader import read_columns
from chronik.pipeline.spark.tasks import Item, Result, run_locally
from chronik.pipeline.tables.delta.table import DeltaTopicTable
from chronik.pipeline.tables.layout import TableKind
from chronik.pipeline.tables.topic_table import TableCommitError, TableFormat, TableMismatchError
from chronik.pipeline.tables.values.table_schema import TableSchema, parse_schema_document, parse_schema_text
from chronik.testing import Broker
from tests.pipeline.landing.landed_topic import LandedTopic, in_both_formats, open_landed_topic, run_tasks
from tests.pipeline.landing.test_topic_landing import delete_records_before
from tests.pipeline.table_fixtures import JournalledTopic, compact_table, read_rows


@pytest.fixture
def landed(
    request: pytest.FixtureRequest, chronik_broker: Broker, chronik_topic: str, tmp_path: Path
) -> Iterator[LandedTopic]:
    """A topic whose table has the format that `in_both_formats` chooses, or is a Delta table."""
    table_format = getattr(request, "param", TableFormat.DELTA)
    with open_landed_topic(chronik_broker, chronik_topic, tmp_path, table_format) as landed:
        yield landed


def rebuild(landed: LandedTopic, schema: TableSchema | str | None, **options: object) -> RebuildResult:
    parsed = parse_schema_text(schema) if isinstance(schema, str) else schema
    arguments = {"bootstrap": landed.topic.broker.bootstrap} | options
    return rebuild_table(landed.root, landed.topic.name, parsed, **arguments)  # type: ignore[arg-type]


@pytest.mark.parametrize("source", [RebuildSource.TOPIC, RebuildSource.ROWS])
@in_both_formats
def test_rebuild_changes_the_type_of_a_column(landed: LandedTopic, source: RebuildSource) -> None:
    landed.send(b'{"id": 1, "price": "1.50"}', b'{"id": 2, "price": 3}', None, b'{"id": 3, "price": "2.25", "x": []}')
    landed.land()
    crc_before = read_checksums(landed)
    schema = parse_schema_document({"columns": {"id": "int", "price": {"type": "decimal(9,2)", "format": "string"}}})
    result = rebuild(landed, schema, source=source)
    assert (result.source, result.rows, result.dead_letters) == (source, 4, 0)
    assert [str(row.get("price")) for row in landed.rows()] == ["1.50", "None", "None", "2.25"]
    assert [row.get("_rescued") for row in landed.rows()] == [None, '{"price":3}', None, '{"x":[]}']
    assert read_checksums(landed) == crc_before, "rows keep the checksums of their records"
    landed.send(b'{"id": 4, "price": "9.00"}')
    landed.land()
    assert str(landed.rows()[-1]["price"]) == "9.00", "landing goes on with the new schema"
    assert landed.offsets() == [0, 1, 2, 3, 4]


def read_checksums(landed: LandedTopic) -> list[int | None]:
    table = read_rows(landed.open().snapshot()).sort_by("_offset")
    found: list[int | None] = table["_value_crc32c"].to_pylist()
    return found


@pytest.mark.parametrize("name", ["at", "nested"])
def test_rebuild_may_declare_timestamps_without_zone(landed: LandedTopic, name: str) -> None:
    landed.send(b'{"at": "2026-11-18T09:00:00", "nested": {"at": "2026-11-18T09:00:00"}}')
    landed.land()
    types = {"at": "timestamp_ntz", "nested": "struct<at: timestamp_ntz>"}
    schema = parse_schema_document({"columns": {name: types[name]}})
    rebuild(landed, schema)
    value = datetime(2026, 11, 18, 9, 0)
    assert landed.rows()[0][name] == (value if name == "at" else {"at": value})
    assert "timestampNtz" in DeltaTable(landed.uri).protocol().reader_features


@in_both_formats
def test_rebuild_without_schema_infers_columns_again(landed: LandedTopic) -> None:
    landed.send(b'{"name": 5}')
    landed.land()
    landed.send(*(b'{"name": "n%d"}' % number for number in range(40)))
    landed.land()
    assert "name" not in landed.rows()[1]
    rebuild(landed, None)
    assert [row.get("name") for row in landed.rows()] == [None, *(f"n{number}" for number in range(40))]


def test_records_deleted_by_retention_are_rebuilt_from_rows(landed: LandedTopic) -> None:
    landed.send(*(b'{"id": %d}' % number for number in range(6)))
    landed.land()
    delete_records_before(landed.cluster, TopicPartition(landed.topic.name, 0), 4)
    with pytest.raises(ConfigError, match="the table has offset 0, but the log starts at 4; rebuild from the rows"):
        rebuild(landed, "id string", source=RebuildSource.TOPIC)
    assert rebuild(landed, "id double").source is RebuildSource.ROWS
    assert [row["id"] for row in landed.rows()] == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]


@pytest.mark.parametrize("source", [RebuildSource.TOPIC, RebuildSource.ROWS])
@in_both_formats
def test_rows_that_land_during_a_rebuild_are_rebuilt_too(landed: LandedTopic, source: RebuildSource) -> None:
    landed.send(b'{"id": 1}')
    landed.land()
    landed.send(b'{"id": 2}')
    rounds: Iterator[Callable[[], object]] = iter([landed.land])

    def land_after_tasks(function: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
        results = run_locally(function, items)
        if getattr(function, "__name__", "") == "run_landing_task":
            next(rounds, lambda: None)()
        return results

    result = rebuild(landed, "id double", tasks=land_after_tasks, source=source)
    assert result.rows == 2
    assert [row["id"] for row in landed.rows()] == [1.0, 2.0]
    assert landed.offsets() == [0, 1]


@in_both_formats
def test_round_written_with_the_old_columns_is_planned_again(landed: LandedTopic) -> None:
    landed.send(b'{"id": 1}')
    landed.land()
    landed.send(b'{"id": 2}')
    landing = landed.landing()
    round = run_tasks(landing.plan_next_round(1))
    rebuild(landed, "id string, other bigint")
    assert round.commit().is_superseded
    run_tasks(landing.plan_next_round(1)).commit()
    assert landed.offsets() == [0, 1]


@in_both_formats
def test_compaction_during_a_rebuild_restarts_it(landed: LandedTopic) -> None:
    for number in range(3):
        landed.send(b'{"id": %d}' % number)
        landed.land()
    compactions = iter([lambda: compact_table(landed.uri)])

    def compact_after_tasks(function: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
        results = run_locally(function, items)
        if getattr(function, "__name__", "") == "run_landing_task":
            next(compactions, lambda: None)()
        return results

    assert rebuild(landed, "id double", tasks=compact_after_tasks, source=RebuildSource.ROWS).rows == 3
    assert [row["id"] for row in landed.rows()] == [0.0, 1.0, 2.0]
    assert landed.offsets() == [0, 1, 2]


@pytest.mark.parametrize("source", [RebuildSource.TOPIC, RebuildSource.ROWS])
@in_both_formats
def test_rows_that_a_new_schema_rejects_become_dead_letter_records(landed: LandedTopic, source: RebuildSource) -> None:
    landed.send(b'{"id": 1}', b'{"x": 1}', b"no JSON", b'{"id": 2}')
    landed.land()
    assert (landed.offsets(), landed.dead_letters()) == ([0, 1, 3], [2])
    required = parse_schema_document({"columns": {"id": {"type": "bigint", "required": True}}})
    result = rebuild(landed, required, source=source)
    assert (result.rows, result.dead_letters) == (2, 1)
    assert (landed.offsets(), sorted(landed.dead_letters())) == ([0, 3], [1, 2])
    rebuild(landed, "id bigint", source=source)
    assert (landed.offsets(), sorted(landed.dead_letters())) == ([0, 3], [1, 2])
    (retried,) = retry_dead_letters(landed.root, [landed.topic.name])
    assert (retried.decoded, retried.failing) == (1, 1)
    assert (landed.offsets(), landed.dead_letters()) == ([0, 1, 3], [2])


def test_crash_before_the_commit_leaves_the_old_rows(landed: LandedTopic, monkeypatch: pytest.MonkeyPatch) -> None:
    landed.send(b'{"id": 1}', b'{"x": 1}')
    landed.land()
    before = landed.rows()
    required = parse_schema_document(
        {"columns": {"id": {"type": "string", "required": True}}, "invalid_values": "cast"}
    )
    with monkeypatch.context() as patched:
        patched.setattr(DeltaTopicTable, "replace_rows", lambda *_: pytest.fail("crash"))
        with pytest.raises(pytest.fail.Exception):
            rebuild(landed, required)
    assert landed.rows() == before
    assert landed.dead_letters() == [1]
    assert rebuild(landed, required).rows == 1
    assert ([row["id"] for row in landed.rows()], landed.dead_letters()) == (["1"], [1])


@pytest.mark.parametrize("damage", ["lost", "duplicated"])
def test_rebuild_from_the_topic_repairs_a_damaged_table(landed: LandedTopic, damage: str) -> None:
    landed.send(b'{"id": 1}', b'{"id": 2}', b'{"id": 3}')
    landed.land()
    table = DeltaTable(landed.uri)
    if damage == "lost":
        table.delete("id = 2")
    else:
        write_deltalake(table, pa.table(table.to_pyarrow_dataset().to_table()).slice(0, 1), mode="append")
    assert len(landed.offsets()) != 3
    assert rebuild(landed, None).source is RebuildSource.TOPIC
    assert landed.offsets() == [0, 1, 2]
    assert [row["id"] for row in landed.rows()] == [1, 2, 3]


def test_raw_table_cannot_be_rebuilt(landed: LandedTopic) -> None:
    landed.send(b"x")
    settings = replace(landed.landing().settings, table_settings=TableSettings(TableKind.RAW))
    run_tasks(TopicLanding(landed.topic.name, settings, landed.cluster).plan_next_round(1)).commit()
    with pytest.raises(TableMismatchError, match="is a raw table"):
        rebuild(landed, "id bigint")


def test_rebuild_whose_response_is_lost_keeps_the_new_rows(
    landed: LandedTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    landed.send(b'{"id": 1}', b'{"id": 2}')
    landed.land()
    overwrite = DeltaTopicTable._overwrite
    lost: list[int] = []

    def lose_response(self: DeltaTopicTable, *arguments: Any) -> None:
        overwrite(self, *arguments)
        lost.append(1)
        raise OSError("connection lost")

    monkeypatch.setattr(DeltaTopicTable, "_overwrite", lose_response)
    assert rebuild(landed, "id double").rows == 2
    assert lost == [1]
    assert [row["id"] for row in landed.rows()] == [1.0, 2.0]


def test_error_after_the_commit_deletes_no_files(landed: LandedTopic, monkeypatch: pytest.MonkeyPatch) -> None:
    landed.send(b'{"id": 1}')
    landed.land()

    def fail(*_: object) -> int:
        raise TableCommitError("no permission")

    with monkeypatch.context() as patched:
        patched.setattr(DeltaTopicTable, "set_schema", fail)
        with pytest.raises(TableCommitError):
            rebuild(landed, "id double")
    assert [row["id"] for row in landed.rows()] == [1.0]


@pytest.mark.parametrize("source", [None, RebuildSource.TOPIC])
def test_records_that_the_topic_lost_stay_in_the_table(
    landed: LandedTopic, monkeypatch: pytest.MonkeyPatch, source: RebuildSource | None
) -> None:
    landed.send(b'{"id": 1}', b'{"id": 2}', b'{"id": 3}')
    landed.land()
    read = read_columns

    def read_compacted(*arguments: Any) -> Iterator[RecordColumns]:
        for records in read(*arguments):
            yield RecordColumns(*(None if each is None else each.slice(1) for each in records))

    monkeypatch.setattr(landing_task, "read_columns", read_compacted)
    if source is RebuildSource.TOPIC:
        with pytest.raises(ConfigError, match="has 2 of the table's 3 records; rebuild from the rows instead"):
            rebuild(landed, "id double", source=source)
        assert [row["id"] for row in landed.rows()] == [1, 2, 3]
    else:
        assert rebuild(landed, "id double").source is RebuildSource.ROWS
        assert [row["id"] for row in landed.rows()] == [1.0, 2.0, 3.0]


@pytest.mark.parametrize("source", [RebuildSource.TOPIC, RebuildSource.ROWS])
def test_partition_that_lands_first_during_a_rebuild_is_rebuilt(
    chronik_broker: Broker, tmp_path: Path, chronik_topic: str, source: RebuildSource
) -> None:
    name = f"{chronik_topic}-two"
    chronik_broker.create_topic(name, 2)
    with chronik_broker.cluster() as cluster:
        landed = LandedTopic(JournalledTopic(chronik_broker, name), cluster, tmp_path)
        landed.send(b'{"id": 1}')
        landed.land()
        landed.send(b'{"id": 2}', partition=1)
        rounds: Iterator[Callable[[], object]] = iter([landed.land])

        def land_after_tasks(function: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
            results = run_locally(function, items)
            if getattr(function, "__name__", "") == "run_landing_task":
                next(rounds, lambda: None)()
            return results

        assert rebuild(landed, "id double", tasks=land_after_tasks, source=source).rows == 2
        assert [row["id"] for row in landed.rows()] == [1.0, 2.0]
