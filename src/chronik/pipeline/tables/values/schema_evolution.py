"""Schema evolution: which columns to add to a table for values that have none. Pure functions.

Columns and fields of nested objects are added, never changed. Fields that cannot become columns (reserved name, too
many columns) stay in `_rescued`, and the reason is reported.

Types of new columns are inferred from the values. Strings stay strings even if they look like timestamps, because a
wrong guess could not be corrected later.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from chronik.pipeline.tables.layout import RESERVED_NAMES

JsonObject = Mapping[str, Any]
"""A decoded JSON object."""

INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1

DEPTH_MAX = 16
"""Maximum nesting depth of inferred types. Deeper objects stay JSON text, since few readers can unnest them."""

COLUMNS_MAX = 500
"""Maximum number of columns, including fields of nested objects.

Objects with more keys use them as data and not as names (`{"user-17": …}`). Every file and query plan would contain all
of these columns.
"""

NAME_CHARACTERS_MAX = 255

FORBIDDEN_CHARACTERS = frozenset(" ,;{}()\n\t=`.")
"""Characters that are not allowed in a column name.

Delta rejects the first nine without column mapping. Dots and backticks need quoting in every query, and some readers
interpret a dot as a path into a struct.
"""


def infer_fields(objects: Iterable[JsonObject | None]) -> list[pa.Field]:
    """Infer the fields of JSON objects: one for each key with a known type, in order of occurrence.

    Where the values of a key conflict, the first type wins and other values are rescued; only integers and floats are
    merged (to float).
    """
    types_by_name: dict[str, pa.DataType | None] = {}
    for each in objects:
        for name, value in (each or {}).items():
            types_by_name[name] = _merge_types(types_by_name.get(name), _infer_type(value, DEPTH_MAX))
    return [pa.field(name, kind) for name, kind in types_by_name.items() if kind is not None]


def _infer_type(value: Any, depth: int) -> pa.DataType | None:
    """Return the Arrow type of a value, or None for null, empty lists and objects, and numbers beyond 64 bits."""
    if isinstance(value, bool):
        return pa.bool_()
    if isinstance(value, int):
        return pa.int64() if INT64_MIN <= value <= INT64_MAX else None
    if isinstance(value, float):
        return pa.float64()
    if isinstance(value, str):
        return pa.string()
    if depth > 0 and isinstance(value, list):
        element = None
        for each in value:
            element = _merge_types(element, _infer_type(each, depth - 1))
        return None if element is None else pa.list_(pa.field("element", element))
    if depth > 0 and isinstance(value, dict):
        types_by_name = {name: _infer_type(each, depth - 1) for name, each in value.items()}
        return _struct(types_by_name)
    return None


def _merge_types(one: pa.DataType | None, other: pa.DataType | None) -> pa.DataType | None:
    if one is None or other is None or one == other:
        return one if one is not None else other
    if pa.types.is_struct(one) and pa.types.is_struct(other):
        types_by_name: dict[str, pa.DataType | None] = {field.name: field.type for field in one}
        for field in other:
            types_by_name[field.name] = _merge_types(types_by_name.get(field.name), field.type)
        return _struct(types_by_name)
    if pa.types.is_list(one) and pa.types.is_list(other):
        return pa.list_(pa.field("element", _merge_types(one.value_type, other.value_type)))
    if {one, other} == {pa.int64(), pa.float64()}:
        return pa.float64()
    return one


def _struct(types_by_name: Mapping[str, pa.DataType | None]) -> pa.DataType | None:
    typed = [pa.field(name, kind) for name, kind in types_by_name.items() if kind is not None]
    return pa.struct(typed) if typed else None


@dataclass(frozen=True, slots=True)
class PlannedColumns:
    """The columns to add to a table, and the fields that cannot be added."""

    added: tuple[pa.Field, ...]
    """New columns, and object columns with new fields, each with its full type."""
    rejected: dict[str, str]
    """The reason why each rejected name cannot be a column."""


@dataclass(frozen=True, slots=True)
class EvolvedSchema:
    """The schema of a table after columns were added, and the fields that could not be added."""

    schema: pa.Schema
    rejected: dict[str, str]


def plan_new_columns(schema: pa.Schema, wanted: Iterable[pa.Field]) -> PlannedColumns:
    """Return the columns to add for the wanted fields, and the fields that cannot be added.

    Existing columns keep their types; values of other types are rescued.
    """
    column_budget = COLUMNS_MAX - sum(map(_count_leaves, schema.types))
    types = {field.name: field.type for field in schema}
    added: dict[str, pa.Field] = {}
    refused: dict[str, str] = {}
    for field in wanted:
        name, old_type = field.name, types.get(field.name)
        if old_type is not None and name not in RESERVED_NAMES:
            new_type = _extend_type(old_type, field.type)
            reason = (
                None
                if new_type == old_type
                else _limit_problem(_count_leaves(new_type) - _count_leaves(old_type), column_budget)
            )
        else:
            old_type, new_type = None, field.type
            reason = (
                _name_problem(name, types, RESERVED_NAMES)
                or _type_problem(new_type)
                or _limit_problem(_count_leaves(new_type), column_budget)
            )
        if reason is not None:
            refused[name] = reason
        elif new_type != old_type:
            column_budget -= _count_leaves(new_type) - (0 if old_type is None else _count_leaves(old_type))
            types[name] = new_type
            added[name] = pa.field(name, new_type, nullable=True)
    return PlannedColumns(tuple(added.values()), refused)


def _extend_type(old_type: pa.DataType, wanted: pa.DataType) -> pa.DataType:
    """Return the existing type with the fields that `wanted` adds to its nested objects."""
    if pa.types.is_struct(old_type) and pa.types.is_struct(wanted):
        types = {field.name: field.type for field in old_type}
        for field in wanted:
            if field.name in types:
                types[field.name] = _extend_type(types[field.name], field.type)
            elif _name_problem(field.name, types) is None and _type_problem(field.type) is None:
                types[field.name] = field.type
        return pa.struct([pa.field(name, data_type, nullable=True) for name, data_type in types.items()])
    if pa.types.is_list(old_type) and pa.types.is_list(wanted):
        return pa.list_(pa.field("element", _extend_type(old_type.value_type, wanted.value_type)))
    return old_type


def _name_problem(name: str, taken: Iterable[str], reserved: frozenset[str] = frozenset()) -> str | None:
    lower_name = name.casefold()
    if lower_name in reserved:
        return "the name is reserved"
    for other in taken:
        if other.casefold() == lower_name:
            return f"the name differs from column {other!r} only in case"
    if not name or len(name) > NAME_CHARACTERS_MAX or FORBIDDEN_CHARACTERS & set(name) or not name.isprintable():
        return "the name is not a valid column name"
    return None


def _type_problem(data_type: pa.DataType) -> str | None:
    """Return the reason why a type is not valid for a column, including names of nested fields, or None."""
    if pa.types.is_struct(data_type):
        if data_type.num_fields == 0:
            return "an object without fields has no type"
        names: list[str] = []
        for field in data_type:
            reason = _name_problem(field.name, names) or _type_problem(field.type)
            if reason is not None:
                return f"nested field {field.name!r}: {reason}"
            names.append(field.name)
    return _type_problem(data_type.value_type) if pa.types.is_list(data_type) else None


def _limit_problem(added_leaves: int, column_budget: int) -> str | None:
    return f"the table would have more than {COLUMNS_MAX} columns" if added_leaves > column_budget else None


def _count_leaves(data_type: pa.DataType) -> int:
    if pa.types.is_struct(data_type):
        return sum(_count_leaves(field.type) for field in data_type)
    return _count_leaves(data_type.value_type) if pa.types.is_list(data_type) else 1


class SchemaEvolution:
    """The schema that a table would have with all fields seen up to now.

    Values converted by it are rescued only if they have new fields, or fields that can never become columns.
    """

    def __init__(self, table: pa.Schema) -> None:
        self.schema = table
        self.requested_fields: tuple[pa.Field, ...] = ()
        """Fields that can become columns: those with valid names and compatible types."""
        self._table = table
        self._fields: list[pa.Field] = []

    def add_rescued(self, rescued: Iterable[JsonObject | None]) -> None:
        """Add the fields of rescued values, which have no matching column, to the schema."""
        found = infer_fields(rescued)
        if not found:
            return
        self._fields = merge_fields([self._fields, found])
        self.requested_fields = plan_new_columns(self._table, self._fields).added
        by_name = {field.name: field for field in (*self._table, *self.requested_fields)}
        self.schema = pa.schema(list(by_name.values()))


def merge_fields(lists: Iterable[Sequence[pa.Field]]) -> list[pa.Field]:
    """Merge the fields that several tasks request: integers with floats to floats, and objects field by field.

    Where types conflict otherwise, the first one wins.
    """
    merged: dict[str, pa.Field] = {}
    for field in (field for fields in lists for field in fields):
        existing = merged.setdefault(field.name, field)
        if existing != field:
            with suppress(pa.ArrowException):
                both = [pa.schema([existing]), pa.schema([field])]
                merged[field.name] = pa.unify_schemas(both, promote_options="permissive").field(0)
    return list(merged.values())
