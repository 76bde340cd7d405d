"""Tests that the decoder keeps every value in its column or in `_rescued`, and that both of its paths agree."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from decimal import Decimal
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chronik.errors import ConfigError
from chronik.formats.decoded_size import COLUMN_BYTES_MAX, ColumnTooLargeError
from chronik.pipeline.tables.layout import RESCUED, VALUE, VALUE_CRC32C, compute_value_checksums
from chronik.pipeline.tables.values.exact_json import (
    NESTING_MAX,
    TEXTS_PER_SEARCH,
    decode_exact_json,
    parse_exact_float,
)
from chronik.pipeline.tables.values.json_decoder import (
    UNKNOWN_NAMES_MAX,
    DecodedValues,
    JsonDecoder,
    UnknownField,
    check_codecs,
    merge_json_values,
)
from chronik.pipeline.tables.values.record_rebuild import encode_json_values
from chronik.pipeline.tables.values.row_decoder import RowDecoder, collect_statistics, infer_statistics
from chronik.pipeline.tables.values.schema_evolution import plan_new_columns
from chronik.pipeline.tables.values.table_schema import INFERRED, TableSchema, parse_schema_document
from tests.pipeline.tables.random_json import (
    DECODED_TABLE,
    RandomTable,
    canonical_column,
    canonical_json,
    table_of,
)
from tests.run_size import SEED, sized


def create_decoder(columns: dict[str, Any], **settings: Any) -> JsonDecoder:
    schema = parse_schema_document({"columns": columns, **settings})
    return JsonDecoder(schema, table_of(schema))


def decode_values(values: Sequence[str | None], columns: dict[str, Any], **settings: Any) -> DecodedValues:
    encoded = [None if value is None else value.encode() for value in values]
    return create_decoder(columns, **settings).decode(encoded)


def decode_one(value: str, columns: dict[str, Any], **settings: Any) -> dict[str, Any]:
    """Return the columns of one record, without those that are null."""
    decoded = decode_values([value], columns, **settings)
    assert not decoded.errors
    found = {name: array[0].as_py() for name, array in decoded.columns.items()}
    if found[RESCUED] is not None:
        found[RESCUED] = json.loads(found[RESCUED])
    return {name: each for name, each in found.items() if each is not None}


def decode_error(value: str, columns: dict[str, Any], **settings: Any) -> str:
    decoded = decode_values(["{}", value], columns, **settings)
    assert decoded.errors.keys() >= {1}
    return decoded.errors[1]


@pytest.mark.parametrize(
    ("sql_type", "value", "fits"),
    [
        ("bigint", "1", True),
        ("bigint", "9223372036854775807", True),
        ("bigint", "9223372036854775808", False),
        ("bigint", "-9223372036854775809", False),
        ("bigint", "1.5", False),
        ("bigint", "1.0", False),
        ("bigint", "true", False),
        ("bigint", '"1"', False),
        ("double", "1.5", True),
        ("double", "1", True),
        ("double", "9007199254740992", True),
        ("double", "9007199254740993", False),
        ("double", "true", False),
        ("string", '"ä"', True),
        ("string", "1", False),
        ("boolean", "true", True),
        ("boolean", "1", False),
        ("date", '"2024-05-01"', True),
        ("date", '"1 May 2024"', False),
        ("array<bigint>", "[1,null]", True),
        ("array<bigint>", "[]", True),
        ("array<bigint>", "1", False),
        ("struct<a: bigint>", '{"a":1}', True),
        ("struct<a: bigint>", "{}", True),
        ("struct<a: bigint>", "[]", False),
        ("json", '{"a":[1,"x"]}', True),
    ],
)
def test_value_is_converted_exactly_or_rescued(sql_type: str, value: str, fits: bool) -> None:
    decoded = decode_values(['{"f":null}', f'{{"f":{value}}}', None, "{}"], {"f": sql_type})
    assert not decoded.errors
    assert decoded.columns[RESCUED].to_pylist() == [None, None if fits else f'{{"f":{value}}}', None, None]
    assert decoded.columns["f"].is_valid().to_pylist() == [False, fits, False, False]
    assert decoded.misfits == ({} if fits else {"f": 1})


WIDE_ITEMS = f"array<struct<{', '.join(f'p{number}: bigint' for number in range(200))}>>"


@pytest.mark.parametrize("item", ["{}", "null"])
def test_value_that_is_much_larger_in_columns_is_an_error_of_its_own(item: str) -> None:
    small, large = (f'{{"id": 1, "items": [{", ".join([item] * count)}]}}' for count in (10, 40_000))
    before = pa.total_allocated_bytes()
    decoded = decode_values([small, large, small], {"id": {"type": "int"}, "items": {"type": WIDE_ITEMS}})
    assert pa.total_allocated_bytes() - before < COLUMN_BYTES_MAX
    assert decoded.errors == {1: "the decoded value has more than 16 MiB"}
    assert decoded.columns["id"].to_pylist() == [1, 1]
    assert decoded.columns["items"].null_count == 0


def test_values_that_are_too_large_together_are_decoded_in_parts() -> None:
    schema = parse_schema_document({"columns": {"items": {"type": WIDE_ITEMS}}})
    values = pa.array([f'{{"items": [{", ".join(["{}"] * 4000)}]}}'.encode()] * 20, pa.binary())
    with pytest.raises(ColumnTooLargeError):
        JsonDecoder(schema, table_of(schema)).decode(values.to_pylist())
    parts = list(RowDecoder(schema, table_of(schema)).decode_rows_in_parts({VALUE: values}))
    assert sum(len(part.rows["items"]) for part in parts) == 20
    assert max(part.rows["items"].nbytes for part in parts) < COLUMN_BYTES_MAX


def test_misfit_does_not_rescue_other_fields() -> None:
    found = decode_one('{"a":1.5,"b":"x","c":[1]}', {"a": "bigint", "b": "string"})
    assert found == {"b": "x", RESCUED: {"a": 1.5, "c": [1]}}


def test_fields_with_reserved_or_case_variant_names_are_rescued() -> None:
    assert decode_one('{"_offset":5,"ID":1,"id":2}', {"id": "bigint"}) == {"id": 2, RESCUED: {"_offset": 5, "ID": 1}}


def test_nested_misfit_rescues_only_what_is_needed() -> None:
    columns = {"s": "struct<a: bigint, b: bigint>", "l": "array<bigint>", "m": "map<string, bigint>"}
    found = decode_one('{"s":{"a":1,"b":"x","c":2},"l":[1,"x"],"m":{"p":1,"q":"x"}}', columns)
    assert found == {
        "s": {"a": 1, "b": None},
        "l": [1, None],
        "m": [("p", 1), ("q", None)],
        RESCUED: {"s": {"b": "x", "c": 2}, "l": [1, "x"], "m": {"q": "x"}},
    }


def test_respelled_value_is_in_column_and_rescued() -> None:
    decoded = decode_values(['{"t":"2024-05-01"}', '{"t":"2024-05-01T00:00:00Z"}'], {"t": "timestamp"})
    first, second = decoded.columns["t"].to_pylist()
    assert first == second
    assert decoded.columns[RESCUED].to_pylist() == ['{"t":"2024-05-01"}', None]
    assert decoded.misfits == {}


# Dead-letter records


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
        (b'{"new": "\xff"}', ""),
        (b'{"new": "\\ud800"}', ""),
        (b'{"new": 01}', "malformed"),
        (b"\x00\x01", ""),
        (b"[" * 100_000, "nested more than 200 deep"),
        (b'{"a":' * 201 + b"1" + b"}" * 201, "nested more than 200 deep"),
        (b'{"a":' + b"[" * 960 + b"]" * 960 + b"}", "nested more than 200 deep"),
        (b'{"new":' + b"[" * 960 + b"]" * 960 + b"}", "nested more than 200 deep"),
        (b'{"a":"' + b"[" * 960 + b'",' * 2, "truncated"),
        (b'{"a":"' + b'\\"[' * 100_000, "truncated"),
    ],
)
@pytest.mark.parametrize("unknown_fields", ["column", "rescue", "drop"])
def test_value_that_is_not_a_json_object_becomes_dead_letter(value: bytes, error: str, unknown_fields: str) -> None:
    decoder = create_decoder({"a": "json"}, unknown_fields=unknown_fields)
    decoder.decode([b'{"new":1}'])
    decoded = decoder.decode([b'{"a":1}', value, None])
    assert decoded.columns["a"].to_pylist() == ["1", None]
    assert list(decoded.errors) == [1]
    assert error in decoded.errors[1]
    assert decoded.errors[1]
    assert "\n" not in decoded.errors[1]


def test_tombstone_becomes_row_without_fields() -> None:
    columns = {"a": {"type": "bigint", "required": True}, "b": {"type": "string", "default": "x"}, "c": "timestamp"}
    decoded = decode_values([None], columns)
    assert (decoded.errors, [array.to_pylist() for array in decoded.columns.values()]) == ({}, [[None]] * 4)


def test_rows_and_dead_letters_keep_their_records() -> None:
    schema = parse_schema_document({"columns": {"a": "bigint"}})
    values: list[bytes | None] = [b'{"a":1}', b"x", None, b"[]", b'{"a":2}']
    own = {VALUE: pa.array(values, pa.binary()), "_offset": pa.array(range(5), pa.int64())}
    rows, _, _, dead = RowDecoder(schema, table_of(schema)).decode_rows(own)
    assert (rows["_offset"].to_pylist(), rows["a"].to_pylist()) == ([0, 2, 4], [1, None, 2])
    assert dead is not None
    assert (dead["_offset"].to_pylist(), dead[VALUE].to_pylist()) == ([1, 3], [b"x", b"[]"])
    assert all(dead["_error"].to_pylist())


# Policies


def test_required_column_without_value_makes_dead_letter() -> None:
    columns = {"id": {"type": "bigint", "required": True}, "x": {"type": "int", "path": "$.o.x", "required": True}}
    good = '{"id":1,"o":{"x":2}}'
    values = [
        good,
        '{"o":{"x":2}}',
        '{"id":null,"o":{"x":2}}',
        '{"id":"1","o":{"x":2}}',
        '{"id":1,"o":{}}',
        '{"id":1}',
        None,
    ]
    decoded = decode_values(values, columns)
    assert decoded.errors == {
        **dict.fromkeys((1, 2, 3), "column id is required, but $.id has no valid value"),
        **dict.fromkeys((4, 5), "column x is required, but $.o.x has no valid value"),
    }
    assert decoded.columns["id"].to_pylist() == [1, None]


def test_default_replaces_missing_value_but_not_misfit() -> None:
    columns = {
        "n": {"type": "bigint", "default": 0},
        "b": {"type": "boolean", "default": False},
        "d": {"type": "decimal(5,2)", "default": 1.5},
        "j": {"type": "json", "default": {"a": []}},
        "l": {"type": "array<string>", "default": ["x"]},
    }
    defaults = {"n": 0, "b": False, "d": Decimal("1.50"), "j": '{"a":[]}', "l": ["x"]}
    assert decode_one("{}", columns) == decode_one('{"n":null}', columns) == defaults
    assert decode_one('{"n":5,"b":true}', columns) == defaults | {"n": 5, "b": True}
    misfit = decode_one('{"n":"x"}', columns)
    assert misfit == {name: each for name, each in defaults.items() if name != "n"} | {RESCUED: {"n": "x"}}


def test_default_that_does_not_fit_is_rejected() -> None:
    schema = parse_schema_document({"columns": {"n": {"type": "tinyint", "default": 1000}}})
    with pytest.raises(ConfigError, match="column 'n': invalid default 1000"):
        check_codecs(schema)
    with pytest.raises(ConfigError, match="column 'n': invalid default 1000"):
        JsonDecoder(schema, table_of(schema))


@pytest.mark.parametrize(
    ("sql_type", "value", "is_rejected"),
    [
        ("bigint", '"x"', True),
        ("bigint", "null", False),
        ("struct<a: bigint>", '{"a":"x"}', True),
        ("struct<a: bigint>", '{"new":1}', False),
        ("array<bigint>", '[1,"x"]', True),
        ("map<string, bigint>", '{"a":"x"}', True),
        ("timestamp", '"2024-05-01"', False),
        ("double", "1e400", True),
    ],
)
def test_dead_letter_policy_rejects_misfits_only(sql_type: str, value: str, is_rejected: bool) -> None:
    record = f'{{"f":{value}}}'
    by_schema = decode_values([record], {"f": sql_type}, invalid_values="dead_letter")
    by_column = decode_values([record], {"f": {"type": sql_type, "invalid_values": "dead_letter"}})
    assert bool(by_schema.errors) == bool(by_column.errors) == is_rejected
    if is_rejected:
        assert by_schema.errors[0].startswith("column f: ")


def test_policy_of_column_overrides_policy_of_schema() -> None:
    columns = {"a": {"type": "bigint", "invalid_values": "rescue"}, "b": "bigint"}
    assert decode_one('{"a":"x","b":1}', columns, invalid_values="dead_letter") == {"b": 1, RESCUED: {"a": "x"}}
    assert "column b: " in decode_error('{"a":1,"b":"x"}', columns, invalid_values="dead_letter")


def test_parent_that_is_not_an_object_follows_policy_of_columns_below() -> None:
    column = {"type": "bigint", "path": "$.customer.ids.first"}
    assert decode_one('{"customer":"x"}', {"id": column}) == {RESCUED: {"customer": "x"}}
    assert decode_one('{"customer":{"ids":[]}}', {"id": column}) == {RESCUED: {"customer": {"ids": []}}}
    assert decode_values(['{"customer":"x"}'], {"id": column}).misfits == {"id": 1}
    rejecting = {"id": {**column, "invalid_values": "dead_letter"}}
    assert decode_error('{"customer":"x"}', rejecting) == "$.customer is not an object"
    assert decode_error('{"customer":{"ids":5}}', rejecting) == "$.customer.ids is not an object"


def test_cast_converts_values_and_rescues_the_rest() -> None:
    columns = {"n": "bigint", "s": "string", "t": "timestamp", "l": "array<bigint>"}
    found = decode_one('{"n":"5","s":5,"t":"2024-05-01","l":["1",2.0]}', columns, invalid_values="cast")
    assert (found["n"], found["s"], found["l"]) == (5, "5", [1, 2])
    assert RESCUED not in found
    assert decode_one('{"n":"x","l":["1","x"]}', columns, invalid_values="cast") == {
        "l": [1, None],
        RESCUED: {"n": "x", "l": ["1", "x"]},
    }


def test_drop_ignores_unknown_fields_but_rescues_misfits() -> None:
    columns = {"n": "bigint", "s": "struct<a: bigint>", "x": {"type": "int", "path": "$.o.x"}}
    value = '{"n":1,"new":[1],"s":{"a":1,"b":2},"o":{"x":1,"y":2}}'
    assert decode_one(value, columns, unknown_fields="drop") == {"n": 1, "s": {"a": 1}, "x": 1}
    assert decode_one('{"n":"x","new":1}', columns, unknown_fields="drop") == {RESCUED: {"n": "x"}}


def test_decoder_of_some_columns_drops_the_rest() -> None:
    schema = parse_schema_document({"columns": {"a": "bigint", "b": "bigint"}})
    table = table_of(schema)
    decoded = JsonDecoder(schema, pa.schema([table.field("b")])).decode([b'{"a":"x","b":1,"c":2}', b'{"b":"x"}'])
    assert {name: array.to_pylist() for name, array in decoded.columns.items()} == {"b": [1, None]}


# Nested objects


def test_columns_of_nested_objects_are_taken_from_their_paths() -> None:
    columns = {
        "id": {"type": "bigint", "path": "$.customer.id"},
        "name": {"type": "string", "path": "$.customer['full name'].first"},
        "total": "double",
    }
    value = '{"total":1.5,"customer":{"id":7,"full name":{"first":"A","last":"B"},"vip":true}}'
    assert decode_one(value, columns) == {
        "id": 7,
        "name": "A",
        "total": 1.5,
        RESCUED: {"customer": {"full name": {"last": "B"}, "vip": True}},
    }
    assert decode_one('{"customer":{"id":7}}', columns) == {"id": 7}


@pytest.mark.parametrize("value", ['{"o":{}}', '{"o":{"p":{}}}', '{"o":{"x":null}}', '{"o":{"p":{"y":null}}}'])
def test_empty_object_is_rescued(value: str) -> None:
    columns = {"x": {"type": "int", "path": "$.o.x"}, "y": {"type": "int", "path": "$.o.p.y"}}
    assert canonical_json(json.dumps(decode_one(value, columns)[RESCUED])) == canonical_json(value)


def test_null_object_is_missing() -> None:
    assert decode_one('{"o":null}', {"x": {"type": "int", "path": "$.o.x"}}) == {}


def test_last_duplicate_key_wins() -> None:
    columns = {"n": "bigint", "x": {"type": "int", "path": "$.o.x"}}
    assert decode_one('{"n":"a","n":1,"o":{"x":1},"o":{"y":2}}', columns) == {"n": 1, RESCUED: {"o": {"y": 2}}}
    assert decode_one('{"n":1,"n":null}', columns) == {}


# Unknown fields


def test_unknown_fields_are_learned_and_rescued() -> None:
    decoder = create_decoder({"a": "bigint"}, unknown_fields="column")
    for number in range(3):
        decoded = decoder.decode([b'{"a":1,"new":%d,"x\\"y":[1]}' % number, b'{"a":2}', b'{"new":null}'])
        assert decoded.columns["a"].to_pylist() == [1, 2, None]
        rescued = [None if text is None else json.loads(text) for text in decoded.columns[RESCUED].to_pylist()]
        assert rescued == [{"new": number, 'x"y': [1]}, None, None]
        assert sorted(decoded.unknown_fields) == [(("new",), number), (('x"y',), [1])]


def test_number_of_learned_fields_is_limited() -> None:
    decoder = create_decoder({})
    names = [f"f{number}" for number in range(UNKNOWN_NAMES_MAX + 50)]
    value = json.dumps(dict.fromkeys(names, 1)).encode()
    for _ in range(2):
        assert json.loads(decoder.decode([value]).columns[RESCUED][0].as_py()) == dict.fromkeys(names, 1)


def test_unknown_fields_are_reported_only_if_columns_are_added() -> None:
    columns = {"s": "struct<a: bigint>", "x": {"type": "int", "path": "$.o.x"}}
    value = '{"new":1,"s":{"b":2},"o":{"y":3}}'
    assert decode_values([value], columns, unknown_fields="column").unknown_fields == [
        UnknownField(("new",), 1),
        UnknownField(("s",), {"b": 2}),
        UnknownField(("o", "y"), 3),
    ]
    assert decode_values([value], columns, unknown_fields="rescue").unknown_fields == []


def test_misfit_is_not_an_unknown_field() -> None:
    decoded = decode_values(
        ['{"a":"x","s":{"b":"x"}}'], {"a": "bigint", "s": "struct<b: int>"}, unknown_fields="column"
    )
    assert decoded.unknown_fields == []


def test_dead_letter_record_reports_no_unknown_fields() -> None:
    columns = {"id": {"type": "bigint", "required": True}}
    decoded = decode_values(['{"new":1}', '{"id":1,"other":2}'], columns, unknown_fields="column")
    assert list(decoded.errors) == [0]
    assert decoded.unknown_fields == [UnknownField(("other",), 2)]


def test_integer_with_thousands_of_digits_is_rescued_verbatim() -> None:
    number = "1" * 5000
    values = [f'{{"new":{number}}}', f'{{"n":[{number},-{number}]}}']
    decoded = decode_values(values, {"n": "array<bigint>"}, unknown_fields="column")
    texts = decoded.columns[RESCUED].to_pylist()
    assert [canonical_json(text) for text in texts] == [canonical_json(value) for value in values]
    assert infer_statistics([value.encode() for value in values]).fields["new"].inexact_numbers == 1
    quoted = json.dumps({"text": f'a"{number}', "n": 1}).encode()
    assert decode_exact_json(quoted[:-1] + b',"m":' + number.encode() + b"}")["text"] == f'a"{number}'


# Nesting and numbers


def call_at_stack_depth(depth: int, call: Callable[[], Any]) -> Any:
    return call() if depth == 0 else call_at_stack_depth(depth - 1, call)


@pytest.mark.parametrize("opening", [b'{"a":', b'{"a":['])
@pytest.mark.parametrize("stack", [0, 300])
def test_maximum_nesting_is_decoded_at_any_stack_depth(opening: bytes, stack: int) -> None:
    closing = opening.translate(bytes.maketrans(b"{[", b"}]"), b'"a:')[::-1]
    times = NESTING_MAX // len(closing)
    value = opening * times + b"1" + closing * times

    def decode() -> Any:
        decoded = JsonDecoder(INFERRED, DECODED_TABLE).decode([value])
        return decoded.errors, decoded.columns[RESCUED].to_pylist()

    assert call_at_stack_depth(stack, decode) == ({}, [value.decode()])


def test_brackets_in_strings_and_siblings_are_not_nesting() -> None:
    value = {"text": '[{"' * 500, "list": [[]] * 500, "objects": [{"a": [1]}] * 500}
    assert decode_one(json.dumps(value), {"list": "array<array<int>>"}) == {
        "list": [[]] * 500,
        RESCUED: {name: value[name] for name in ("text", "objects")},
    }


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
        ("9007199254740993e1", False),
        ("-9007199254740993E0", False),
        ("9007199254740993e-3", False),
        ("1e-400", False),
        ("-1e400", False),
        ("1e-99999999999999999999999", False),
        ("0." + "1" * 5000, False),
    ],
)
def test_number_that_is_not_a_float64_is_rescued_verbatim(number: str, exact: bool) -> None:
    given_text = f'{{"f":{number}}}'
    decoded = decode_values(['{"f":1.5}', given_text], {"f": "double"})
    assert decoded.columns["f"].to_pylist() == [1.5, float(number) if exact else None]
    assert decoded.columns[RESCUED].to_pylist() == [None, None if exact else given_text]
    nested = f'{{"f":[0.5,{number}],"g":{{"h":{number},"i":1}},"j":1}}'
    decoded = decode_values([nested], {"f": "array<double>", "g": "struct<h: double, i: int>", "j": "bigint"})
    assert decoded.columns["j"].to_pylist() == [1]
    rescued = f'{{"f":[0.5,{number}],"g":{{"h":{number}}}}}'
    assert decoded.columns[RESCUED].to_pylist() == [None if exact else rescued]


def test_inexact_numbers_are_found_in_any_row() -> None:
    last = 3 * TEXTS_PER_SEARCH + 1
    inexact = {3: "1e-400", 4: "0.12345678901234567890", 7: "1e400", last: "12345678901234567.5"}
    values = [None if row % 5 == 0 else f'{{"f":{inexact.get(row, 0.5)}}}' for row in range(last + 1)]
    decoded = decode_values(values, {"f": "double"})
    assert decoded.columns[RESCUED].to_pylist() == [
        f'{{"f":{inexact[row]}}}' if row in inexact else None for row in range(last + 1)
    ]


@given(st.floats(allow_nan=False, allow_infinity=False), st.integers(0, 30))
def test_float_with_any_number_of_digits_is_exact(value: float, digits: int) -> None:
    for text in (repr(value), f"{value:.{17 + digits}g}", f"{value:.{digits}e}"):
        exact = parse_exact_float(text)
        assert exact == float(text) or Decimal(repr(float(text))) != Decimal(text)
    assert parse_exact_float(repr(value)) == parse_exact_float(f"{value:.{16 + digits}e}") == value


@pytest.mark.parametrize(
    ("base", "over", "merged"),
    [
        ({"a": 1}, {"b": 2}, {"a": 1, "b": 2}),
        ({"a": {"b": 1}}, {"a": {"c": 2}}, {"a": {"b": 1, "c": 2}}),
        ({"a": [1, None]}, {"a": [1, "x"]}, {"a": [1, "x"]}),
        ({"a": {"b": 1}}, {"a": 5}, {"a": 5}),
        ({"a": {"b": 1}}, {"a": {}}, {"a": {"b": 1}}),
    ],
)
def test_rescued_value_is_merged_over_restored_one(base: Any, over: Any, merged: Any) -> None:
    assert merge_json_values(base, over) == merged


# Random schemas and records

BATCH_ROWS = 40
BATCHES = 3
SCHEMAS = sized(24, 8400)
"""Number of random schemas of each property test, which decodes 120 records per schema: a million in a long run."""


class SlowJsonDecoder(JsonDecoder):
    """A decoder whose records all take the slow path."""

    def _parse(self, values: Sequence[bytes | None], result: Any) -> list[Any]:
        result.slow_rows.update(row for row, value in enumerate(values) if value is not None)
        return [self._empty] * len(values)


def is_decodable(value: bytes | None) -> bool:
    """Return whether a value is a tombstone or a JSON object that is not nested too deep, by Python's parser."""
    if value is None:
        return True
    try:
        found = canonical_json(value.decode())
    except (ValueError, RecursionError):
        return False
    return isinstance(found, dict) and b"[" * 200 not in value and "\\ud800" not in value.decode()


