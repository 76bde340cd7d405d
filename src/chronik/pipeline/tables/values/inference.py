"""Type inference from JSON values, for columns that do not exist yet. Pure functions.

Strings stay strings even if they look like timestamps, because a wrong guess could not be corrected later.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa

JsonObject = Mapping[str, Any]
"""A decoded JSON object."""

INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1

DEPTH_MAX = 16
"""Maximum nesting of inferred types. Deeper objects stay JSON text, since few readers can unnest them."""


def infer_fields(objects: Iterable[JsonObject | None]) -> list[pa.Field]:
    """Return one field for each key with a known type, in order of occurrence.

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
