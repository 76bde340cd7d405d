"""Tests of the type tables in docs/guides/typed-tables.md: each cell of each row is tried."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import fastavro
import pyarrow as pa
import pytest
from google.protobuf import json_format

from chronik.formats.codec import ValueFormat, WriterSchema
from chronik.formats.encoding import create_encoder
from chronik.pipeline.tables.table_files import scan
from chronik.pipeline.tables.values.data_format import DataFormat
from chronik.pipeline.tables.values.record_rebuild import encode_typed_values, list_source_columns
from tests.docs.blocks import ROOT
from tests.formats.protobuf.random_values import load_class
from tests.pipeline.tables.typed_table import RegistryInMemory, TypedTable, drop_nulls

PAGE = ROOT / "docs" / "guides" / "typed-tables.md"

HEADINGS = {"Avro": ValueFormat.AVRO, "Protobuf": ValueFormat.PROTOBUF, "JSON Schema": ValueFormat.JSON_SCHEMA}
RULES = ("added", "removed", "default", "renamed")


class Field(NamedTuple):
    """A field of a schema under test."""

    name: str
    type: str
    number: int
    former_name: str | None = None
    default: Any = None


class Row(NamedTuple):
    """A row of the tables."""

    format: ValueFormat
    type: str
    column: str
    value: Any
    rules: dict[str, str]
    widened: list[tuple[str, str]]

    def __str__(self) -> str:
        return f"{self.format}: {self.type}"


def read_rows() -> list[Row]:
    text = PAGE.read_text(encoding="utf-8")
    found = []
    for heading, format in HEADINGS.items():
        section = text.partition(f"### {heading}\n")[2]
        lines = re.split(r"\n#|\n\n", section)[0].splitlines()[2:]
        for line in lines:
            cells = [cell.strip() for cell in line.strip("|").split("|")]
            widened = re.findall(r"`(.*?)`: ([\w ]+)", cells[7])
            name, _, _ = cells[0].partition("` (")
            found.append(
                Row(
                    format,
                    name.strip("`"),
                    cells[1].strip("`"),
                    json.loads(cells[2].strip("`")),
                    dict(zip(RULES, cells[3:7], strict=True)),
                    widened,
                )
            )
    return found


ROWS = read_rows()
CELLS = [(row, rule) for row in ROWS for rule in RULES]
WIDENED = [(row, type, effect) for row in ROWS for type, effect in row.widened]


# Schemas and values


def build_schema(format: ValueFormat, fields: Sequence[Field]) -> WriterSchema:
    """Return the schema of a record with an id and the given fields."""
    build = {
        ValueFormat.AVRO: build_avro_schema,
        ValueFormat.PROTOBUF: build_protobuf_schema,
        ValueFormat.JSON_SCHEMA: build_json_schema,
    }[format]
    return WriterSchema(format, build(fields))


def build_avro_schema(fields: Sequence[Field]) -> str:
    built: list[dict[str, Any]] = [{"name": "id", "type": "int"}]
    for field in fields:
        each = {"name": field.name, "type": json.loads(field.type)}
        if field.former_name is not None:
            each["aliases"] = [field.former_name]
        if field.default is not None:
            each["default"] = field.default
        built.append(each)
    return json.dumps({"type": "record", "name": "Record", "fields": built})


def build_protobuf_schema(fields: Sequence[Field]) -> str:
    imports = {
        "google.protobuf.Timestamp": "google/protobuf/timestamp.proto",
        "google.protobuf.Int64Value": "google/protobuf/wrappers.proto",
        "google.protobuf.StringValue": "google/protobuf/wrappers.proto",
        "google.protobuf.Struct": "google/protobuf/struct.proto",
        "google.protobuf.Duration": "google/protobuf/duration.proto",
        "google.type.Date": "google/type/date.proto",
        "google.type.TimeOfDay": "google/type/timeofday.proto",
    }
    lines = [f'import "{imports[field.type]}";' for field in fields if field.type in imports]
    body = []
    for field in fields:
        oneof = field.type.startswith("oneof ")
        declared = f"{field.type.removeprefix('oneof ')} {field.name} = {field.number};"
        body.append(f"oneof choice {{ {declared} }}" if oneof else declared)
    return (
        'syntax = "proto3"; package p; '
        + " ".join(dict.fromkeys(lines))
        + " message M { int32 id = 1; "
        + " ".join(body)
        + " } enum Color { NONE = 0; RED = 1; } message Point { int32 x = 1; int32 y = 2; }"
        + " message Node { int32 v = 1; Node next = 2; }"
    )


def build_json_schema(fields: Sequence[Field]) -> str:
    properties: dict[str, Any] = {"id": {"type": "integer"}}
    for field in fields:
        each = json.loads(field.type)
        if field.default is not None:
            each["default"] = field.default
        properties[field.name] = each
    return json.dumps({"type": "object", "properties": properties})


def encode(schema: WriterSchema, form: dict[str, Any]) -> bytes:
    if schema.format is ValueFormat.JSON_SCHEMA:
        return json.dumps(form).encode()
    if schema.format is ValueFormat.AVRO:
        payload = create_encoder(schema).encode_value(form)
        fastavro.schemaless_reader(io.BytesIO(payload), fastavro.parse_schema(json.loads(schema.text)), None)
        return payload
    message = load_class(schema.text)()
    json_format.ParseDict(to_protobuf_json(message, form), message)
    serialized: bytes = message.SerializeToString()
    return serialized


def to_protobuf_json(message: Any, form: dict[str, Any]) -> dict[str, Any]:
    """Return a JSON form in the JSON format of Protobuf's libraries."""
    converted = dict(form)
    for field in message.DESCRIPTOR.fields:
        value: Any = form.get(field.name)
        name = field.message_type.full_name if field.message_type is not None else ""
        if name == "google.protobuf.Duration":
            converted[field.name] = f"{value['seconds']}.{value['nanos']:09d}s"
        elif name == "google.type.Date":
            converted[field.name] = dict(zip(("year", "month", "day"), map(int, value.split("-")), strict=True))
        elif name == "google.type.TimeOfDay":
            converted[field.name] = dict(zip(("hours", "minutes", "seconds"), map(int, value.split(":")), strict=True))
    return converted


