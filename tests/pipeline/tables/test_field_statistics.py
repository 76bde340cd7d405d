"""Tests of the statistics of JSON types, and of the column types that they suggest."""

from __future__ import annotations

import json
import pickle
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from chronik.pipeline.tables.values.column_names import get_json_key
from chronik.pipeline.tables.values.field_statistics import (
    DEPTH_MAX,
    FIELDS_MAX,
    DetectedType,
    FieldStatistics,
    merge_statistics,
)
from chronik.pipeline.tables.values.row_decoder import infer_statistics
from chronik.pipeline.tables.values.sql_types import SqlType, format_sql_type
from tests.pipeline.tables.random_json import RandomTable, random_value, write_json

NONE: tuple[DetectedType, ...] = ()


def count_values(*values: Any) -> FieldStatistics:
    statistics = FieldStatistics()
    for value in values:
        statistics.add(value)
    return statistics


def choose_type(*values: Any, detect: tuple[DetectedType, ...] = NONE) -> str | None:
    chosen = count_values(*values).choose_type(detect)
    return None if chosen is None else format_sql_type(*chosen)


def infer_types(*records: Any) -> dict[str, str | None]:
    """Return the chosen type of each field of JSON records."""
    statistics = infer_statistics([None if each is None else json.dumps(each).encode() for each in records])
    chosen = {name: each.choose_type() for name, each in statistics.fields.items()}
    return {name: None if each is None else format_sql_type(*each) for name, each in chosen.items()}


@pytest.mark.parametrize(
    ("values", "chosen"),
    [
        ([True, False], "boolean"),
        ([1, -(2**63), 2**63 - 1], "bigint"),
        ([0.5], "double"),
        ([1, 0.5], "double"),
        (["x"], "string"),
        ([[1], [2, None]], "array<bigint>"),
        ([[1], ["x"]], "array<json>"),
        ([{"a": 1}, {"b": "x"}], "struct<a: bigint, b: string>"),
        ([1, "x"], "json"),
        ([{"a": 1}, [1]], "json"),
        ([True, 1], "json"),
        ([None, 1, None], "bigint"),
        ([{"a": None}, {"b": []}, {"c": {}}, {"d": 1}], "struct<d: bigint>"),
        ([2**70, 1], "json"),
        ([], None),
        ([None], None),
        ([[]], None),
        ([[None]], None),
        ([{}], None),
        ([{"a": {}}], None),
        ([2**70], "json"),
        ([2**70, -(2**63) - 1, None], "json"),
        ([{"a": 2**70}, [2**70]], "json"),
        ([[2**70]], "array<json>"),
        ([2**70] * 5 + [1] * 95, "bigint"),
        ([2**53 + 1] * 99 + [0.5], "bigint"),
        ([2**53 + 1] * 50 + [0.5] * 50, "json"),
        ([2**53, 2**60, 0.5], "double"),
    ],
)
def test_type_is_chosen_from_values(values: list[Any], chosen: str | None) -> None:
    assert choose_type(*values) == chosen


@pytest.mark.parametrize(
    ("majority", "minority", "chosen"),
    [
        (1, "x", "bigint"),
        ("x", 1, "string"),
        (True, 1, "boolean"),
        ([1], 1, "array<bigint>"),
        ({"a": 1}, 1, "struct<a: bigint>"),
        (1, 2**70, "bigint"),
    ],
)
def test_type_of_95_percent_is_chosen(majority: Any, minority: Any, chosen: str) -> None:
    assert choose_type(*[majority] * 95, *[minority] * 5) == chosen
    assert choose_type(*[majority] * 94, *[minority] * 6) == "json"


def test_integers_and_floats_count_as_floats_together() -> None:
    assert choose_type(*[1] * 50, *[0.5] * 45, *["x"] * 5) == "double"
    assert choose_type(*[1] * 99, 0.5) == "double"
    assert choose_type(*[1] * 95, *["x"] * 5) == "bigint"


def test_nulls_do_not_count() -> None:
    assert choose_type(*[None] * 1000, 1) == "bigint"
    assert count_values(None).total == 0


def test_majority_applies_at_each_level() -> None:
    objects = [{"a": 1, "b": "x"}] * 94 + [{"a": 1, "b": 5}] * 6
    assert choose_type(*objects) == "struct<a: bigint, b: json>"
    assert choose_type([1] * 95 + ["x"] * 5) == "array<bigint>"


def test_types_of_records_are_inferred() -> None:
    assert infer_types(
        {"a": 1, "b": None, "c": "x", "d": {"e": []}, "l": [None, {"m": 1}]},
        {"a": 1.5, "b": True, "c": 7, "d": {"e": [], "f": 1}, "l": [{"n": "x"}], "big": 2**70},
        None,
    ) == {
        "a": "double",
        "b": "boolean",
        "c": "json",
        "d": "struct<f: bigint>",
        "l": "array<struct<m: bigint, n: string>>",
        "big": "json",
    }


def test_values_that_cannot_be_decoded_do_not_count() -> None:
    assert infer_statistics([b"x", b"[1]", None, b'{"a":1}']).fields == {"a": FieldStatistics(integers=1)}


def test_number_that_float64_would_round_becomes_json() -> None:
    fields = infer_statistics([b'{"a":1e-400,"b":{"c":0.12345678901234567891,"d":1},"e":"x"}']).fields
    chosen = {name: each.choose_type() for name, each in fields.items()}
    assert chosen["a"] == (pa.string(), "json")
    assert chosen["b"] is not None
    assert format_sql_type(*chosen["b"]) == "struct<c: json, d: bigint>"


