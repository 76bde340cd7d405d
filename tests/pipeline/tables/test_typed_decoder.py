"""Tests of decoding typed values: both paths of the decoder agree, and rows restore the values."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from chronik.formats.codec import ValueFormat, WriterSchema
from chronik.formats.encoding import build_prefix, create_encoder
from chronik.formats.registry_client import RegistrySettings
from chronik.pipeline.records.columns import HEADERS_TYPE
from chronik.pipeline.tables.layout import RESCUED, TableKind, initial_schema
from chronik.pipeline.tables.table_files import scan
from chronik.pipeline.tables.values.column_projection import ColumnProjection, ProjectedValues, compile_conversion
from chronik.pipeline.tables.values.data_format import DataFormat, RecordFormat
from chronik.pipeline.tables.values.framed_decoder import FramedDecoder
from chronik.pipeline.tables.values.json_decoder import DecodedValues
from chronik.pipeline.tables.values.record_rebuild import encode_typed_values
from chronik.pipeline.tables.values.table_schema import INFERRED, TableSchema, parse_schema_document
from chronik.pipeline.tables.values.typed_decoder import TypedDecoder
from chronik.pipeline.tables.values.written_types import plan_written_columns
from tests.pipeline.tables.typed_table import RegistryInMemory, TypedTable
from tests.run_size import SEED, sized

EMPTY = initial_schema(TableKind.DECODED, is_typed=True)
URL = RegistrySettings("http://127.0.0.1:1")
RANDOM_SCHEMAS = sized(60, 2000)
LISTS_OF_RANDOM_VALUES = 30


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> RegistryInMemory:
    found = RegistryInMemory()
    for module in ("framed_decoder", "typed_rebuild"):
        monkeypatch.setattr(f"chronik.pipeline.tables.values.{module}.get_registry_client", lambda settings: found)
    return found


def create_decoder(table: pa.Schema, schema: TableSchema = INFERRED) -> TypedDecoder:
    return TypedDecoder(schema, table, (), FramedDecoder(ValueFormat.AVRO, None, URL))


def frame(registry: RegistryInMemory, schema: Any, form: Any) -> bytes:
    written = WriterSchema(ValueFormat.AVRO, json.dumps(schema))
    return build_prefix(registry.add(written)) + create_encoder(written).encode_value(form)


def to_array(values: Sequence[bytes | None]) -> pa.Array:
    return pa.array(values, pa.binary())


def build_record(name: str, type: Any) -> dict[str, Any]:
    return {"type": "record", "name": f"With_{name}", "fields": [{"name": name, "type": type}]}


def add_columns(table: pa.Schema, values: pa.Array, schema: TableSchema = INFERRED) -> pa.Schema:
    types = create_decoder(table, schema).collect_types(values, None)
    added = plan_written_columns(schema, table, types).added
    by_name = {each.name: each for each in (*table, *added)}
    return pa.schema(list(by_name.values()))


# Random schemas


class RandomAvro:
    """A generator of Avro records and of values that fit them."""

    def __init__(self, source: random.Random) -> None:
        self._random = source
        self._names = 0

    def generate_record(self, depth: int = 2) -> dict[str, Any]:
        fields = [
            {"name": f"f{number}", "type": self._generate_type(depth)} for number in range(self._random.randint(1, 4))
        ]
        return {"type": "record", "name": self._name(), "fields": fields}

    def _name(self) -> str:
        self._names += 1
        return f"N{self._names}"

    def _generate_type(self, depth: int) -> Any:
        simple: list[Any] = [
            "boolean", "int", "long", "float", "double", "string", "bytes",
            {"type": "int", "logicalType": "date"},
            {"type": "long", "logicalType": "timestamp-micros"},
            {"type": "long", "logicalType": "local-timestamp-millis"},
            {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 3},
            {"type": "enum", "name": self._name(), "symbols": ["A", "B"]},
            ["string", "long", "null"],
        ]  # fmt: skip
        chosen = self._random.choice(simple)
        if depth and self._random.random() < 0.4:
            inner = self._generate_type(depth - 1)
            chosen = self._random.choice(
                [{"type": "array", "items": inner}, {"type": "map", "values": inner}, self.generate_record(depth - 1)]
            )
        return ["null", chosen] if not isinstance(chosen, list) and self._random.random() < 0.4 else chosen

    def generate_value(self, schema: Any) -> Any:
        """Return the JSON form of a value."""
        choose = self._random
        if isinstance(schema, list):
            return self.generate_value(choose.choice(schema))
        kind = schema if isinstance(schema, str) else schema.get("logicalType") or schema["type"]
        match kind:
            case "null":
                return None
            case "boolean":
                return choose.random() < 0.5
            case "int":
                return choose.choice([0, -1, 2**31 - 1])
            case "long":
                return choose.choice([0, 2**53 + 1, -(2**63)])
            case "float":
                return choose.choice([0.5, -1.25, "NaN", "Infinity"])
            case "double":
                return choose.choice([0.1, 1e300, -0.0, "NaN", "-Infinity"])
            case "string":
                return choose.choice(["", "a", "ü", "NaN", "2026-11-19"])
            case "bytes":
                return choose.choice(["", "AQI="])
            case "date":
                return choose.choice(["1969-12-31", "2026-11-19", "9999-12-31"])
            case "timestamp-micros":
                return choose.choice(["2026-11-19T08:30:00.000001Z", "0001-01-01T00:00:00Z"])
            case "local-timestamp-millis":
                return choose.choice(["2026-11-19T08:30:00.123", "1969-12-31T23:59:59"])
            case "decimal":
                return choose.choice([0, 12.5, -123456789.125])
            case "enum":
                return choose.choice(schema["symbols"])
            case "array":
                return [self.generate_value(schema["items"]) for _ in range(choose.randint(0, 3))]
            case "map":
                return {f"k{number}": self.generate_value(schema["values"]) for number in range(choose.randint(0, 2))}
        return {each["name"]: self.generate_value(each["type"]) for each in schema["fields"]}


class SlowProjection(ColumnProjection):
    """A projection of which no value fits."""

    def project(self, values: pa.Array) -> ProjectedValues:
        projected = super().project(values)
        return projected._replace(misfits=np.ones(len(values), bool))


def test_both_paths_give_equal_columns(registry: RegistryInMemory, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(RANDOM_SCHEMAS):
        source = RandomAvro(random.Random(f"{SEED}/{number}"))
        schema = source.generate_record()
        forms = [source.generate_value(schema) for _ in range(LISTS_OF_RANDOM_VALUES)]
        values = to_array([frame(registry, schema, form) for form in forms])
        table = add_columns(EMPTY, values)
        fast = create_decoder(table).decode(values)
        with monkeypatch.context() as patched:
            patched.setattr("chronik.pipeline.tables.values.typed_decoder.ColumnProjection", SlowProjection)
            slow = create_decoder(table).decode(values)
        assert fast.errors == slow.errors == {}, number
        assert fast.columns[RESCUED].null_count == len(values), number
        for name, array in fast.columns.items():
            assert repr(array.to_pylist()) == repr(slow.columns[name].to_pylist()), (number, name, schema)


def test_rows_restore_the_bytes_of_their_values(registry: RegistryInMemory) -> None:
    for number in range(RANDOM_SCHEMAS):
        source = RandomAvro(random.Random(f"rows {SEED}/{number}"))
        schema = source.generate_record()
        sent = [frame(registry, schema, source.generate_value(schema)) for _ in range(LISTS_OF_RANDOM_VALUES)]
        values = to_array([*sent, None])
        table = add_columns(EMPTY, values)
        restored = restore(create_decoder(table).decode(values), table)
        assert restored == values.to_pylist(), (number, schema)


def restore(decoded: DecodedValues, table: pa.Schema) -> list[bytes | None]:
    """Return the values that rows restore, of which those without a schema are tombstones."""
    schemas = decoded.columns["_value_schema"]
    rows = pa.table(
        {
            **decoded.columns,
            "_offset": pa.array(range(len(schemas))),
            "_value_crc32c": pa.array([None if each is None else 1 for each in schemas.to_pylist()], pa.int64()),
            "_headers": pa.nulls(len(schemas), HEADERS_TYPE),
        },
    )
    rows = rows.cast(pa.schema([table.field(name) for name in rows.column_names]))
    restored: list[bytes | None] = encode_typed_values(rows, INFERRED, RecordFormat(DataFormat.AVRO), URL).to_pylist()
    return restored


@pytest.mark.parametrize("column", ["a", "b"])
@pytest.mark.parametrize("unknown_fields", ["rescue", "drop"])
def test_null_of_a_record_type_differs_from_record_of_nulls_and_from_tombstone(
    column: str, unknown_fields: str, registry: RegistryInMemory
) -> None:
    schema = ["null", build_record("a", ["null", "int"])]
    sent = [frame(registry, schema, form) for form in (None, {"a": None}, {"a": 1})]
    values = to_array([*sent, None, sent[0]])
    declared = parse_schema_document({"unknown_fields": unknown_fields, "columns": {column: "bigint"}})
    table = add_columns(pa.schema([*EMPTY, *(each.to_field() for each in declared.columns)]), values, declared)
    decoder = create_decoder(table, declared)
    decoded = decoder.decode(values)
    assert decoded.errors == {}
    rescued = decoded.columns[RESCUED].to_pylist()
    assert [rescued[0], rescued[1], *rescued[3:]] == ["null", None, None, "null"]
    assert list(decoder.iter_forms(values, None)) == [None, {"a": None}, {"a": 1}, {}, None]
    if (column, unknown_fields) != ("b", "drop"):
        assert restore(decoded, table) == values.to_pylist()
    else:  # the column a is dropped by declaration
        assert restore(decoded, table)[:2] == values.to_pylist()[:2]


def test_null_of_a_record_type_lacks_required_values(registry: RegistryInMemory) -> None:
    declared = parse_schema_document({"columns": {"a": {"type": "bigint", "required": True}}})
    table = pa.schema([*EMPTY, *(each.to_field() for each in declared.columns)])
    schema = ["null", build_record("a", "int")]
    values = to_array([frame(registry, schema, form) for form in (None, {"a": 1})])
    decoded = create_decoder(table, declared).decode(values)
    assert decoded.errors == {0: "column a is required, but $.a has no valid value"}
    assert decoded.columns["a"].to_pylist() == [1]


# Conversions


@pytest.mark.parametrize(
    ("source", "target", "values", "converted", "misfits"),
    [
        (pa.int64(), pa.int32(), [1, 2**40, None], [1, None, None], [1]),
        (pa.float64(), pa.float32(), [0.5, 0.1, math.inf, None], [0.5, None, math.inf, None], [1]),
        (pa.int64(), pa.float64(), [1, 2**53 + 1], [1.0, None], [1]),
        (pa.binary(), pa.string(), [b"a", b"\xff", None], [None, None, None], [0, 1]),
        (pa.string(), pa.binary(), ["a", None], [None, None], [0]),
        (pa.bool_(), pa.int64(), [True, None], [None, None], [0]),
        (pa.list_(pa.int64()), pa.list_(pa.int8()), [[1, 300], [2], None, []], [[1, None], [2], None, []], [0]),
        (
            pa.map_(pa.string(), pa.int64()),
            pa.map_(pa.string(), pa.int8()),
            [[("a", 1)], [("b", 300)], None],
            [[("a", 1)], [("b", None)], None],
            [1],
        ),
        (
            pa.struct([("x", pa.int64()), ("y", pa.string())]),
            pa.struct([("x", pa.int64())]),
            [{"x": 1, "y": None}, {"x": 2, "y": "b"}, None],
            [{"x": 1}, {"x": 2}, None],
            [1],
        ),
    ],
    ids=str,
)
@pytest.mark.parametrize("start", [0, 1])
def test_conversion_marks_values_that_do_not_fit(
    source: pa.DataType, target: pa.DataType, values: list[Any], converted: list[Any], misfits: list[int], start: int
) -> None:
    convert = compile_conversion(pa.field("f", source), pa.field("f", target))
    found = convert(pa.array(values, source).slice(start))
    assert found.array.type == target
    assert found.array.to_pylist() == converted[start:]
    marked = [] if found.misfits is None else np.flatnonzero(found.misfits).tolist()
    assert marked == [row - start for row in misfits if row >= start]


# Policies


@pytest.mark.parametrize(
    ("column", "written", "value", "kept"),
    [
        ("string", "bytes", "YQ==", None),
        ("bytes", "string", "YQ==", None),
        ("bytes", {"type": "enum", "name": "E", "symbols": ["AAAA"]}, "AAAA", None),
        ("bytes", ["string", "long", "null"], "YQ==", None),
        ({"type": "array", "items": "string"}, {"type": "array", "items": "bytes"}, ["YQ==", "/w=="], [None, None]),
        ({"type": "map", "values": "double"}, build_record("x", "long"), {"x": -(2**63)}, None),
        ({"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 1}, "double", -0.0, None),
        ({"type": "map", "values": "bytes"}, {"type": "map", "values": "string"}, {"k": "YQ=="}, [("k", None)]),
        (build_record("x", "string"), build_record("x", "bytes"), {"x": "YQ=="}, {"x": None}),
        (build_record("x", "string"), {"type": "map", "values": ["null", "string"]}, {"x": "a", "y": None}, None),
        (
            build_record("x", "string"),
            ["null", "string", {"type": "map", "values": ["null", "string"]}],
            {"x": None},
            None,
        ),
    ],
    ids=str,
)
def test_value_that_column_would_confuse_is_rescued_and_restored(
    column: Any, written: Any, value: Any, kept: Any, registry: RegistryInMemory
) -> None:
    (first,) = (frame(registry, build_record("a", ["null", column]), {"a": None}),)
    second = frame(registry, build_record("a", written), {"a": value})
    table = add_columns(EMPTY, to_array([first]))
    values = to_array([first, second])
    decoded = create_decoder(table).decode(values)
    assert decoded.columns["a"].to_pylist() == [None, kept]
    assert [None if text is None else json.loads(text) for text in decoded.columns[RESCUED].to_pylist()] == [
        None,
        {"a": value},
    ]
    assert decoded.misfits == {"a": 1}
    assert restore(decoded, table) == values.to_pylist()


def test_integers_in_a_column_of_doubles_are_restored_exactly(registry: RegistryInMemory) -> None:
    double = frame(registry, build_record("a", "double"), {"a": 0.5})
    numbers = [-(2**63), 2**53 + 2, 2**53 + 1, 7]
    written = [
        frame(registry, build_record("a", each), {"a": n}) for each in ("long", ["long", "string"]) for n in numbers
    ]
    values = to_array([double, *written])
    table = add_columns(EMPTY, to_array([double]))
    assert restore(create_decoder(table).decode(values), table) == values.to_pylist()


@pytest.mark.parametrize(
    ("policy", "column", "rescued", "errors"),
    [
        ("rescue", [7, None], [None, '{"a":"8"}'], []),
        ("cast", [7, 8], [None, None], []),
        ("dead_letter", [7], [None], [1]),
    ],
)
def test_policy_of_declared_schema_applies_to_typed_values(
    policy: str, column: list[Any], rescued: list[Any], errors: list[int], registry: RegistryInMemory
) -> None:
    number = {"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}]}
    text = {"type": "record", "name": "R", "fields": [{"name": "a", "type": "string"}]}
    schema = parse_schema_document({"invalid_values": policy, "columns": {"a": "bigint"}})
    table = pa.schema([*EMPTY, *(each.to_field() for each in schema.columns)])
    decoded = create_decoder(table, schema).decode(
        to_array([frame(registry, number, {"a": 7}), frame(registry, text, {"a": "8"})])
    )
    assert decoded.columns["a"].to_pylist() == column
    assert decoded.columns[RESCUED].to_pylist() == rescued
    assert list(decoded.errors) == errors


def test_message_types_of_a_protobuf_schema_share_columns_by_name(registry: RegistryInMemory, tmp_path: Path) -> None:
    text = (
        'syntax = "proto3"; message Created { int32 id = 1; string name = 2; }'
        " message Outer { message Deleted { string reason = 1; int32 id = 2; } }"
    )
    schema = WriterSchema(ValueFormat.PROTOBUF, text)
    id = registry.add(schema)

    def encode(message: str, form: Any) -> bytes:
        encoder = create_encoder(schema, message)
        return build_prefix(id, encoder.message_indexes) + encoder.encode_value(form)

    table = TypedTable(tmp_path, DataFormat.PROTOBUF, registry)
    table.land(
        encode("Created", {"id": 1, "name": "a"}),
        encode("Outer.Deleted", {"reason": "r", "id": 1}),
        encode("Created", {"id": 2, "name": "b"}),
    )
    assert table.errors == []
    assert table.rows() == [{"id": 1, "name": "a"}, {"id": 1, "reason": "r"}, {"id": 2, "name": "b"}]
    (batch,) = scan(table.table.files(), ["_value_schema"])
    assert batch.column(0).to_pylist() == ["1", "1/1.0", "1"]


# Nanoseconds

EVENT = WriterSchema(
    ValueFormat.PROTOBUF,
    'syntax = "proto3"; import "google/protobuf/timestamp.proto"; message Event { int32 id = 1;'
    " google.protobuf.Timestamp at = 2; repeated google.protobuf.Timestamp stops = 3; Trip trip = 4; }"
    " message Trip { google.protobuf.Timestamp start = 1; }",
)
MICROSECONDS, NANOSECONDS = "2026-11-19T08:30:00.123456Z", "2026-11-19T08:30:00.123456789Z"


def land_events(
    registry: RegistryInMemory, directory: Path, schema: TableSchema | None = None
) -> tuple[TypedTable, list[bytes | None]]:
    """Land events with timestamps in microseconds and in nanoseconds; return the table and the values."""
    encoder = create_encoder(EVENT, "Event")
    forms = [
        {"id": 1, "at": MICROSECONDS, "stops": [MICROSECONDS], "trip": {"start": MICROSECONDS}},
        {"id": 2, "at": NANOSECONDS, "stops": [MICROSECONDS, NANOSECONDS], "trip": {"start": NANOSECONDS}},
    ]
    prefix = build_prefix(registry.add(EVENT), (0,))
    values: list[bytes | None] = [prefix + encoder.encode_value(form) for form in forms]
    table = TypedTable(directory, DataFormat.PROTOBUF, registry, schema)
    table.land(*values)
    return table, values


def test_protobuf_timestamps_with_nanoseconds_are_rescued(registry: RegistryInMemory, tmp_path: Path) -> None:
    table, values = land_events(registry, tmp_path)
    assert table.errors == []
    assert table.rows() == [
        {"id": 1, "at": MICROSECONDS, "stops": [MICROSECONDS], "trip": {"start": MICROSECONDS}},
        {
            "id": 2,
            "stops": [MICROSECONDS, None],
            "trip": {},
            "_rescued": {"at": NANOSECONDS, "stops": [MICROSECONDS, NANOSECONDS], "trip": {"start": NANOSECONDS}},
        },
    ]
    files = table.table.files()
    rows = pa.Table.from_batches(list(scan(files)), files.schema).sort_by("_offset")
    assert encode_typed_values(rows, files.value_schema, RecordFormat(DataFormat.PROTOBUF), URL).to_pylist() == values


def test_protobuf_timestamps_with_nanoseconds_fit_declared_text(registry: RegistryInMemory, tmp_path: Path) -> None:
    declared = parse_schema_document({"unknown_fields": "rescue", "columns": {"id": "bigint", "at": "string"}})
    table, _ = land_events(registry, tmp_path, declared)
    assert [row["at"] for row in table.rows()] == [MICROSECONDS, NANOSECONDS]
    assert all("at" not in row["_rescued"] for row in table.rows())


def test_protobuf_timestamps_with_nanoseconds_become_dead_letter_records(
    registry: RegistryInMemory, tmp_path: Path
) -> None:
    column = {"type": "timestamp", "invalid_values": "dead_letter"}
    table, _ = land_events(registry, tmp_path, parse_schema_document({"columns": {"id": "bigint", "at": column}}))
    assert [row["id"] for row in table.rows()] == [1]
    (error,) = table.errors
    assert error.startswith("column at: ")