def restore_values(
    decoded: DecodedValues, values: Sequence[bytes | None], schema: TableSchema, table: pa.Schema
) -> Any:
    """Return the values that the rows restore."""
    kept = [value for row, value in enumerate(values) if row not in decoded.errors]
    fields = [table.field(name) for name in decoded.columns]
    checksums = compute_value_checksums(pa.array(kept, pa.binary()))
    rows = pa.Table.from_arrays(
        [checksums, *decoded.columns.values()], schema=pa.schema([pa.field(VALUE_CRC32C, pa.int64()), *fields])
    )
    return kept, encode_json_values(rows, schema).to_pylist()


def assert_restored(
    decoded: DecodedValues, values: Sequence[bytes | None], schema: TableSchema, table: pa.Schema
) -> None:
    kept, restored = restore_values(decoded, values, schema, table)
    for value, again in zip(kept, restored, strict=True):
        if value is None:
            assert again is None
        else:
            assert canonical_json(again) == canonical_json(value), value


@pytest.mark.parametrize("part", range(10))
def test_columns_and_rescued_values_restore_random_records(part: int) -> None:
    for number in range(part, SCHEMAS, 10):
        random = Random(f"{SEED} restore {number}")
        table = RandomTable(random)
        decoder = JsonDecoder(table.schema, table_of(table.schema))
        for _ in range(BATCHES):
            values = table.random_batch(BATCH_ROWS)
            decoded = decoder.decode(values)
            invalid = {row for row, value in enumerate(values) if not is_decodable(value)}
            assert invalid <= decoded.errors.keys(), number
            assert table.schema.rejects_records or invalid == decoded.errors.keys(), number
            assert_restored(decoded, values, table.schema, table_of(table.schema))


