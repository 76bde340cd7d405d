"""Tests of tables with a declared or inferred schema: how it is chosen, stored and changed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from chronik.client.admin import alter_topic_configs
from chronik.client.records import OutgoingRecord
from chronik.errors import ConfigError
from chronik.pipeline.landing.sampling import plan_sample_ranges
from chronik.pipeline.landing.settings import StartPosition
from chronik.pipeline.tables.commit_plan import PartitionRange
from chronik.pipeline.tables.topic_table import SchemaConflictError
from chronik.pipeline.tables.values.table_schema import UnknownFields, parse_schema_document, parse_schema_text
from chronik.testing import Broker
from tests.pipeline.landing.landed_topic import LandedTopic, run_tasks
from tests.pipeline.table_fixtures import JournalledTopic


@pytest.fixture
def landed(chronik_broker: Broker, chronik_topic: str, tmp_path: Path) -> Iterator[LandedTopic]:
    with chronik_broker.cluster() as cluster:
        yield LandedTopic(JournalledTopic(chronik_broker, chronik_topic), cluster, tmp_path)


# Start of a new table


@pytest.mark.parametrize(
    ("start", "expected"),
    [
        (StartPosition(), [0, 1, 2, 3]),
        (StartPosition(offset=2), [2, 3]),
        (StartPosition(offset=9), [4]),
        (StartPosition(is_latest=True), [4]),
        (StartPosition(timestamp_ms=2000), [1, 2, 3]),
        (StartPosition(timestamp_ms=9000), [4]),
    ],
)
def test_new_table_starts_where_it_is_told_to(landed: LandedTopic, start: StartPosition, expected: list[int]) -> None:
    landed.topic.send([OutgoingRecord(b"{}", partition=0, timestamp=1000 * number) for number in (1, 2, 3, 4)])
    landed.land(start={landed.topic.name: start})
    landed.send(b"{}")
    landed.land(start={landed.topic.name: StartPosition()})
    assert landed.offsets() == sorted({*expected, 4})


# Inference


def test_one_stray_value_does_not_determine_the_type_of_a_column(landed: LandedTopic) -> None:
    landed.send(b'{"name": 5}', *(b'{"name": "n%d"}' % number for number in range(99)))
    result = landed.land()
    assert landed.open().descriptor().schema.field("name").type == pa.string()
    assert [row.get("name") for row in landed.rows()] == [None, *(f"n{number}" for number in range(99))]
    assert landed.rows()[0] == {"_rescued": '{"name":5}'}
    assert result.misfits == {}, "one of 100 values is not worth a report"


def test_field_without_a_common_type_becomes_json_text(landed: LandedTopic) -> None:
    landed.send(b'{"mixed": 5}', b'{"mixed": "5"}', b'{"mixed": [1.50]}')
    landed.land()
    assert [row["mixed"] for row in landed.rows()] == ["5", '"5"', "[1.50]"]
    (column,) = landed.open().descriptor().value_schema.resolve_columns(landed.open().descriptor().schema)[-1:]
    assert column.type_name == "json"


def test_names_that_a_table_cannot_have_are_replaced(landed: LandedTopic) -> None:
    landed.send(b'{"user.name": "a", "user name": "b", "Id": 1, "id": 2, "_offset": 3, "in": {"x y": 1, "X Y": 2}}')
    landed.land()
    schema = landed.open().descriptor().schema
    assert schema.names[-6:] == ["user_name", "user_name_2", "Id", "id_2", "_offset_2", "in"]
    assert [field.name for field in schema.field("in").type] == ["x_y", "X_Y_2"]
    (row,) = landed.rows()
    assert row == {"user_name": "a", "user_name_2": "b", "Id": 1, "id_2": 2, "in": {"x_y": 1, "X_Y_2": 2}}


def test_columns_with_many_misfits_are_reported(landed: LandedTopic) -> None:
    landed.send(*(b'{"id": %d}' % number for number in range(50)))
    landed.land()
    landed.send(b'{"id": "x"}', *(b'{"id": %d}' % number for number in range(49)))
    result = landed.land()
    assert result.misfits == {"id": 1}
    assert "column id: 1 of 50 values did not fit and are in _rescued" in result.warnings


def test_sample_has_records_from_both_ends_of_each_range() -> None:
    ranges = [PartitionRange(0, 0, 10), PartitionRange(1, 100, 1100), PartitionRange(2, 0, 1)]
    parts = list(plan_sample_ranges(ranges, 30))
    assert parts == [
        PartitionRange(0, 0, 10),
        PartitionRange(1, 100, 105),
        PartitionRange(1, 1095, 1100),
        PartitionRange(2, 0, 1),
    ]
    assert sum(part.end - part.start for part in plan_sample_ranges(ranges, 2)) == 3, "at least one record per range"


# Declared schemas


def test_declared_schema_determines_columns(landed: LandedTopic) -> None:
    schema = parse_schema_document(
        {
            "columns": {
                "id": {"type": "int", "required": True},
                "amount": "decimal(10,2)",
                "customer": {"type": "string", "path": "$.customer.name"},
                "country": {"type": "string", "default": "DE"},
            }
        }
    )
    landed.send(
        b'{"id": 1, "amount": 1.50, "customer": {"name": "Ada"}, "extra": true}',
        b'{"id": 2, "amount": 1.505, "country": "FR"}',
        b'{"amount": 1}',
        None,
    )
    landed.land(schema=schema)
    rows = landed.rows()
    assert [str(row.get("amount")) for row in rows] == ["1.50", "None", "None"]
    assert [row.get("country") for row in rows] == ["DE", "FR", None]
    assert [row.get("customer") for row in rows] == ["Ada", None, None]
    assert [json.loads(row.get("_rescued", "{}")) for row in rows] == [{"extra": True}, {"amount": 1.505}, {}]
    assert landed.dead_letters() == [2], "a record without a required value"


def test_schema_comes_from_option_then_topic_then_table(landed: LandedTopic) -> None:
    landed.send(b'{"a": 1, "b": 2, "c": 3}')
    landed.land(schema=parse_schema_text("a bigint"))
    alter_topic_configs(landed.cluster, landed.topic.name, changes={"columnar.schema": '{"columns": {"b": "bigint"}}'})
    landed.send(b'{"a": 1, "b": 2, "c": 3}')
    landed.land()
    alter_topic_configs(landed.cluster, landed.topic.name, changes={}, removals=["columnar.schema"])
    landed.send(b'{"a": 1, "b": 2, "c": 3}')
    landed.land()
    assert [set(row) - {"_rescued"} for row in landed.rows()] == [{"a"}, {"a", "b"}, {"a", "b"}]
    versions = landed.open().schema_versions()
    assert [[column.name for column in versions[number].columns] for number in (1, 2)] == [["a"], ["b"]]


def test_invalid_schema_in_topic_config_is_reported_with_its_name(landed: LandedTopic) -> None:
    alter_topic_configs(landed.cluster, landed.topic.name, changes={"columnar.schema": '{"columns": {"b": "bigin"}}'})
    with pytest.raises(ConfigError, match=r"columnar\.schema: column 'b': .*did you mean 'bigint'"):
        landed.landing().plan_next_round(1)


def test_type_of_a_column_changes_only_by_rebuild(landed: LandedTopic) -> None:
    landed.send(b'{"a": 1}')
    landed.land()
    with pytest.raises(SchemaConflictError, match=r"column 'a' has type bigint, not string: .* rebuild"):
        landed.open().set_schema(parse_schema_text("a string"))
    assert landed.open().schema_versions() == {}


def test_setting_the_same_schema_again_creates_no_version(landed: LandedTopic) -> None:
    landed.send(b'{"a": 1}')
    landed.land()
    schema = parse_schema_document({"columns": {"a": {"type": "bigint", "comment": "number"}}})
    assert landed.open().set_schema(schema) == 1
    before = landed.open().snapshot().version
    assert landed.open().set_schema(schema) == 1
    assert landed.open().snapshot().version == before


def test_round_written_before_a_schema_change_is_planned_again(landed: LandedTopic) -> None:
    landed.send(b'{"a": 1}')
    landed.land()
    landed.send(b'{"a": 2}')
    landing = landed.landing()
    round = run_tasks(landing.plan_next_round(1))
    changed = parse_schema_document({"columns": {"a": {"type": "bigint", "required": True}}})
    landed.open().set_schema(changed)
    assert round.commit().is_superseded
    assert landed.offsets() == [0]
    run_tasks(landing.plan_next_round(1)).commit()
    assert landed.rows() == [{"a": 1}, {"a": 2}]


def test_declared_column_must_not_read_what_another_column_reads(landed: LandedTopic) -> None:
    landed.send(b'{"a": 1, "b": 2}')
    landed.land()
    schema = parse_schema_document({"columns": {"a": {"type": "bigint", "path": "$.b"}}})
    with pytest.raises(SchemaConflictError, match=r"columns .* overlap: \$\.b is part of \$\.b: remove a column with"):
        landed.open().set_schema(schema)


def test_column_added_by_another_driver_does_not_reject_a_round(landed: LandedTopic) -> None:
    landed.send(b'{"a": 1}')
    landed.land()
    landed.send(b'{"a": 2}')
    round = run_tasks(landed.landing().plan_next_round(1))
    landed.open().set_schema(parse_schema_text("b bigint"))
    assert not round.commit().is_superseded
    assert landed.offsets() == [0, 1]


def test_dropped_fields_are_neither_columns_nor_rescued(landed: LandedTopic) -> None:
    schema = parse_schema_document({"columns": {"a": "bigint"}, "unknown_fields": UnknownFields.DROP.value})
    landed.send(b'{"a": 1, "secret": "x"}')
    landed.land(schema=schema)
    assert landed.rows() == [{"a": 1}]


def test_column_that_is_not_declared_any_more_loses_its_settings(landed: LandedTopic) -> None:
    landed.send(b'{"a": 1, "b": [1]}')
    columns = {"a": {"type": "bigint", "required": True, "comment": "x"}, "b": "array<json>"}
    landed.land(schema=parse_schema_document({"columns": columns}))
    landed.open().set_schema(parse_schema_text("b array<json>"))
    landed.send(b'{"b": ["2"]}')
    landed.land()
    assert landed.dead_letters() == []
    assert landed.rows() == [{"a": 1, "b": ["1"]}, {"b": ['"2"']}]
