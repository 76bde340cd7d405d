"""Tests that every value is in its column or in `_rescued`, unchanged."""

from __future__ import annotations

import json
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chronik.pipeline.tables.commit_plan import PartitionRange, TaskOutput
from chronik.pipeline.tables.layout import RESCUED, TableKind, build_table_batch, initial_schema
from chronik.pipeline.tables.parquet import PartitionedParquetWriter
from chronik.pipeline.tables.storage import TableStorage
from chronik.pipeline.tables.topic_table import TableSpec
from chronik.pipeline.tables.values.column_conversion import convert_to_columns, decode_json_values
from chronik.pipeline.tables.values.exact_json import NESTING_MAX, TEXTS_PER_SEARCH, exact_float
from chronik.pipeline.tables.values.schema_evolution import DEPTH_MAX, JsonObject, infer_fields, plan_new_columns
from tests.pipeline.table_fixtures import SPEC, build_batch, open_test_table, read_rows

EMPTY = initial_schema(TableKind.DECODED)


def with_columns(**types: pa.DataType) -> pa.Schema:
    return pa.schema([*EMPTY, *(pa.field(name, kind) for name, kind in types.items())])


def rescued(objects: list[JsonObject | None], schema: pa.Schema) -> list[Any]:
    texts = convert_to_columns(objects, schema).columns[RESCUED].to_pylist()
    return [None if text is None else json.loads(text) for text in texts]


@pytest.mark.parametrize(
    ("kind", "value", "fits"),
    [
        (pa.int64(), 1, True),
        (pa.int64(), 2**63 - 1, True),
        (pa.int64(), 2**63, False),
        (pa.int64(), -(2**63) - 1, False),
        (pa.int64(), 1.5, False),
        (pa.int64(), 1.0, False),
        (pa.int64(), True, False),
        (pa.int64(), "1", False),
        (pa.float64(), 1.5, True),
        (pa.float64(), 1, True),
        (pa.float64(), 2**53, True),
        (pa.float64(), 2**53 + 1, False),
        (pa.float64(), True, False),
        (pa.string(), "ä", True),
        (pa.string(), 1, False),
        (pa.bool_(), True, True),
        (pa.bool_(), 1, False),
        (pa.date32(), "2024-05-01", False),
        (pa.list_(pa.field("element", pa.int64())), [1, None], True),
        (pa.list_(pa.field("element", pa.int64())), [], True),
        (pa.list_(pa.field("element", pa.int64())), [1, "a"], False),
        (pa.list_(pa.field("element", pa.int64())), 1, False),
        (pa.struct([("a", pa.int64())]), {"a": 1}, True),
        (pa.struct([("a", pa.int64())]), {}, True),
        (pa.struct([("a", pa.int64())]), {"a": "x"}, False),
        (pa.struct([("a", pa.int64())]), {"a": 1, "b": 2}, False),
        (pa.struct([("a", pa.int64())]), [], False),
    ],
)
def test_value_is_converted_exactly_or_rescued(kind: pa.DataType, value: Any, fits: bool) -> None:
    neighbours: list[JsonObject | None] = [{"f": None}, {"f": value}, None, {}]
    shaped = convert_to_columns(neighbours, with_columns(f=kind))
    assert shaped.rescued == [None, None if fits else {"f": value}, None, None]
    found = shaped.columns["f"].to_pylist()
    assert shaped.columns["f"].type == kind
    assert found[1] == ({"a": value.get("a")} if fits and isinstance(value, dict) else value if fits else None)
    assert [found[0], *found[2:]] == [None] * 3


def test_misfit_does_not_rescue_other_fields() -> None:
    schema = with_columns(a=pa.int64(), b=pa.string())
    shaped = convert_to_columns([{"a": 1.5, "b": "x", "c": [1]}], schema)
    assert shaped.columns["b"].to_pylist() == ["x"]
    assert rescued([{"a": 1.5, "b": "x", "c": [1]}], schema) == [{"a": 1.5, "c": [1]}]


def test_fields_with_reserved_or_case_variant_names_are_rescued() -> None:
    assert rescued([{"_offset": 5, "ID": 1, "id": 2}], with_columns(id=pa.int64())) == [{"_offset": 5, "ID": 1}]


def test_nested_misfit_rescues_whole_field_of_one_row() -> None:
    kind = pa.list_(pa.field("element", pa.struct([("a", pa.list_(pa.field("element", pa.int64())))])))
    good, bad = [{"a": [1, 2]}, {"a": None}, None], [{"a": [1]}, {"a": [2, "x"]}]
    shaped = convert_to_columns([{"f": good}, {"f": bad}, {"f": good}], with_columns(f=kind))
    assert shaped.columns["f"].to_pylist() == [good, None, good]
    assert shaped.rescued == [None, {"f": bad}, None]


