"""Which columns a table grows by, learned from the values that found no place in it. Pure.

Columns, and the fields of objects within them, are only ever added, never changed. What cannot be one (its name means
something else here, the table is full) stays in `_rescued`, and the reason is told.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass

import pyarrow as pa

from chronik.pipeline.tables.layout import RESERVED
from chronik.pipeline.tables.values.inference import Object, infer_fields

COLUMNS_MAX = 500
"""Each field within an object counts. Beyond it keys are data, not names (`{"user-17": …}`): every file and every plan
would carry them all."""

NAME_CHARACTERS_MAX = 255

FORBIDDEN_CHARACTERS = frozenset(" ,;{}()\n\t=`.")
"""Delta refuses the first nine without column mapping. A dot or a backtick needs quoting in every query, and some
readers take the dot for a path into a struct."""


@dataclass(frozen=True, slots=True)
class PlannedColumns:
    added: tuple[pa.Field, ...]
    """New columns, and columns of objects that get new fields, each with its whole type."""
    refused: dict[str, str]
    """Name → why it is no column."""


@dataclass(frozen=True, slots=True)
class Evolved:
    schema: pa.Schema
    refused: dict[str, str]


def plan_columns(schema: pa.Schema, wanted: Iterable[pa.Field]) -> PlannedColumns:
    """A field that is a column already keeps its type, whatever is wanted: each value fits it or is rescued."""
    room = COLUMNS_MAX - sum(map(_leaves, schema.types))
    types = {field.name: field.type for field in schema}
    added: dict[str, pa.Field] = {}
    refused: dict[str, str] = {}
    for field in wanted:
        name, before = field.name, types.get(field.name)
        if before is not None and name not in RESERVED:
            after = _widened(before, field.type)
            why = None if after == before else _why_no_room(_leaves(after) - _leaves(before), room)
        else:
            before, after = None, field.type
            why = _why_not_named(name, types, RESERVED) or _why_not_typed(after) or _why_no_room(_leaves(after), room)
        if why is not None:
            refused[name] = why
        elif after != before:
            room -= _leaves(after) - (0 if before is None else _leaves(before))
            types[name] = after
            added[name] = pa.field(name, after, nullable=True)
    return PlannedColumns(tuple(added.values()), refused)


def _widened(before: pa.DataType, wanted: pa.DataType) -> pa.DataType:
    """Returns the type as it is, with what `wanted` has more within its objects."""
    if pa.types.is_struct(before) and pa.types.is_struct(wanted):
        types = {field.name: field.type for field in before}
        for field in wanted:
            if field.name in types:
                types[field.name] = _widened(types[field.name], field.type)
            elif _why_not_named(field.name, types) is None and _why_not_typed(field.type) is None:
                types[field.name] = field.type
        return pa.struct([pa.field(name, kind, nullable=True) for name, kind in types.items()])
    if pa.types.is_list(before) and pa.types.is_list(wanted):
        return pa.list_(pa.field("element", _widened(before.value_type, wanted.value_type)))
    return before


def _why_not_named(name: str, taken: Iterable[str], reserved: frozenset[str] = frozenset()) -> str | None:
    folded = name.casefold()
    if folded in reserved:
        return "the name is one of the table's own"
    for other in taken:
        if other.casefold() == folded:
            return f"the name differs from column {other!r} only by its case"
    if not name or len(name) > NAME_CHARACTERS_MAX or FORBIDDEN_CHARACTERS & set(name) or not name.isprintable():
        return "the name cannot be a column's"
    return None


def _why_not_typed(kind: pa.DataType) -> str | None:
    """Checks names within objects, too, which are columns' names for most readers."""
    if pa.types.is_struct(kind):
        if kind.num_fields == 0:
            return "an object without fields has no type"
        names: list[str] = []
        for field in kind:
            why = _why_not_named(field.name, names) or _why_not_typed(field.type)
            if why is not None:
                return f"{field.name!r} within it: {why}"
            names.append(field.name)
    return _why_not_typed(kind.value_type) if pa.types.is_list(kind) else None


def _why_no_room(more: int, room: int) -> str | None:
    return f"the table would have more than {COLUMNS_MAX} columns" if more > room else None


def _leaves(kind: pa.DataType) -> int:
    if pa.types.is_struct(kind):
        return sum(_leaves(field.type) for field in kind)
    return _leaves(kind.value_type) if pa.types.is_list(kind) else 1


class Growth:
    """The schema that a table would have with the columns that were missed so far. Values shaped by it are rescued only
    when they teach something new, or can never have a column."""

    def __init__(self, table: pa.Schema) -> None:
        self.schema = table
        self.wanted: tuple[pa.Field, ...] = ()
        """Those that the table could have. A value that does not fit a column of the table, or has a name that cannot
        be one, asks for nothing."""
        self._table = table
        self._fields: list[pa.Field] = []

    def learn(self, rescued: Iterable[Object | None]) -> None:
        found = infer_fields(rescued)
        if not found:
            return
        self._fields = joined_fields([self._fields, found])
        self.wanted = plan_columns(self._table, self._fields).added
        by_name = {field.name: field for field in (*self._table, *self.wanted)}
        self.schema = pa.schema(list(by_name.values()))


def joined_fields(lists: Iterable[Sequence[pa.Field]]) -> list[pa.Field]:
    """Joins what several tasks ask for: whole and fractional numbers are one type, objects have the fields of both;
    where they disagree otherwise, the first one counts."""
    joined: dict[str, pa.Field] = {}
    for field in (field for fields in lists for field in fields):
        known = joined.setdefault(field.name, field)
        if known != field:
            with suppress(pa.ArrowException):
                both = [pa.schema([known]), pa.schema([field])]
                joined[field.name] = pa.unify_schemas(both, promote_options="permissive").field(0)
    return list(joined.values())
