"""Conversion of Arrow values to JSON forms, for records that do not take the fast path."""

from __future__ import annotations

import base64
import math
from collections.abc import Callable
from decimal import Context, Decimal
from typing import Any, Final

import msgspec
import pyarrow as pa

from chronik.formats.codec import JsonForm, format_float
from chronik.pipeline.tables.values.column_names import get_json_key
from chronik.pipeline.tables.values.sql_types import JSON_FORMAT, get_json_format

Convert = Callable[[Any], JsonForm]


def convert_to_json_forms(array: pa.Array, arrow_field: pa.Field) -> list[JsonForm]:
    """Return the JSON forms of an array's elements; nested fields have the keys of JSON objects.

    Numbers of type float32 have all digits of the equal float64. JSON text is `msgspec.Raw`.
    """
    convert = _compile(arrow_field)
    return [None if value is None else convert(value) for value in array.to_pylist()]


def _compile(arrow_field: pa.Field) -> Convert:
    data_type, is_a = arrow_field.type, pa.types
    if is_a.is_struct(data_type):
        return _compile_struct(data_type)
    if is_a.is_map(data_type):
        item = _compile(data_type.item_field)
        return lambda value: {key: None if each is None else item(each) for key, each in value}
    if is_a.is_list(data_type):
        element = _compile(data_type.value_field)
        return lambda value: [None if each is None else element(each) for each in value]
    if is_a.is_binary(data_type):
        return lambda value: base64.b64encode(value).decode()
    if is_a.is_floating(data_type):
        return _convert_float
    if is_a.is_decimal(data_type):
        return _convert_decimal
    if is_a.is_date(data_type):
        return lambda value: value.isoformat()
    if is_a.is_timestamp(data_type):
        return _compile_timestamp(has_zone=data_type.tz is not None)
    if is_a.is_string(data_type) and get_json_format(arrow_field) == JSON_FORMAT:
        return lambda value: msgspec.Raw(value.encode())
    return lambda value: value


def _compile_struct(data_type: pa.DataType) -> Convert:
    fields = [(each.name, get_json_key(each), _compile(each)) for each in data_type]

    def convert(value: dict[str, Any]) -> JsonForm:
        return {key: None if value[name] is None else inner(value[name]) for name, key, inner in fields}

    return convert


_EXACT: Final = Context(prec=100)


def _convert_decimal(value: Decimal) -> JsonForm:
    """Return the digits of a decimal, without zeros at the end, as columns of decimals restore it."""
    return msgspec.Raw(f"{value.normalize(_EXACT):f}".encode())


def _convert_float(value: float) -> JsonForm:
    return value if math.isfinite(value) else format_float(value)


def _compile_timestamp(*, has_zone: bool) -> Convert:
    suffix = "Z" if has_zone else ""

    def convert(value: Any) -> JsonForm:
        microsecond = value.microsecond
        timespec = "microseconds" if microsecond % 1000 else "milliseconds" if microsecond else "seconds"
        return value.replace(tzinfo=None).isoformat(timespec=timespec) + suffix

    return convert
