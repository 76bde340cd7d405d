"""Tests of the decoder of keys that are JSON without a schema."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from chronik.pipeline.tables.layout import KEY_VALUE
from chronik.pipeline.tables.values.field_statistics import FieldStatistics
from chronik.pipeline.tables.values.key_decoder import DecodedKeys, JsonKeyDecoder
from chronik.pipeline.tables.values.schema_evolution import plan_new_columns
from chronik.pipeline.tables.values.table_schema import INFERRED


def decode(table: pa.Schema, *keys: bytes | None) -> DecodedKeys:
    return JsonKeyDecoder(table).decode(pa.array(keys, pa.binary()))


def list_values(found: DecodedKeys) -> list[Any]:
    assert found.column is not None
    values: list[Any] = found.column.to_pylist()
    return values


def add_column(table: pa.Schema, *keys: bytes | None) -> pa.Schema:
    """Return the table's schema with the column for keys."""
    statistics = FieldStatistics()
    for value in decode(table, *keys).json_keys:
        statistics.add_json_key(value)
    added = {field.name: field for field in plan_new_columns(INFERRED, table, statistics).added}
    return pa.schema(list(({field.name: field for field in table} | added).values()))


EMPTY = pa.schema([])


@pytest.mark.parametrize(
    ("key", "data_type", "value"),
    [
        (b'{"id": 7, "region": "eu"}', pa.struct({"id": pa.int64(), "region": pa.string()}), {"id": 7, "region": "eu"}),
        (b"7", pa.int64(), 7),
        (b'"a"', pa.string(), "a"),
        (b"[1, 2]", pa.list_(pa.field("element", pa.int64())), [1, 2]),
        (b" true ", pa.bool_(), True),
    ],
)
def test_key_becomes_column_of_its_type(key: bytes, data_type: pa.DataType, value: Any) -> None:
    assert decode(EMPTY, key).column is None
    table = add_column(EMPTY, key)
    assert table.field(KEY_VALUE).type == data_type
    found = decode(table, key, None, b"null")
    assert list_values(found) == [value, None, None]
    assert not found.errors
    assert not found.json_keys


def test_new_fields_of_keys_extend_the_column() -> None:
    table = add_column(EMPTY, b'{"id": 7}')
    table = add_column(table, b'{"id": 8, "at": {"city": "Ulm"}}')
    table = add_column(table, b'{"id": 9, "at": {"zip": 5}}')
    assert list_values(decode(table, b'{"at": {"zip": 5, "city": "Ulm"}}', b'{"id": 1}')) == [
        {"id": None, "at": {"city": "Ulm", "zip": 5}},
        {"id": 1, "at": None},
    ]


def test_key_of_another_type_is_null() -> None:
    table = add_column(EMPTY, b'{"id": 7}')
    found = decode(table, b'{"id": "x", "id2": 1}', b"5")
    assert list_values(found) == [{"id": None}, None]
    assert not found.errors


def test_keys_of_several_types_become_json_text() -> None:
    table = add_column(EMPTY, b'{"id": 7}', b"5")
    assert list_values(decode(table, b'{"id": 7}', b"5")) == ['{"id": 7}', "5"]
    assert add_column(table, b'{"x": 7}') == table


@pytest.mark.parametrize("key", [b"", b"order-1", b'1,"x":2', b'{"id":1', b'"\xff"', b"NaN", b'1}{"key":2'])
def test_key_that_is_not_json_is_an_error(key: bytes) -> None:
    table = add_column(EMPTY, b"7")
    found = decode(table, b"1", key, b"2")
    assert list(found.errors) == [1]
    assert list_values(found) == [1, None, 2]
    assert not add_column(EMPTY, key).names