@pytest.mark.parametrize(
    ("value", "error"),
    [
        (b"", "truncated"),
        (b"{", "truncated"),
        (b"[1]", "this is a list"),
        (b"1", "this is a number"),
        (b"null", "this is null"),
        (b'{"a": NaN}', "malformed"),
        (b'{"a": "\xff"}', ""),
        (b'{"a": "\\ud800"}', ""),
        (b"\x00\x01", ""),
        (b"[" * 100_000, "nested more than 200 deep"),
        (b'{"a":' * 201 + b"1" + b"}" * 201, "nested more than 200 deep"),
        (b'{"a":' + b"[" * 960 + b"]" * 960 + b"}", "nested more than 200 deep"),
        (b'{"a":"' + b"[" * 960 + b'",' * 2, "truncated"),
        (b'{"a":"' + b'\\"[' * 100_000, "truncated"),
    ],
)
def test_value_that_is_not_a_json_object_becomes_dead_letter(value: bytes, error: str) -> None:
    decoded = decode_json_values([b'{"a":1}', value, None])
    assert decoded.objects == [{"a": 1}, None, None]
    assert list(decoded.errors) == [1]
    assert error in decoded.errors[1]
    assert decoded.errors[1]


def test_tombstone_becomes_row_without_fields() -> None:
    assert decode_json_values([None]).errors == {}
    assert convert_to_columns([None], with_columns(a=pa.int64())).rescued == [None]


def test_column_types_are_inferred_from_values() -> None:
    fields = infer_fields(
        [
            {"a": 1, "b": None, "c": "x", "d": {"e": []}, "l": [None, {"m": 1}]},
            {"a": 1.5, "b": True, "c": 7, "d": {"e": [], "f": 1}, "l": [{"n": "x"}], "big": 2**70},
            None,
        ]
    )
    item = pa.struct([("m", pa.int64()), ("n", pa.string())])
    assert {field.name: field.type for field in fields} == {
        "a": pa.float64(),
        "b": pa.bool_(),
        "c": pa.string(),
        "d": pa.struct([("f", pa.int64())]),
        "l": pa.list_(pa.field("element", item)),
    }


def test_no_type_is_inferred_beyond_nesting_limit() -> None:
    deep: Any = 1
    for _ in range(DEPTH_MAX):
        deep = [deep]
    assert infer_fields([{"a": deep}])
    assert infer_fields([{"a": [deep]}]) == []


def call_at_stack_depth(depth: int, call: Callable[[], Any]) -> Any:
    return call() if depth == 0 else call_at_stack_depth(depth - 1, call)


@pytest.mark.parametrize("opening", [b'{"a":', b'{"a":['])
@pytest.mark.parametrize("stack", [0, 300])
def test_maximum_nesting_is_decoded_at_any_stack_depth(opening: bytes, stack: int) -> None:
    closing = opening.translate(bytes.maketrans(b"{[", b"}]"), b'"a:')[::-1]
    times = NESTING_MAX // len(closing)
    value = opening * times + b"1" + closing * times

    def decode_and_convert() -> Any:
        decoded = decode_json_values([value])
        return decoded.errors, convert_to_columns(decoded.objects, EMPTY).columns[RESCUED].to_pylist()

    assert call_at_stack_depth(stack, decode_and_convert) == ({}, [value.decode()])


def test_brackets_in_strings_and_siblings_are_not_nesting() -> None:
    value = {"text": '[{"' * 500, "list": [[]] * 500, "objects": [{"a": [1]}] * 500}
    decoded = decode_json_values([json.dumps(value).encode()])
    assert (decoded.objects, decoded.errors) == ([value], {})


@pytest.mark.parametrize(
    ("number", "exact"),
    [
        ("0.1", True),
        ("0.30000000000000004", True),
        ("0.10000000000000001", True),
        ("0.1000000000000000055511151231257827021181583404541015625", True),
        ("1.50000000000000000000000000000", True),
        ("0.00000000000000000000000000000", True),
        ("5.684341886080802e-14", True),
        ("1e300", True),
        ("1.0E+0000000000002", True),
        ("5e-324", True),
        ("2.2250738585072014e-308", True),
        ("0e-400", True),
        ("123456789012345678.91", False),
        ("3.141592653589793238462643", False),
        ("0.1000000000000000000000001", False),
        ("1.2345678e-320", False),
        ("1e-400", False),
        ("-1e400", False),
        ("1e-99999999999999999999999", False),
        ("0." + "1" * 5000, False),
    ],
)
def test_number_that_is_not_a_float64_is_rescued_verbatim(number: str, exact: bool) -> None:
    given = f'{{"f":{number}}}'.encode()
    nested = f'{{"f":[0.5,{number}],"g":{{"h":{number},"i":1}},"j":1}}'.encode()
    decoded = decode_json_values([b'{"f":1.5}', given])
    assert not decoded.errors
    shaped = convert_to_columns(decoded.objects, with_columns(f=pa.float64()))
    assert shaped.columns["f"].to_pylist() == [1.5, float(number) if exact else None]
    assert shaped.columns[RESCUED].to_pylist() == [None, None if exact else given.decode()]
    struct = pa.struct([("h", pa.float64()), ("i", pa.int64())])
    schema = with_columns(f=pa.list_(pa.field("element", pa.float64())), g=struct, j=pa.int64())
    shaped = convert_to_columns(decode_json_values([nested]).objects, schema)
    assert shaped.columns["j"].to_pylist() == [1]
    text = shaped.columns[RESCUED][0].as_py()
    assert text == (None if exact else nested.decode().replace(',"j":1', ""))


