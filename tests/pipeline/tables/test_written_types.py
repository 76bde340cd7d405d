"""Tests of the columns that a table gets for the types of writers' schemas."""

from __future__ import annotations

import json
import random
from typing import Any

import pyarrow as pa
import pytest

from chronik.formats.codec import ALIASES_KEY, DEFAULT_KEY, FORMAT_KEY, MESSAGE_KEY, NUMBER_KEY
from chronik.pipeline.tables.layout import KEY_VALUE, TableKind, initial_schema
from chronik.pipeline.tables.values.field_matching import build_object_tree, list_nested_identities, match_fields
from chronik.pipeline.tables.values.schema_evolution import has_unchanged_columns
from chronik.pipeline.tables.values.table_schema import (
    COLUMNS_MAX,
    INFERRED,
    TableSchema,
    UnknownFields,
    count_leaf_columns,
    parse_schema_document,
)
from chronik.pipeline.tables.values.written_types import (
    WrittenTypes,
    build_column_field,
    get_message_name,
    plan_written_columns,
)
from tests.run_size import SEED, sized

EMPTY = initial_schema(TableKind.DECODED, is_typed=True)
RANDOM_HISTORIES = sized(60, 20_000)


def field(name: str, type: pa.DataType, **metadata: Any) -> pa.Field:
    keys = {"aliases": ALIASES_KEY, "number": NUMBER_KEY, "message": MESSAGE_KEY,
            "default": DEFAULT_KEY, "format": FORMAT_KEY}  # fmt: skip
    encoded = {
        keys[key]: value.encode() if isinstance(value, str) else json.dumps(value).encode()
        for key, value in metadata.items()
    }
    return pa.field(name, type, metadata=encoded or None)


def value_of(*fields: pa.Field, name: str = "value") -> pa.Field:
    return pa.field(name, pa.struct(fields))


def evolve(
    *versions: pa.Field, table: pa.Schema = EMPTY, schema: TableSchema = INFERRED, is_key: bool = False
) -> pa.Schema:
    """Return a table with the columns for versions of a schema that are found at the same time."""
    found = {f"{number:012}": each for number, each in enumerate(versions)}
    types = WrittenTypes(keys=found) if is_key else WrittenTypes(found)
    plan = plan_written_columns(schema, table, types)
    by_name = {each.name: each for each in (*table, *plan.added)}
    return pa.schema(list(by_name.values()))


def new_columns(table: pa.Schema) -> dict[str, pa.DataType]:
    return {each.name: each.type for each in table if each.name not in EMPTY.names}


@pytest.mark.parametrize(
    ("written", "stored"),
    [
        (pa.int8(), pa.int64()),
        (pa.int32(), pa.int64()),
        (pa.float32(), pa.float64()),
        (pa.decimal128(20, 0), pa.decimal128(20, 0)),
        (pa.list_(pa.float32()), pa.list_(pa.float64())),
        (pa.map_(pa.string(), pa.int32()), pa.map_(pa.string(), pa.int64())),
        (pa.struct([pa.field("x", pa.int32(), nullable=False)]), pa.struct([pa.field("x", pa.int64())])),
        (pa.struct([]), pa.string()),
        (pa.null(), pa.string()),
    ],
    ids=str,
)
def test_column_type_is_the_widest_of_its_kind(written: pa.DataType, stored: pa.DataType) -> None:
    assert build_column_field(pa.field("f", written)).type == stored


def test_columns_are_the_union_of_versions() -> None:
    first = value_of(field("a", pa.int32()), field("b", pa.string()))
    second = value_of(field("c", pa.bool_()), field("a", pa.int64()))
    assert new_columns(evolve(first, second)) == {"a": pa.int64(), "b": pa.string(), "c": pa.bool_()}


def test_nested_fields_are_added_to_their_column() -> None:
    first = value_of(field("o", pa.list_(pa.struct([field("x", pa.int32())]))))
    second = value_of(field("o", pa.list_(pa.struct([field("y", pa.string()), field("x", pa.int32())]))))
    (column,) = new_columns(evolve(first, second)).values()
    assert column == pa.list_(pa.struct([pa.field("x", pa.int64()), pa.field("y", pa.string())]))


def test_versions_in_any_order_share_the_column_of_a_renamed_field() -> None:
    old = value_of(field("old", pa.int32()))
    aliased = value_of(field("new", pa.int32(), aliases=["old"]))
    new = value_of(field("new", pa.int32()))
    assert set(new_columns(evolve(old, aliased, new))) == {"old"}
    assert set(new_columns(evolve(new, table=evolve(aliased, table=evolve(old))))) == {"old"}
    assert set(new_columns(evolve(aliased, old, new))) == {"new"}


