"""The types of writers' schemas, and the columns that a table needs for them. Pure functions.

A table's columns are the union over all versions of the schemas of its records. Columns and nested fields are added,
never changed: all integers are `bigint` and all floating-point numbers `double`, so that a type that is widened later
has its column already. A removed field keeps its column. A renamed field keeps its old column (see `field_matching`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any, Final

import pyarrow as pa

from chronik.formats.codec import MESSAGE_KEY, NUMBER_KEY
from chronik.pipeline.tables.layout import KEY_VALUE, RESERVED_NAMES, SYSTEM_KEY
from chronik.pipeline.tables.values.column_names import choose_column_name, with_json_key
from chronik.pipeline.tables.values.field_matching import (
    ObjectNode,
    build_object_tree,
    choose_field_key,
    get_column_identity,
    get_field_identity,
    list_nested_identities,
    list_new_names,
    match_fields,
)
from chronik.pipeline.tables.values.sql_types import (
    FORMAT_KEY,
    JSON_FORMAT,
    collect_element_formats,
    get_json_format,
    restore_element_formats,
)
from chronik.pipeline.tables.values.table_schema import (
    COLUMNS_MAX,
    NAME_KEY_PREFIX,
    ORIGIN_KEYS,
    Column,
    TableSchema,
    UnknownFields,
    count_leaf_columns,
    format_path,
    is_declared,
    is_parsable_key,
)

SINGLE_VALUE: Final = "value"
"""Name of the column for values that are no records, such as numbers."""


@dataclass(slots=True)
class WrittenTypes:
    """The types of the values and keys of records, each with a text by which they are sorted."""

    values: dict[str, pa.Field] = field(default_factory=dict)
    keys: dict[str, pa.Field] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.values or self.keys)

    def merge(self, other: WrittenTypes) -> None:
        """Add the types of another set."""
        self.values.update(other.values)
        self.keys.update(other.keys)


# Types of columns


def build_column_field(written: pa.Field) -> pa.Field:
    """Return the nullable field with which a table stores the values of a writer's field. The name stays the same.

    Nested fields get names that a table can have.
    """
    metadata = {key: value for key, value in (written.metadata or {}).items() if key in (*ORIGIN_KEYS, FORMAT_KEY)}
    data_type = _build_column_type(written.type)
    if data_type is None:
        data_type = pa.string()
        metadata[FORMAT_KEY] = JSON_FORMAT.encode()
    return pa.field(written.name, data_type, metadata=metadata or None)


def _build_column_type(data_type: pa.DataType) -> pa.DataType | None:
    """Return the type of a column for values of a type, or None if only JSON text can store them."""
    is_a: Any = pa.types
    if is_a.is_integer(data_type):
        return pa.int64()
    if is_a.is_floating(data_type):
        return pa.float64()
    if is_a.is_struct(data_type):
        return _build_struct_type(data_type)
    if is_a.is_map(data_type):
        return pa.map_(pa.string(), build_column_field(data_type.item_field.with_name("value")))
    if is_a.is_list(data_type):
        return pa.list_(build_column_field(data_type.value_field.with_name("element")))
    return None if is_a.is_null(data_type) else data_type


def _build_struct_type(data_type: pa.DataType) -> pa.DataType | None:
    fields: list[pa.Field] = []
    for each in data_type:
        if is_parsable_key(each.name):
            name = choose_column_name(each.name, [known.name for known in fields], frozenset())
            fields.append(with_json_key(build_column_field(each).with_name(name), each.name))
    return pa.struct(fields) if fields else None


def extend_written_type(known: pa.DataType, written: pa.DataType) -> pa.DataType:
    """Return a column's type with the nested fields and names that only the writer's type has."""
    is_a: Any = pa.types
    if is_a.is_struct(known) and is_a.is_struct(written):
        return _extend_struct_type(known, written)
    if is_a.is_list(known) and is_a.is_list(written):
        element = known.value_field
        return pa.list_(element.with_type(extend_written_type(element.type, written.value_type)))
    if is_a.is_map(known) and is_a.is_map(written):
        item = known.item_field
        return pa.map_(known.key_field, item.with_type(extend_written_type(item.type, written.item_type)))
    return known


def _extend_struct_type(known: pa.DataType, written: pa.DataType) -> pa.DataType:
    fields, written_fields = list(known), list(written)
    identities = list_nested_identities(known)
    matches = match_fields(identities, written_fields)
    for position, index in enumerate(matches):
        if index is not None:
            extended = extend_written_type(fields[position].type, written_fields[index].type)
            own = get_field_identity(written_fields[index], written_fields[index].name)
            metadata = (fields[position].metadata or {}) | list_new_names(identities, position, own)
            fields[position] = fields[position].with_type(extended).with_metadata(metadata or None)
            identities[position] = get_field_identity(fields[position], identities[position].key)
    keys = {name for each in identities for name in each.names}
    for index, each in enumerate(written_fields):
        if index in matches or not is_parsable_key(each.name) or pa.types.is_null(each.type):
            continue
        key = choose_field_key(each.name, keys | {other.name for other in written_fields} - {each.name})
        name = choose_column_name(key, [known_field.name for known_field in fields], frozenset())
        metadata = _list_suffixed_names(each.name, key)
        stored = build_column_field(each)
        stored = stored.with_metadata({**(stored.metadata or {}), **metadata} or None)
        fields.append(with_json_key(stored.with_name(name), key))
        keys.add(key)
    return pa.struct(fields)


def _list_suffixed_names(name: str, key: str) -> dict[bytes, bytes]:
    """Return the metadata of a new field that cannot have its name as its key."""
    return {} if name == key else {NAME_KEY_PREFIX + name.encode(): b"1"}


# Columns


@dataclass(frozen=True, slots=True)
class PlannedWrittenColumns:
    """The columns to add to a table for writers' types, and the fields that cannot be added."""

    added: tuple[pa.Field, ...]
    """New columns, and columns with new nested fields or names, each with its full type."""
    rejected: dict[str, str]