def test_inexact_numbers_are_found_in_any_row() -> None:
    last = 3 * TEXTS_PER_SEARCH + 1
    inexact = {3: "1e-400", 4: "0.12345678901234567890", 7: "1e400", last: "12345678901234567.5"}
    values = [None if row % 5 == 0 else f'{{"f":{inexact.get(row, 0.5)}}}'.encode() for row in range(last + 1)]
    assert rescued(decode_json_values(values).objects, with_columns(f=pa.float64())) == [
        json.loads(f'{{"f":{inexact[row]}}}') if row in inexact else None for row in range(last + 1)
    ]


def test_inexact_number_adds_no_column() -> None:
    shaped = convert_to_columns(decode_json_values([b'{"a":1e-400,"b":{"c":1e-400,"d":1},"e":"x"}']).objects, EMPTY)
    assert infer_fields(shaped.rescued) == [
        pa.field("b", pa.struct([("d", pa.int64())])),
        pa.field("e", pa.string()),
    ]


@given(st.floats(allow_nan=False, allow_infinity=False), st.integers(0, 30))
def test_float_with_any_number_of_digits_is_exact(value: float, digits: int) -> None:
    for text in (repr(value), f"{value:.{17 + digits}g}", f"{value:.{digits}e}"):
        exact = exact_float(text)
        assert exact == float(text) or Decimal(repr(float(text))) != Decimal(text)
    assert exact_float(repr(value)) == exact_float(f"{value:.{16 + digits}e}") == value


INNER_NAMES = st.sampled_from(["a", "b", "B", "x y"])
NAMES = st.sampled_from(["a", "b", "A", "_offset", "c d", ""])
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="utf-8"), max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(INNER_NAMES, inner, max_size=3),
    max_leaves=8,
)  # fmt: skip
OBJECTS = st.lists(st.dictionaries(NAMES, JSON, max_size=4), max_size=5)


def normalise(value: Any) -> Any:
    """Normalise a value for comparison: drop null fields, which a column cannot tell from missing ones."""
    if isinstance(value, dict):
        return {name: normalise(each) for name, each in value.items() if each is not None}
    if isinstance(value, list):
        return [normalise(each) for each in value]
    return str(value) if isinstance(value, bool) else value


@pytest.mark.slow
@settings(deadline=None)
@given(st.lists(OBJECTS, min_size=1, max_size=3))
def test_columns_and_rescued_values_restore_input(batches: list[list[dict[str, Any]]]) -> None:
    """Earlier batches with other types have extended the schema."""
    schema = EMPTY
    for objects in batches:
        decoded = decode_json_values([json.dumps(each).encode() for each in objects]).objects
        plan = plan_new_columns(schema, infer_fields(convert_to_columns(decoded, schema).rescued))
        changed = {field.name: field for field in plan.added}
        kept = [changed.pop(field.name, field) for field in schema]
        schema = pa.schema([*kept, *changed.values()])
        shaped = convert_to_columns(decoded, schema)
        names = [name for name in shaped.columns if name != RESCUED]
        for row, given_object in enumerate(objects):
            found = {name: shaped.columns[name][row].as_py() for name in names}
            text = shaped.columns[RESCUED][row].as_py()
            again = {} if text is None else json.loads(text)
            assert not {name for name, value in found.items() if value is not None} & set(again)
            assert normalise(found | again) == normalise(given_object)


def test_schema_with_new_nested_fields_is_written_and_read(tmp_path: Path) -> None:
    committer = open_test_table(tmp_path, TableSpec(SPEC.topic, SPEC.topic_id, TableKind.DECODED))
    batches: list[list[JsonObject | None]] = [
        [{"user": {"id": 1}}, {"user": {"id": 2}}],
        [{"user": {"id": 3, "name": "x"}}, {"user": {"id": "four"}, "new": True}],
    ]
    for number, objects in enumerate(batches):
        span = PartitionRange(0, 2 * number, 2 * number + 2)
        schema = committer.snapshot().schema
        evolved = committer.add_columns(infer_fields(convert_to_columns(objects, schema).rescued))
        base = build_batch(span, evolved.schema)
        own = {name: base.column(index) for index, name in enumerate(base.schema.names)}
        with PartitionedParquetWriter(TableStorage(str(tmp_path)), evolved.schema, ("_date",)) as writer:
            writer.write(build_table_batch(own | convert_to_columns(objects, evolved.schema).columns, evolved.schema))
        committer.commit([TaskOutput((span,), writer.files)])
    table = read_rows(committer.snapshot()).sort_by("_offset")
    assert table["user"].to_pylist() == [{"id": 1, "name": None}, {"id": 2, "name": None}, {"id": 3, "name": "x"}, None]
    assert table["new"].to_pylist() == [None, None, None, True]
    assert table[RESCUED].to_pylist() == [None, None, None, '{"user":{"id":"four"}}']
