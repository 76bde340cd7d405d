"""Matching of the fields of a writer's schema with the columns of a table and their nested fields. Pure functions.

A field belongs to the column with its number (Protobuf), else to the column with its name, else to one that shares an
alias with it. A column keeps the names and numbers of all fields that it has stored, so that later schemas need not
repeat the alias, and so that a field never moves to another column, whatever columns are added later: the rows that the
table has must restore the values that were landed.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import pyarrow as pa

from chronik.formats.codec import ALIASES_KEY, MESSAGE_KEY, NUMBER_KEY
from chronik.pipeline.tables.values.column_names import get_json_key
from chronik.pipeline.tables.values.table_schema import (
    NAME_KEY_PREFIX,
    NUMBER_KEY_PREFIX,
    Column,
    Path,
)


class FieldIdentity(NamedTuple):
    """The names and numbers by which fields of writers' schemas are recognized."""

    key: str
    """Name of the field in JSON objects."""
    other_names: frozenset[str] = frozenset()
    """Names of fields that were renamed into this one."""
    aliases: frozenset[str] = frozenset()
    numbers: frozenset[tuple[str, int]] = frozenset()
    """Each message type that has the field, with the field's number; the name is empty if it is not known."""

    @property
    def names(self) -> frozenset[str]:
        """The names of all fields that belong to this one."""
        return self.other_names | {self.key}


def get_field_identity(arrow_field: pa.Field, key: str, message: str | None = None) -> FieldIdentity:
    """Return the identity of a column or field from the metadata of its Arrow field.

    `message` is the message type of the field, unless the metadata contain it.
    """
    metadata = arrow_field.metadata or {}
    names = frozenset(name[len(NAME_KEY_PREFIX) :].decode() for name in metadata if name.startswith(NAME_KEY_PREFIX))
    numbers = {
        (name[len(NUMBER_KEY_PREFIX) :].decode(), int(number))
        for name, number in metadata.items()
        if name.startswith(NUMBER_KEY_PREFIX)
    }
    if NUMBER_KEY in metadata:
        own_message = metadata[MESSAGE_KEY].decode() if MESSAGE_KEY in metadata else message or ""
        numbers.add((own_message, int(metadata[NUMBER_KEY])))
    return FieldIdentity(key, names, frozenset(json.loads(metadata.get(ALIASES_KEY, b"[]"))), frozenset(numbers))


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
    identities = [get_field_identity(each, each.name, message) for each in written]
    matches: list[int | None] = [None] * len(known)
    taken: set[int] = set()
    by_number = {number: index for index, each in enumerate(identities) for number in each.numbers}
    by_name = {each.key: index for index, each in enumerate(identities)}
    messages = {name for name, _ in by_number}
    has_number = [any(name in messages for name, _ in each.numbers) for each in known]
    names = frozenset[str]().union(*(each.names for each in known))

    def assign(position: int, index: int | None) -> None:
        if index is not None and index not in taken:
            matches[position] = index
            taken.add(index)

    for position, each in enumerate(known):
        for number in each.numbers:
            assign(position, by_number.get(number))
    named = [position for position in range(len(known)) if not has_number[position]]
    for position in named:
        assign(position, by_name.get(known[position].key))
    for has_match in (_has_been_renamed, _shares_alias):
        for position in named:
            for index, each in enumerate(identities):
                is_new = has_match is _has_been_renamed or each.key not in names
                if matches[position] is None and is_new and has_match(known[position], each):
                    assign(position, index)
    return matches


def _has_been_renamed(known: FieldIdentity, written: FieldIdentity) -> bool:
    return written.key in known.other_names


def _shares_alias(known: FieldIdentity, written: FieldIdentity) -> bool:
    return known.key in written.aliases or written.key in known.aliases


def list_new_names(known: Sequence[FieldIdentity], position: int, written: FieldIdentity) -> dict[bytes, bytes]:
    """Return the metadata by which a known field also has the name and numbers of a written field that it stores."""
    names = frozenset[str]().union(*(each.names for each in known))
    found = {NUMBER_KEY_PREFIX + name.encode(): b"%d" % n for name, n in written.numbers - known[position].numbers}
    return found if written.key in names else {**found, NAME_KEY_PREFIX + written.key.encode(): b"1"}


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