def test_no_type_is_inferred_beyond_nesting_limit() -> None:
    deep: Any = 1
    for _ in range(DEPTH_MAX):
        deep = [deep]
    assert choose_type(deep) == "array<" * DEPTH_MAX + "bigint" + ">" * DEPTH_MAX
    assert choose_type([deep]) is None
    assert choose_type([deep], [deep], "x") == "json"


def test_nested_names_that_a_table_cannot_have_are_replaced() -> None:
    chosen = count_values({"first name": 1, "first.name": 1, "ID": 1, "id": 1, "": 1, 'a"b': 1}).choose_type()
    assert chosen is not None
    assert {field.name: get_json_key(field) for field in chosen.data_type} == {
        "first_name": "first name",
        "first_name_2": "first.name",
        "ID": "ID",
        "id_2": "id",
        "_": "",
    }


@pytest.mark.parametrize(
    ("values", "detect", "chosen"),
    [
        (["2024-05-01T10:00:00Z", "2024-05-01 10:00"], NONE, "string"),
        (["2024-05-01T10:00:00Z", "2024-05-01 10:00:00.5+02:00"], (DetectedType.TIMESTAMP,), "timestamp"),
        (["2024-05-01"], (DetectedType.TIMESTAMP,), "string"),
        (["2024-05-01"], (DetectedType.DATE,), "date"),
        (["2024-05-01", "x"], (DetectedType.DATE,), "string"),
        (["2024-05-01"] * 95 + ["x"] * 5, tuple(DetectedType), "date"),
        (["5", "-7", "0"], (DetectedType.NUMBER,), "bigint"),
        (["5", "1.50"], (DetectedType.NUMBER,), "double"),
        (["5", "9223372036854775808"], (DetectedType.NUMBER,), "double"),
        (["12345678901234567890"] * 3, (DetectedType.NUMBER,), "string"),
        (["0.12345678901234567891"], (DetectedType.NUMBER,), "string"),
        (["9007199254740993"] * 50 + ["0.5"] * 50, (DetectedType.NUMBER,), "string"),
        (["007"], (DetectedType.NUMBER,), "string"),
        (["1e5"], (DetectedType.NUMBER,), "string"),
        (["1٣"], (DetectedType.NUMBER,), "string"),
        ([["5"]], (DetectedType.NUMBER,), "array<string>"),
        ([{"n": "5"}], tuple(DetectedType), "struct<n: string>"),
        ([{"d": "2024-05-01"}], tuple(DetectedType), "struct<d: date>"),
    ],
)
def test_type_is_detected_in_strings_on_request(
    values: list[Any], detect: tuple[DetectedType, ...], chosen: str
) -> None:
    assert choose_type(*values, detect=detect) == chosen


def test_detected_number_has_string_format() -> None:
    chosen = count_values("5").choose_type([DetectedType.NUMBER])
    assert chosen is not None
    assert chosen == (pa.int64(), "string")


def test_number_with_thousands_of_digits_is_detected_as_text() -> None:
    assert count_values("1" * 5000).integer_texts == 0


@pytest.mark.parametrize("seed", range(20))
def test_statistics_of_parts_are_merged(seed: int) -> None:
    random = Random(seed)
    generated = RandomTable(random)
    batches = [generated.random_batch(20) for _ in range(3)]
    whole = infer_statistics([value for batch in batches for value in batch])
    parts = [infer_statistics(batch) for batch in batches]
    assert merge_statistics(parts) == whole
    assert merge_statistics(pickle.loads(pickle.dumps(parts))) == whole


def test_statistics_at_path_count_the_objects_on_the_way() -> None:
    statistics = FieldStatistics()
    statistics.add_nested_value(("a", "b"), 5)
    assert statistics == FieldStatistics(
        objects=1, fields={"a": FieldStatistics(objects=1, fields={"b": FieldStatistics(integers=1)})}
    )


def test_number_of_fields_is_limited() -> None:
    statistics = count_values({f"user-{number}": 1 for number in range(FIELDS_MAX + 1)})
    assert len(statistics.fields) == FIELDS_MAX


@pytest.mark.parametrize("seed", range(5))
def test_chosen_type_of_random_values_is_valid(seed: int) -> None:
    random = Random(seed)
    for _ in range(50):
        records = [b'{"f":%b}' % write_json(random, random_value(random)) for _ in range(5)]
        fields = infer_statistics(records).fields
        chosen = fields["f"].choose_type() if "f" in fields else None
        assert chosen is None or not pa.types.is_null(chosen.data_type)


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        (["2026-11-18T09:00:00Z", "2026-11-18T09:00:00.5Z"], None),
        (["2026-11-18T09:00:00.000Z", "2026-11-18T09:00:00.120Z", "2026-11-18T09:00:00.123Z"], "iso8601_ms"),
        (["2026-11-18T09:00:00+00:00", "2026-11-18T09:00:00.120000+00:00"], "iso8601_python"),
        (["2026-11-18 09:00", "2026-11-18T09:00:00+01:00"], None),
    ],
)
def test_format_of_timestamps_is_the_one_that_restores_most_of_them(texts: list[str], expected: str | None) -> None:
    statistics = infer_statistics([json.dumps({"at": text}).encode() for text in texts])
    chosen = statistics.fields["at"].choose_type([DetectedType.TIMESTAMP])
    assert chosen == SqlType(pa.timestamp("us", tz="UTC"), expected)
    nested = infer_statistics([json.dumps({"o": {"at": text}}).encode() for text in texts])
    assert nested.fields["o"].choose_type([DetectedType.TIMESTAMP]) == SqlType(
        pa.struct([pa.field("at", pa.timestamp("us", tz="UTC"))])
    ), "a nested field has no format"
