"""Tests of Avro schemas that are derived from Arrow types."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

from chronik.formats.avro.decoder import AvroDecoder
from chronik.formats.avro.derivation import derive_avro_schema
from chronik.formats.codec import UnsupportedSchemaError, ValueFormat, WriterSchema


def test_derived_schema_has_the_types_of_the_column() -> None:
    inner = pa.struct([("id", pa.int64()), ("name", pa.string())])
    data_type = pa.struct(
        [
            ("flag", pa.bool_()),
            ("number", pa.int32()),
            ("ratio", pa.float32()),
            ("price", pa.decimal128(9, 2)),
            ("day", pa.date32()),
            ("at", pa.timestamp("us", "UTC")),
            ("local", pa.timestamp("us")),
            ("data", pa.binary()),
            ("inner", inner),
            ("list", pa.list_(inner)),
            ("map", pa.map_(pa.string(), pa.float64())),
        ]
    )
    text = derive_avro_schema(data_type, "orders-eu_value")
    assert AvroDecoder(WriterSchema(ValueFormat.AVRO, text)).arrow_field.type == data_type
    schema = json.loads(text)
    assert schema["name"] == "orders_eu_value"
    assert schema["fields"][1] == {"name": "number", "type": ["null", "int"], "default": None}
    assert schema["fields"][8]["type"][1]["name"] == "orders_eu_value_inner"


def test_field_that_is_not_nullable_is_no_union() -> None:
    schema = json.loads(derive_avro_schema(pa.struct([pa.field("flag", pa.bool_(), nullable=False)]), "x"))
    assert schema["fields"] == [{"name": "flag", "type": "boolean"}]


def test_small_integers_become_int() -> None:
    assert derive_avro_schema(pa.int8(), "x") == derive_avro_schema(pa.int16(), "x") == '"int"'


def test_name_that_starts_with_a_digit_gets_an_underscore() -> None:
    assert json.loads(derive_avro_schema(pa.struct([]), "2026"))["name"] == "_2026"


@pytest.mark.parametrize(
    ("data_type", "error"),
    [
        (pa.struct([("größe", pa.int32())]), "does not allow the field name 'größe'"),
        (pa.map_(pa.int32(), pa.int32()), "no type for map"),
        (pa.time64("us"), "no type for time64"),
    ],
)
def test_type_without_avro_type_is_not_supported(data_type: pa.DataType, error: str) -> None:
    with pytest.raises(UnsupportedSchemaError, match=error):
        derive_avro_schema(data_type, "x")
