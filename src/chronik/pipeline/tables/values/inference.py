"""The types of JSON values, for columns that are still to be made. Pure.

Texts stay texts, even those that look like times: a guess that the next record proves wrong cannot be taken back.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa

Object = Mapping[str, Any]
"""A JSON object, decoded."""

INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1

DEPTH_MAX = 16
"""Objects within objects. Deeper ones stay JSON text: few readers can unfold them, and none enjoys it."""


def infer_fields(objects: Iterable[Object | None]) -> list[pa.Field]:
    """Returns one field for each key that has a type, in the order in which they turn up. Where values of a key
    disagree the first one counts, and the others are rescued; only whole and fractional numbers become one type."""
    kinds: dict[str, pa.DataType | None] = {}
    for each in objects:
        for name, value in (each or {}).items():
            kinds[name] = _joined(kinds.get(name), _type_of(value, DEPTH_MAX))
    return [pa.field(name, kind) for name, kind in kinds.items() if kind is not None]


def _type_of(value: Any, depth: int) -> pa.DataType | None:
    """Returns None for what has no type: null, empty lists and objects, numbers beyond 64 bits."""
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
            element = _joined(element, _type_of(each, depth - 1))
        return None if element is None else pa.list_(pa.field("element", element))
    if depth > 0 and isinstance(value, dict):
        kinds = {name: _type_of(each, depth - 1) for name, each in value.items()}
        return _struct(kinds)
    return None


def _joined(one: pa.DataType | None, other: pa.DataType | None) -> pa.DataType | None:
    if one is None or other is None or one == other:
        return one if one is not None else other
    if pa.types.is_struct(one) and pa.types.is_struct(other):
        kinds: dict[str, pa.DataType | None] = {field.name: field.type for field in one}
        for field in other:
            kinds[field.name] = _joined(kinds.get(field.name), field.type)
        return _struct(kinds)
    if pa.types.is_list(one) and pa.types.is_list(other):
        return pa.list_(pa.field("element", _joined(one.value_type, other.value_type)))
    if {one, other} == {pa.int64(), pa.float64()}:
        return pa.float64()
    return one


def _struct(kinds: Mapping[str, pa.DataType | None]) -> pa.DataType | None:
    typed = [pa.field(name, kind) for name, kind in kinds.items() if kind is not None]
    return pa.struct(typed) if typed else None