def plan_written_columns(schema: TableSchema, table: pa.Schema, types: WrittenTypes) -> PlannedWrittenColumns:
    """Plan the columns to add for the types of writers' schemas, in the order of their texts."""
    planner = _WrittenColumnPlanner(schema, table)
    for _, each in sorted(types.keys.items()):
        planner.add_key_type(each)
    if schema.unknown_fields is UnknownFields.COLUMN:
        for _, each in sorted(types.values.items()):
            planner.add_value_type(each)
    return PlannedWrittenColumns(tuple(planner.added.values()), planner.rejected)


class _WrittenColumnPlanner:
    """A planner that chooses columns for the fields of writers' schemas."""

    def __init__(self, schema: TableSchema, table: pa.Schema) -> None:
        self.added: dict[str, pa.Field] = {}
        self.rejected: dict[str, str] = {}
        self._columns = list(schema.resolve_columns(table))
        self._tree = build_object_tree(self._columns)
        self._fields = {each.name: each for each in table}
        self._columns_left = COLUMNS_MAX - sum(count_leaf_columns(each.type) for each in table)

    def add_key_type(self, written: pa.Field) -> None:
        """Plan the column with the decoded keys."""
        known = self._fields.get(KEY_VALUE)
        if known is None:
            wanted = build_column_field(written)
            extended = build_key_field(wanted.type, get_json_format(wanted))
            leaves = count_leaf_columns(extended.type)
        else:
            extended = extend_key_field(known, extend_written_type(get_key_type(known), written.type))
            leaves = count_leaf_columns(extended.type) - count_leaf_columns(known.type)
        if (known is None or not extended.equals(known, check_metadata=True)) and self._reserve_columns((), leaves):
            self._fields[KEY_VALUE] = self.added[KEY_VALUE] = extended

    def add_value_type(self, written: pa.Field) -> None:
        """Plan the columns for the values of a type."""
        self._add_fields(self._tree, list_written_fields(written), get_message_name(written))

    def _add_fields(self, node: ObjectNode, written: list[pa.Field], message: str | None) -> None:
        matches = match_fields(node.identities, written, message)
        for position, index in enumerate(matches):
            if index is None:
                continue
            entry = node.entries[position]
            if isinstance(entry, ObjectNode):
                if pa.types.is_struct(written[index].type):
                    self._add_fields(entry, list(written[index].type), None)
            else:
                own = get_field_identity(written[index], written[index].name, message)
                names = list_new_names(node.identities, position, own)
                self._extend_column(entry, names, written[index])
                node.identities[position] = get_column_identity(self._columns[entry])
        for index, each in enumerate(written):
            if index not in matches and not pa.types.is_null(each.type):
                self._add_column(node, each, message, {other.name for other in written} - {each.name})

    def _add_column(self, node: ObjectNode, written: pa.Field, message: str | None, others: set[str]) -> None:
        key = choose_field_key(written.name, {name for each in node.identities for name in each.names} | others)
        path = (*node.path, key)
        if not is_parsable_key(key):
            self.rejected[format_path(path)] = "the name has a quote, backslash or control character"
            return
        stored = build_column_field(written)
        if not self._reserve_columns(path, count_leaf_columns(stored.type)):
            return
        name = choose_column_name("_".join(path), self._fields, RESERVED_NAMES)
        origin = {key: value for key, value in (stored.metadata or {}).items() if key in ORIGIN_KEYS}
        origin |= _list_suffixed_names(written.name, key)
        if message is not None and NUMBER_KEY in origin:
            origin[MESSAGE_KEY] = message.encode()
        column = Column(name, stored.type, path, get_json_format(stored), origin=tuple(sorted(origin.items())))
        node.add(len(self._columns), replace(column, path=(key,)))
        self._columns.append(column)
        self._fields[name] = self.added[name] = column.to_field(is_declared=False)

    def _extend_column(self, index: int, names: dict[bytes, bytes], written: pa.Field) -> None:
        column = self._columns[index]
        origin = tuple(sorted((dict(column.origin) | names).items()))
        extended = replace(column, data_type=extend_written_type(column.data_type, written.type), origin=origin)
        leaves = count_leaf_columns(extended.data_type) - count_leaf_columns(column.data_type)
        old = self._fields[column.name]
        new = extended.to_field(is_declared=is_declared(old))
        if new.equals(column.to_field(is_declared=is_declared(old)), check_metadata=True):
            return
        if self._reserve_columns(column.path, leaves):
            self._columns[index] = extended
            self._fields[column.name] = self.added[column.name] = new

    def _reserve_columns(self, path: tuple[str, ...], leaves: int) -> bool:
        if leaves > self._columns_left:
            self.rejected[format_path(path)] = f"the table would have more than {COLUMNS_MAX} columns"
            return False
        self._columns_left -= leaves
        return True