@pytest.mark.parametrize("part", range(10))
def test_fast_and_slow_path_return_equal_rows(part: int) -> None:
    for number in range(part, SCHEMAS, 10):
        random = Random(f"{SEED} paths {number}")
        generated = RandomTable(random, is_lossless=False)
        table = table_of(generated.schema)
        decoders = JsonDecoder(generated.schema, table), SlowJsonDecoder(generated.schema, table)
        for _ in range(BATCHES):
            values = generated.random_batch(BATCH_ROWS)
            fast, slow = (decoder.decode(values) for decoder in decoders)
            assert fast.errors == slow.errors, number
            for name, array in fast.columns.items():
                found, expected = array.to_pylist(), slow.columns[name].to_pylist()
                if name == RESCUED:
                    found, expected = ([text and canonical_json(text) for text in texts] for texts in (found, expected))
                else:
                    found, expected = (canonical_column(each, table.field(name)) for each in (found, expected))
                assert found == expected, (number, name)
            assert fast.misfits == slow.misfits, number
            assert collect_statistics(fast.unknown_fields) == collect_statistics(slow.unknown_fields), number


@pytest.mark.parametrize("part", range(10))
def test_inferred_columns_restore_random_records(part: int) -> None:
    """The columns that a batch adds have the types of its records, which the next batches extend."""
    for number in range(part, SCHEMAS, 10):
        generated = RandomTable(Random(f"{SEED} inferred {number}"))
        table = DECODED_TABLE
        for _ in range(BATCHES):
            values = generated.random_batch(BATCH_ROWS)
            unknown_fields = JsonDecoder(INFERRED, table).decode(values).unknown_fields
            plan = plan_new_columns(INFERRED, table, collect_statistics(unknown_fields))
            changed = {field.name: field for field in plan.added}
            table = pa.schema([*(changed.pop(field.name, field) for field in table), *changed.values()])
            decoded = JsonDecoder(INFERRED, table).decode(values)
            assert {row for row, value in enumerate(values) if not is_decodable(value)} == decoded.errors.keys(), number
            assert_restored(decoded, values, INFERRED, table)