def test_renamed_nested_fields_keep_their_place() -> None:
    old = value_of(field("o", pa.struct([field("old", pa.int32())])))
    aliased = value_of(field("o", pa.struct([field("new", pa.int32(), aliases=["old"])])))
    new = value_of(field("o", pa.struct([field("new", pa.int32())])))
    assert new_columns(evolve(old, aliased, new)) == {"o": pa.struct([pa.field("old", pa.int64())])}


def test_field_whose_alias_is_another_field_gets_its_own_column() -> None:
    both = value_of(field("a", pa.int32()), field("b", pa.int32(), aliases=["a"]))
    assert set(new_columns(evolve(value_of(field("a", pa.int32())), both))) == {"a", "b"}
    later = value_of(field("b", pa.int32(), aliases=["a"]))
    assert set(new_columns(evolve(both, later))) == {"a", "b"}


def test_field_number_takes_precedence_over_the_name() -> None:
    first = value_of(field("a", pa.int32(), number=1), field("b", pa.string(), number=2), name="p.M")
    second = value_of(field("b", pa.int32(), number=1), field("c", pa.string(), number=2), name="p.M")
    assert set(new_columns(evolve(first, second))) == {"a", "b"}


def test_field_with_a_used_name_and_another_number_gets_its_own_column() -> None:
    first = value_of(field("a", pa.int32(), number=1), name="p.M")
    second = value_of(field("a", pa.string(), number=5), name="p.M")
    assert new_columns(evolve(first, second)) == {"a": pa.int64(), "a_2": pa.string()}


def test_numbers_of_other_message_types_are_not_compared() -> None:
    first = value_of(field("a", pa.int32(), number=1), name="p.M")
    second = value_of(field("b", pa.string(), number=1), field("a", pa.int32(), number=2), name="p.N")
    assert new_columns(evolve(first, second)) == {"a": pa.int64(), "b": pa.string()}


def test_renamed_field_of_each_message_type_keeps_the_shared_column() -> None:
    first = value_of(field("a", pa.int32(), number=1), name="p.M")
    second = value_of(field("a", pa.int32(), number=7), name="p.N")
    renamed = value_of(field("b", pa.int32(), number=7), field("a", pa.string(), number=8), name="p.N")
    assert new_columns(evolve(first, second, renamed)) == {"a": pa.int64(), "a_2": pa.string()}


def test_nested_fields_of_other_message_types_are_matched_by_name() -> None:
    first = value_of(field("o", pa.struct([field("a", pa.string(), number=1, message="p.A")]), number=1), name="p.M")
    fields = [field("b", pa.string(), number=1, message="p.B"), field("a", pa.string(), number=2, message="p.B")]
    second = value_of(field("o", pa.struct(fields), number=1), name="p.N")
    renamed = value_of(field("o", pa.struct([field("c", pa.string(), number=2, message="p.B")]), number=1), name="p.N")
    assert new_columns(evolve(first, second, renamed)) == {"o": pa.struct([("a", pa.string()), ("b", pa.string())])}


def test_name_of_a_renamed_field_that_is_used_again_gets_its_own_column() -> None:
    old = value_of(field("a", pa.int32()))
    renamed = value_of(field("b", pa.int32(), aliases=["a"]))
    both = value_of(field("a", pa.int32()), field("b", pa.int32()))
    table = evolve(both, table=evolve(old, renamed))
    assert set(new_columns(table)) == {"a", "b_2"}
    assert list_columns_of_fields(table, renamed) == {"b": "a"}
    assert list_columns_of_fields(table, both) == {"a": "a", "b": "b_2"}


@pytest.mark.parametrize("has_numbers", [False, True])
def test_field_never_moves_to_a_column_that_is_added_later(has_numbers: bool) -> None:
    for seed in range(RANDOM_HISTORIES):
        source = random.Random(f"{SEED}/{seed}")
        table, earlier = EMPTY, []
        for _ in range(4):
            message = source.choice(["p.M", "p.N"]) if has_numbers else "value"
            written = value_of(*generate_fields(source, has_numbers), name=message)
            table = evolve(written, table=table)
            earlier.append((written, list_columns_of_fields(table, written)))
            for each, columns in earlier:
                assert list_columns_of_fields(table, each) == columns, (seed, each)