def list_written_fields(written: pa.Field) -> list[pa.Field]:
    """Return the fields of a writer's type. A value that is no record has one field."""
    if pa.types.is_struct(written.type) and written.type.num_fields:
        return list(written.type)
    return [written.with_name(SINGLE_VALUE)]


def build_key_field(data_type: pa.DataType, format: str | None) -> pa.Field:
    """Return the field of the column with the decoded keys; `format` is that of a column with JSON text."""
    metadata: dict[bytes, str | bytes] = {**collect_element_formats(data_type), SYSTEM_KEY: b"1"}
    if format is not None:
        metadata[FORMAT_KEY] = format.encode()
    return pa.field(KEY_VALUE, data_type, metadata=metadata)


def extend_key_field(known: pa.Field, data_type: pa.DataType) -> pa.Field:
    """Return the field of the column with the decoded keys with an extended type."""
    return known.with_type(data_type).with_metadata({**(known.metadata or {}), **collect_element_formats(data_type)})


def get_key_type(known: pa.Field) -> pa.DataType:
    """Return the type of the column with the decoded keys, with the JSON formats of its elements."""
    return restore_element_formats(known.type, known.metadata or {})


def get_message_name(written: pa.Field) -> str | None:
    """Return the message type of a Protobuf value, to which its field numbers belong; None for other formats."""
    has_numbers = any(NUMBER_KEY in (each.metadata or {}) for each in list_written_fields(written))
    return written.name if has_numbers else None


def merge_written_types(found: Iterable[WrittenTypes]) -> WrittenTypes:
    """Return the union of sets of types."""
    merged = WrittenTypes()
    for each in found:
        merged.merge(each)
    return merged