# Tables


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> RegistryInMemory:
    found = RegistryInMemory()
    for module in ("framed_decoder", "typed_rebuild"):
        monkeypatch.setattr(f"chronik.pipeline.tables.values.{module}.get_registry_client", lambda settings: found)
    return found


class Landing:
    """A table for one row of the page."""

    def __init__(self, row: Row, directory: Path, registry: RegistryInMemory) -> None:
        self.row = row
        self.table = TypedTable(directory, DataFormat(row.format.value), registry)

    def land(self, fields: Sequence[Field], *forms: dict[str, Any]) -> None:
        schema = build_schema(self.row.format, fields)
        self.table.land(*(self.table.frame(schema, encode(schema, form)) for form in forms))
        assert self.table.errors == []


def test_tables_have_all_formats_and_rules() -> None:
    assert {row.format for row in ROWS} == set(ValueFormat)
    assert len(ROWS) > 60
    assert len(WIDENED) > 15
    assert {cell for row in ROWS for cell in row.rules.values()} == {"new column", "null", "same column"}


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_value_of_type_is_read_back_from_its_column(row: Row, tmp_path: Path, registry: RegistryInMemory) -> None:
    landing = Landing(row, tmp_path, registry)
    landing.land([Field("field", row.type, 2)], {"id": 1, "field": row.value})
    assert landing.table.columns["field"].type_name == row.column
    assert landing.table.rows() == [{"id": 1, "field": drop_nulls(row.value)}]


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_row_of_type_is_encoded_again_for_a_replay(row: Row, tmp_path: Path, registry: RegistryInMemory) -> None:
    landing = Landing(row, tmp_path, registry)
    landing.land([Field("field", row.type, 2)], {"id": 1, "field": row.value}, {"id": 2, "field": row.value})
    files = landing.table.table.files()
    rows = pa.Table.from_batches(list(scan(files, list_source_columns(files.schema))))
    values = encode_typed_values(rows, files.value_schema, files.format, files.registry).to_pylist()
    before = landing.table.rows()
    landing.table.land(*values)
    assert landing.table.errors == []
    assert landing.table.rows() == [*before, *before]


