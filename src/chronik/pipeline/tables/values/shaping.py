"""Decoded values into the columns of a table, never lossily: what does not fit goes to `_rescued` as it was.

Column by column, so that a batch whose values all fit costs a few passes over lists; only misfits are looked at one by
one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import pyarrow as pa

from chronik.pipeline.tables.layout import RESCUED, RESERVED
from chronik.pipeline.tables.values.exact_json import NESTING_MAX, decode_exactly, nests_too_deep, rows_needing_care
from chronik.pipeline.tables.values.inference import INT64_MAX, INT64_MIN, Object

EXACT_IN_FLOAT_MAX = 2**53
"""Every whole number up to it is a float64 too; beyond it some are not."""


@dataclass(frozen=True, slots=True)
class Decoded:
    objects: list[Object | None]
    """None where there is no value (a tombstone), or where it could not be decoded."""
    errors: dict[int, str]
    """Row → why it is a dead letter."""


@dataclass(frozen=True, slots=True)
class Shaped:
    columns: dict[str, pa.Array]
    rescued: list[Object | None]
    """What of each row has no place in the columns; `infer_fields` of it says which columns would help."""


def decode_json(values: Sequence[bytes | None]) -> Decoded:
    """Decodes values that are JSON objects, or none at all; the others are dead letters."""
    decode = msgspec.json.Decoder().decode
    need_care = rows_needing_care(values)
    objects: list[Object | None] = []
    errors: dict[int, str] = {}
    for row, value in enumerate(values):
        found = None
        if value is not None:
            try:
                found = None if row in need_care else decode(value)
            except (msgspec.DecodeError, UnicodeError):
                found = None  # why, is said below
            if type(found) is not dict:
                found = _decoded_with_care(row, value, errors)
        objects.append(found)
    return Decoded(objects, errors)


def _decoded_with_care(row: int, value: bytes, errors: dict[int, str]) -> Object | None:
    if nests_too_deep(value):
        errors[row] = f"lists and objects are nested more than {NESTING_MAX} deep"
        return None
    try:
        found = decode_exactly(value)
    except (msgspec.DecodeError, UnicodeError) as error:
        errors[row] = str(error) or type(error).__name__
        return None
    if not isinstance(found, dict):
        errors[row] = f"a JSON object was expected, this is {_said(found)}"
        return None
    return found


def _said(value: Any) -> str:
    kinds = {list: "a list", str: "a text", bool: "true or false", type(None): "null"}
    return kinds.get(type(value), "a number")


def shape(objects: Sequence[Object | None], schema: pa.Schema) -> Shaped:
    """Makes the columns of the table that hold fields, and `_rescued`. A schema without it (of a query of few columns)
    rescues nothing."""
    fields = [field for field in schema if field.name not in RESERVED]
    rescued: dict[int, dict[str, Any]] = {}
    columns: dict[str, pa.Array] = {}
    for field in fields:
        values = [None if each is None else each.get(field.name) for each in objects]
        columns[field.name], misfits = _column(values, field.type)
        for row in misfits:
            rescued.setdefault(row, {})[field.name] = values[row]
    if RESCUED not in schema.names:
        return Shaped(columns, [None] * len(objects))
    _rescue_unknown(objects, {field.name for field in fields}, rescued)
    encode = msgspec.json.Encoder().encode
    texts = [encode(rescued[row]).decode() if row in rescued else None for row in range(len(objects))]
    columns[RESCUED] = pa.array(texts, pa.string())
    return Shaped(columns, [rescued.get(row) for row in range(len(objects))])


def _rescue_unknown(objects: Sequence[Object | None], known: set[str], rescued: dict[int, dict[str, Any]]) -> None:
    if not set().union(*(each for each in objects if each)) - known:
        return
    for row, each in enumerate(objects):
        # A null is what a column without a value holds anyway.
        unknown = {name: value for name, value in (each or {}).items() if name not in known and value is not None}
        if unknown:
            rescued.setdefault(row, {}).update(unknown)


def _column(values: list[Any], kind: pa.DataType) -> tuple[pa.Array, set[int]]:
    """Returns an array with null for what does not fit, and the rows of that."""
    if pa.types.is_struct(kind):
        return _struct_column(values, kind)
    if pa.types.is_list(kind):
        return _list_column(values, kind)
    if _all_fit_at_sight(values, kind):
        try:
            return pa.array(values, kind), set()
        except (OverflowError, pa.ArrowInvalid):
            pass  # a number beyond 64 bits: found below
    misfits = {row for row, value in enumerate(values) if value is not None and not _fits(value, kind)}
    return pa.array([None if row in misfits else value for row, value in enumerate(values)], kind), misfits


def _all_fit_at_sight(values: list[Any], kind: pa.DataType) -> bool:
    plain = PLAIN_TYPES.get(kind)
    return plain is not None and set(map(type, values)) <= {plain, type(None)}


PLAIN_TYPES: dict[pa.DataType, type] = {pa.bool_(): bool, pa.int64(): int, pa.float64(): float, pa.string(): str}


def _fits(value: Any, kind: pa.DataType) -> bool:
    plain = PLAIN_TYPES.get(kind)
    if plain is float and type(value) is int:
        return -EXACT_IN_FLOAT_MAX <= value <= EXACT_IN_FLOAT_MAX
    if plain is int and type(value) is int:
        return INT64_MIN <= value <= INT64_MAX
    return type(value) is plain


def _struct_column(values: list[Any], kind: pa.DataType) -> tuple[pa.Array, set[int]]:
    names = {field.name for field in kind}
    misfits = {
        row
        for row, value in enumerate(values)
        if value is not None and not (type(value) is dict and value.keys() <= names)
    }
    while True:
        kept = [None if row in misfits else value for row, value in enumerate(values)]
        children, found = [], set()
        for field in kind:
            child, wrong = _column([None if each is None else each.get(field.name) for each in kept], field.type)
            children.append(child)
            found |= wrong
        if not found:
            mask = pa.array([each is None for each in kept], pa.bool_())
            return pa.StructArray.from_arrays(children, fields=list(kind), mask=mask), misfits
        misfits |= found  # the object goes as a whole: half of one would be a lie


def _list_column(values: list[Any], kind: pa.DataType) -> tuple[pa.Array, set[int]]:
    misfits = {row for row, value in enumerate(values) if value is not None and type(value) is not list}
    while True:
        kept = [None if row in misfits else value for row, value in enumerate(values)]
        rows = [row for row, each in enumerate(kept) for _ in each or ()]
        elements, wrong = _column([element for each in kept for element in each or ()], kind.value_type)
        if not wrong:
            ends = [0]
            for each in kept:
                ends.append(ends[-1] + len(each or ()))
            mask = pa.array([each is None for each in kept], pa.bool_())
            lists = pa.ListArray.from_arrays(pa.array(ends, pa.int32()), elements, type=kind, mask=mask)
            return lists, misfits
        misfits |= {rows[element] for element in wrong}
