"""Which columns a table grows by. Pure.

Columns are only ever added, never changed. What cannot be one (its name means something else here, the table is full)
stays in `_rescued`, and the reason is told.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import pyarrow as pa

from chronik.pipeline.tables import columns

COLUMNS_MAX = 500
"""Beyond it keys are data, not names (`{"user-17": …}`): every file and every plan would carry them all."""

NAME_LETTERS_MAX = 255

FORBIDDEN_LETTERS = frozenset(" ,;{}()\n\t=`.")
"""Delta refuses the first nine without column mapping. A dot or a backtick needs quoting in every query, and some
readers take the dot for a path into a struct."""

RESERVED = frozenset(
    {
        columns.PARTITION, columns.OFFSET, columns.TIMESTAMP, columns.TIMESTAMP_MS, columns.KEY, columns.VALUE,
        columns.HEADERS, columns.VALUE_CRC32C, columns.RESCUED, columns.ERROR, columns.DATE, columns.HOUR,
        "_metadata",  # Spark's, on every file
        "_change_type", "_commit_version", "_commit_timestamp",  # Delta's, in change feeds
    }
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Plan:
    added: tuple[pa.Field, ...]
    refused: dict[str, str]
    """Name → why it is no column."""


@dataclass(frozen=True, slots=True)
class Evolved:
    schema: pa.Schema
    refused: dict[str, str]


def plan_columns(schema: pa.Schema, wanted: Iterable[pa.Field]) -> Plan:
    """A field whose very name is a column already is neither: each value fits that column or is rescued."""
    taken = {name.casefold(): name for name in schema.names}
    added: list[pa.Field] = []
    refused: dict[str, str] = {}
    for field in wanted:
        if taken.get(field.name.casefold()) == field.name and field.name not in RESERVED:
            continue
        reason = _why_not(field, taken)
        if reason is not None:
            refused[field.name] = reason
            continue
        added.append(pa.field(field.name, field.type, nullable=True))
        taken[field.name.casefold()] = field.name
    return Plan(tuple(added), refused)


def _why_not(field: pa.Field, taken: dict[str, str]) -> str | None:
    name, folded = field.name, field.name.casefold()
    if folded in RESERVED:
        return "the name is one of the table's own"
    if folded in taken:
        return f"the name differs from column {taken[folded]!r} only by its case"
    if not name or len(name) > NAME_LETTERS_MAX or FORBIDDEN_LETTERS & set(name) or not name.isprintable():
        return "the name cannot be a column's"
    if _has_empty_struct(field.type):
        return "an object without fields has no type"
    if len(taken) >= COLUMNS_MAX:
        return f"the table has {COLUMNS_MAX} columns"
    return None


def _has_empty_struct(kind: pa.DataType) -> bool:
    if pa.types.is_struct(kind) and kind.num_fields == 0:
        return True
    return any(_has_empty_struct(kind.field(index).type) for index in range(kind.num_fields))