@pytest.mark.parametrize(("row", "rule"), CELLS, ids=str)
def test_column_of_type_evolves_by_rule(row: Row, rule: str, tmp_path: Path, registry: RegistryInMemory) -> None:
    landing = Landing(row, tmp_path, registry)
    field, expected = Field("field", row.type, 2), row.rules[rule]
    value = drop_nulls(row.value)
    without, with_field = {"id": 1}, {"id": 2, "field": value}
    if rule == "added":
        landing.land([], without)
        landing.land([field], with_field)
        assert expected == "new column"
        assert landing.table.rows() == [without, with_field]
    elif rule == "removed":
        landing.land([field], with_field)
        landing.land([], without)
        assert expected == "null"
        assert landing.table.rows() == [with_field, without]
    elif rule == "default":
        landing.land([], without)
        landing.land([field._replace(default=get_default(row))], with_field)
        landing.land([], without)
        assert expected == "null"
        assert landing.table.rows() == [without, with_field, without]
    else:
        landing.land([field], with_field)
        renamed = Field("renamed", row.type, 2, former_name="field")
        landing.land([renamed], {"id": 3, "renamed": value})
        landing.land([field], with_field)
        column = "field" if expected == "same column" else "renamed"
        assert landing.table.rows() == [with_field, {"id": 3, column: value}, with_field]


def get_default(row: Row) -> Any:
    """Return a default that the schema of a field may have, or None if the format has no defaults."""
    if row.format is not ValueFormat.AVRO:
        return row.value if row.format is ValueFormat.JSON_SCHEMA else None
    document = json.loads(row.type)
    if document in ("boolean", "int", "long", "float", "double", "string"):
        return row.value
    return None  # defaults of other types are not written as their JSON forms


@pytest.mark.parametrize(("row", "widened", "effect"), WIDENED, ids=str)
def test_column_stores_values_of_a_widened_type(
    row: Row, widened: str, effect: str, tmp_path: Path, registry: RegistryInMemory
) -> None:
    landing = Landing(row, tmp_path, registry)
    landing.land([Field("field", row.type, 2)], {"id": 1, "field": row.value})
    wide = {"id": 2, "field": WIDE_VALUES.get(widened, row.value)}
    landing.land([Field("field", widened, 2)], wide)
    assert set(landing.table.columns) == {"id", "field"}
    expected = wide
    if effect.startswith("rescued"):
        expected = {"id": 2, "_rescued": {"field": wide["field"]}}
    assert landing.table.rows() == [{"id": 1, "field": row.value}, expected]


WIDE_VALUES: dict[str, Any] = {
    '{"type": "record", "name": "R", "fields": [{"name": "x", "type": "long"}, '
    '{"name": "y", "type": "string", "default": "d"}]}': {"x": 2**53 + 1, "y": "n"},
    '{"type": "long", "logicalType": "timestamp-nanos"}': "2026-11-19T08:30:00.000000001Z",
    '"long"': 2**53 + 1,
    '"double"': 0.1,
    '"bytes"': "YQ==",
    "bytes": "YQ==",
    '"string"': "a",
    "int64": 2**53 + 1,
    "sint64": -(2**53) - 1,
    "optional int64": 2**53 + 1,
    "uint64": 2**53 + 1,
    '{"type": "number"}': 0.1,
    '{"type": "array", "items": "long"}': [2**53 + 1],
    "repeated int64": [2**53 + 1],
    '{"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 2}': 12345678.25,
    '{"type": "string"}': "C",
}
"""Values that only the wider type has."""