def generate_fields(source: random.Random, has_numbers: bool, depth: int = 1) -> list[pa.Field]:
    """Return fields with few different names, aliases and numbers, so that many of them collide."""
    names = source.sample(["a", "b", "c", "A", "a_2"], source.randint(1, 3))
    fields = []
    for name, number in zip(names, source.sample(range(1, 5), len(names)), strict=True):
        options: dict[str, Any] = {"number": number} if has_numbers else {}
        if not has_numbers and source.random() < 0.3:
            options["aliases"] = [source.choice(["a", "b", "c"])]
        is_nested = depth and source.random() < 0.3
        data_type = pa.struct(generate_fields(source, has_numbers, depth - 1)) if is_nested else pa.string()
        fields.append(field(name, data_type, **options))
    return fields


def list_columns_of_fields(table: pa.Schema, written: pa.Field) -> dict[str, str]:
    """Return the column, or the nested field, that stores each field of a writer's type."""
    columns = INFERRED.resolve_columns(table)
    known = build_object_tree(columns).identities
    found = {}
    for column, index in zip(columns, match_fields(known, list(written.type), get_message_name(written)), strict=True):
        if index is None:
            continue
        own = written.type[index]
        found[own.name] = column.name
        if pa.types.is_struct(own.type) and pa.types.is_struct(column.data_type):
            nested = match_fields(list_nested_identities(column.data_type), list(own.type))
            found |= {
                f"{own.name}.{own.type[index].name}": column.data_type[position].name
                for position, index in enumerate(nested)
                if index is not None
            }
            assert sum(index is not None for index in nested) == own.type.num_fields
    assert {each.name for each in written.type} <= found.keys()
    return found


def test_value_that_is_no_record_gets_one_column() -> None:
    assert new_columns(evolve(pa.field("x", pa.int32()))) == {"value": pa.int64()}


def test_names_that_a_table_cannot_have_are_replaced_in_typed_columns() -> None:
    nested = pa.struct([field("x.y", pa.int32()), field("X_Y", pa.int32())])
    table = evolve(value_of(field("a b", pa.int32()), field("_offset", pa.int32()), field("o", nested)))
    assert list(new_columns(table)) == ["a_b", "_offset_2", "o"]
    assert [each.name for each in table.field("o").type] == ["x_y", "X_Y_2"]


def test_fields_beyond_the_maximum_number_of_columns_are_rejected() -> None:
    written = value_of(*(field(f"f{number}", pa.int32()) for number in range(COLUMNS_MAX)))
    plan = plan_written_columns(INFERRED, EMPTY, WrittenTypes({"1": written}))
    assert len(plan.added) == COLUMNS_MAX - sum(count_leaf_columns(each.type) for each in EMPTY)
    assert plan.rejected[f"$.f{COLUMNS_MAX - 1}"] == f"the table would have more than {COLUMNS_MAX} columns"


@pytest.mark.parametrize("policy", [UnknownFields.RESCUE, UnknownFields.DROP])
def test_declared_schema_without_new_columns_adds_none(policy: UnknownFields) -> None:
    assert evolve(value_of(field("a", pa.int32())), schema=TableSchema(unknown_fields=policy)) == EMPTY


def test_fields_beside_a_declared_path_get_columns() -> None:
    document = {"unknown_fields": "column", "columns": {"id": {"type": "bigint", "path": "$.customer.id"}}}
    schema = parse_schema_document(document)
    table = pa.schema([*EMPTY, *(column.to_field() for column in schema.columns)])
    written = value_of(field("customer", pa.struct([field("id", pa.int32()), field("name", pa.string())])))
    assert list(new_columns(evolve(written, table=table, schema=schema))) == ["id", "customer_name"]


def test_keys_get_one_column_that_grows() -> None:
    first, second = value_of(field("id", pa.int32())), value_of(field("id", pa.int64()), field("x", pa.string()))
    table = evolve(second, table=evolve(first, is_key=True), is_key=True)
    assert table.field(KEY_VALUE).type == pa.struct([pa.field("id", pa.int64()), pa.field("x", pa.string())])


def test_schema_of_written_files_may_gain_names_but_not_lose_metadata() -> None:
    before = evolve(value_of(field("old", pa.int32())))
    after = evolve(value_of(field("new", pa.int32(), aliases=["old"])), table=before)
    assert before.field("old").metadata != after.field("old").metadata
    assert has_unchanged_columns(after, before)
    assert not has_unchanged_columns(before, after)
