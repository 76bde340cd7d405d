"""Matching of the fields of a writer's schema with the columns of a table and their nested fields. Pure functions.

A field belongs to the column with its number (Protobuf), else to the column with its name, else to one that shares an
alias with it. A column keeps the names of all fields that were renamed into it, so that later schemas need not repeat
the alias.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import pyarrow as pa

from chronik.formats.codec import ALIASES_KEY, NUMBER_KEY
from chronik.pipeline.tables.values.column_names import get_json_key
from chronik.pipeline.tables.values.table_schema import MESSAGE_KEY, NAME_KEY_PREFIX, Column, Path


class FieldIdentity(NamedTuple):
    """The names and the number by which fields of writers' schemas are recognized."""

    key: str
    """Name of the field in JSON objects."""
    other_names: frozenset[str] = frozenset()
    number: int | None = None
    message: str | None = None
    """Message type to which the number belongs; None if it is the only one."""


def get_field_identity(arrow_field: pa.Field, key: str) -> FieldIdentity:
    """Return the identity of a column or nested field from the metadata of its Arrow field."""
    metadata = arrow_field.metadata or {}
    names = {name[len(NAME_KEY_PREFIX) :].decode() for name in metadata if name.startswith(NAME_KEY_PREFIX)}
    names.update(json.loads(metadata.get(ALIASES_KEY, b"[]")))
    number, message = metadata.get(NUMBER_KEY), metadata.get(MESSAGE_KEY)
    return FieldIdentity(
        key, frozenset(names), None if number is None else int(number), None if message is None else message.decode()
    )


def get_column_identity(column: Column) -> FieldIdentity:
    """Return the identity of a table's column. It has the last key of the column's path."""
    return get_field_identity(pa.field(column.name, pa.null(), metadata=dict(column.origin)), column.path[-1])


def list_nested_identities(data_type: pa.DataType) -> list[FieldIdentity]:
    """Return the identities of the fields of a struct type."""
    return [get_field_identity(each, get_json_key(each)) for each in data_type]


def match_fields(
    known: Sequence[FieldIdentity], written: Sequence[pa.Field], message: str | None = None
) -> list[int | None]:
    """Return for each known field the index of the written field that belongs to it, or None.

    `message` is the message type of the written fields, if they are those of a whole Protobuf value.
    """
    identities = [get_field_identity(each, each.name) for each in written]
    matches: list[int | None] = [None] * len(known)
    taken: set[int] = set()
    by_number = {each.number: index for index, each in enumerate(identities) if each.number is not None}
    by_name = {each.key: index for index, each in enumerate(identities)}
    has_number = [
        each.number is not None and bool(by_number) and each.message in (None, message) for each in known
    ]  # fmt: skip

    def assign(position: int, index: int | None) -> None:
        if index is not None and index not in taken:
            matches[position] = index
            taken.add(index)

    for position, each in enumerate(known):
        if has_number[position] and each.number is not None:
            assign(position, by_number.get(each.number))
    named = [position for position in range(len(known)) if not has_number[position]]
    for position in named:
        assign(position, by_name.get(known[position].key))
    for position in named:
        if matches[position] is None:
            assign(position, _find_renamed_field(known[position], identities, taken))
    return matches


def _find_renamed_field(known: FieldIdentity, written: Sequence[FieldIdentity], taken: set[int]) -> int | None:
    for index, each in enumerate(written):
        if index not in taken and (known.key in each.other_names or each.key in known.other_names):
            return index
    return None


@dataclass(slots=True)
class ObjectNode:
    """A node of the tree of objects that contain columns. Each of its entries is a column or another object."""

    path: Path = ()
    keys: list[str] = field(default_factory=list)
    entries: list[int | ObjectNode] = field(default_factory=list)
    """For each key, the index of the column that stores its value, or an object that contains columns."""
    identities: list[FieldIdentity] = field(default_factory=list)

    def add(self, index: int, column: Column) -> None:
        node = self
        for length, key in enumerate(column.path[:-1], 1):
            if key not in node.keys:
                node._append(FieldIdentity(key), ObjectNode(column.path[:length]))
            child = node.entries[node.keys.index(key)]
            assert isinstance(child, ObjectNode), "the paths of columns do not overlap"
            node = child
        node._append(get_column_identity(column), index)

    def _append(self, identity: FieldIdentity, entry: int | ObjectNode) -> None:
        self.keys.append(identity.key)
        self.entries.append(entry)
        self.identities.append(identity)

    def iter_columns(self) -> Iterable[int]:
        """Yield the indexes of the columns in this object and in its nested objects."""
        for entry in self.entries:
            if isinstance(entry, ObjectNode):
                yield from entry.iter_columns()
            else:
                yield entry


def build_object_tree(columns: Iterable[Column]) -> ObjectNode:
    """Return the tree of the objects from which the columns are read."""
    root = ObjectNode()
    for index, column in enumerate(columns):
        root.add(index, column)
    return root


def choose_field_key(name: str, taken: Iterable[str]) -> str:
    """Return the key for a field without a column: its name, or the name with a suffix if another field has it."""
    used = set(taken)
    key, number = name, 1
    while key in used:
        number += 1
        key = f"{name}_{number}"
    return key
