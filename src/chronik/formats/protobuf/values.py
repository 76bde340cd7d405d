"""The conversion of single Protobuf values from dicts (see `wire`) to JSON forms and Arrow values."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping, Sequence
from datetime import date
from decimal import Decimal
from typing import Any, Final

from chronik.formats.codec import (
    MICROSECONDS_MAX,
    MICROSECONDS_MIN,
    JsonForm,
    UndecodableValueError,
    encode_json,
    format_float,
    format_single_float,
    format_timestamp,
)
from chronik.formats.decoded_size import ValueBudget
from chronik.formats.protobuf.layout import (
    LIST_TYPE,
    STRUCT_TYPE,
    ColumnForm,
    FieldLayout,
    find_special_form,
    to_decimal,
)
from chronik.formats.protobuf.types import FieldType, MessageType

Values = Mapping[str, Any]

NANOSECONDS: Final = 1_000_000_000
_SECONDS_MIN: Final = MICROSECONDS_MIN // 1_000_000
_SECONDS_MAX: Final = MICROSECONDS_MAX // 1_000_000


class Unfit:
    """A value that its Arrow type cannot store: what the array contains instead, and the rest in its JSON form."""

    __slots__ = ("leftover", "stored")

    def __init__(self, stored: Any, leftover: JsonForm) -> None:
        self.stored = stored
        self.leftover = leftover


# JSON forms


def build_form(message: MessageType, values: Values) -> dict[str, JsonForm]:
    """Return the JSON form of a message.

    Raises:
        UndecodableValueError: A required field is missing.
    """
    check_required(message, values)
    return {field.name: build_field_form(field, values.get(field.name)) for field in message.fields}


def check_required(message: MessageType, values: Values) -> None:
    for field in message.required:
        if field.name not in values:
            raise UndecodableValueError(f"required field {field.name} of {message.full_name} is missing")


def build_field_form(field: FieldType, value: Any) -> JsonForm:
    """Return the JSON form of a field, or of its default value if `value` is None."""
    if field.is_map:
        assert field.message is not None
        key_field, value_field = field.message.by_name["key"], field.message.by_name["value"]
        return {
            format_key(key_field, entry.get("key")): build_map_value_form(value_field, entry.get("value"))
            for entry in value or ()
        }
    if field.is_repeated:
        return [build_element_form(field, element) for element in value or ()]
    if value is None:
        if field.message is not None or (field.has_presence and not field.has_explicit_default):
            return None
        value = None if field.oneof is not None else field.default
    return None if value is None else build_element_form(field, value)


def build_map_value_form(field: FieldType, value: Any) -> JsonForm:
    """Return the JSON form of a value in a map. An absent one is the default of its type."""
    if value is None:
        value = {} if field.message is not None else field.default
    return build_element_form(field, value)


def format_key(field: FieldType, value: Any) -> str:
    """Return the key of a map as a string."""
    if value is None:
        value = field.default
    return ("true" if value else "false") if field.kind == "bool" else str(value)


def build_element_form(field: FieldType, value: Any) -> JsonForm:
    """Return the JSON form of a value of a field's type."""
    match field.kind:
        case "bytes":
            return base64.b64encode(value).decode()
        case "float":
            return format_single_float(value)
        case "double":
            return format_float(value)
        case "uint64" | "fixed64":
            return Decimal(value)
    if field.enum is not None:
        return field.enum.names.get(value, value)
    if field.message is None:
        return value
    message = field.message
    form = find_special_form(message, field)
    if form is None:
        return build_form(message, value)
    return build_special_form(message, form, field, value)


def build_special_form(message: MessageType, form: ColumnForm, field: FieldType, value: Values) -> JsonForm:
    """Return the JSON form of a message with a special meaning."""
    match form:
        case ColumnForm.WRAPPER:
            inner = message.fields[0]
            return build_element_form(inner, value.get(inner.name, inner.default))
        case ColumnForm.TIMESTAMP:
            text = _format_timestamp(value)
        case ColumnForm.DATE:
            found = read_date(value)
            text = None if found is None else found.isoformat()
        case ColumnForm.TIME:
            text = format_time(value)
        case ColumnForm.DECIMAL:
            number = _read_decimal(field, value)
            return _build_plain_form(message, value) if number is None else number
        case _:
            return _build_json(message, value)
    # A value that the text cannot represent has the form of an ordinary message.
    return _build_plain_form(message, value) if text is None else text


def _build_plain_form(message: MessageType, value: Values) -> dict[str, JsonForm]:
    return {field.name: build_field_form(field, value.get(field.name)) for field in message.fields}


def _format_timestamp(value: Values) -> str | None:
    seconds, nanos = value.get("seconds", 0), value.get("nanos", 0)
    if not _SECONDS_MIN <= seconds <= _SECONDS_MAX or not 0 <= nanos < NANOSECONDS:
        return None
    if nanos % 1000 == 0:
        return format_timestamp(seconds * 1_000_000 + nanos // 1000, is_utc=True)
    text = format_timestamp(seconds * 1_000_000, is_utc=True)
    assert text is not None
    return f"{text[:-1]}.{nanos:09}Z"


def read_date(value: Values) -> date | None:
    """Return a `google.type.Date`, or None for one without a year, month or day."""
    try:
        return date(value.get("year", 0), value.get("month", 0), value.get("day", 0))
    except (ValueError, OverflowError):
        return None


def format_time(value: Values) -> str | None:
    """Return a `google.type.TimeOfDay` with 0, 3, 6 or 9 fractional digits, or None for an invalid one."""
    hours, minutes, seconds, nanos = (value.get(name, 0) for name in ("hours", "minutes", "seconds", "nanos"))
    if not (0 <= hours < 24 and 0 <= minutes < 60 and 0 <= seconds < 60 and 0 <= nanos < NANOSECONDS):
        return None
    text = f"{hours:02}:{minutes:02}:{seconds:02}"
    if not nanos:
        return text
    return f"{text}.{nanos:09}".removesuffix("000").removesuffix("000")


def _read_decimal(field: FieldType, value: Values) -> Decimal | None:
    """Return a decimal with the scale of its field, or None if it does not fit."""
    assert field.precision_and_scale is not None
    precision, scale = field.precision_and_scale
    data = value.get("value", b"")
    if len(data) > 16 or value.get("scale", 0) != scale:
        return None
    unscaled = int.from_bytes(data, "big", signed=True)
    return to_decimal(data, scale) if abs(unscaled) < 10**precision else None


def _build_json(message: MessageType, value: Values) -> JsonForm:
    """Return the value of a message that represents a JSON value."""
    if message.full_name == STRUCT_TYPE:
        entry = message.by_name["fields"].message
        assert entry is not None
        inner = entry.by_name["value"].message
        assert inner is not None
        return {each.get("key", ""): _build_json(inner, each.get("value", {})) for each in value.get("fields", ())}
    if message.full_name == LIST_TYPE:
        inner = message.by_name["values"].message
        assert inner is not None
        return [_build_json(inner, each) for each in value.get("values", ())]
    for name in ("string_value", "bool_value"):
        if name in value:
            return value[name]
    if "number_value" in value:
        number = value["number_value"]
        return int(number) if number.is_integer() and abs(number) < 2**53 else format_float(number)
    for name in ("struct_value", "list_value"):
        if name in value:
            nested = message.by_name[name].message
            assert nested is not None
            return _build_json(nested, value[name])
    return None


# Arrow values

ToArrow = Callable[[Any], Any]
"""A function that converts a value to a Python object for an Arrow array, or to `Unfit`."""


def compile_struct(message: MessageType, layouts: Sequence[FieldLayout], budget: ValueBudget) -> ToArrow:
    """Return the function that converts messages to structs. It counts the size of a value in `budget`."""
    fields = [(layout.field, layout.field.name, _compile_field(layout, budget)) for layout in layouts]

    def convert(values: Values) -> Any:
        check_required(message, values)
        stored: dict[str, Any] = {}
        leftovers: dict[str, JsonForm] = {}
        for field, name, convert_field in fields:
            value = values.get(name)
            if value is None and not field.is_repeated:
                if field.message is None and field.oneof is None:
                    is_null = field.has_presence and not field.has_explicit_default
                    value = None if is_null else field.default
                if value is None:
                    stored[name] = None
                    continue
            converted = convert_field(value)
            if type(converted) is Unfit:
                leftovers[name] = converted.leftover
                converted = converted.stored
            stored[name] = converted
        return Unfit(stored, leftovers) if leftovers else stored

    return convert


def _compile_field(layout: FieldLayout, budget: ValueBudget) -> ToArrow:
    if layout.is_map:
        return _compile_map(layout, budget)
    convert = compile_element(layout, budget)
    if not layout.is_list:
        return convert
    field = layout.field

    def convert_list(elements: Any) -> Any:
        budget.take(len(elements or ()) * layout.element_bytes)
        converted = [convert(element) for element in elements or ()]
        if any(type(each) is Unfit for each in converted):
            return Unfit(None, build_field_form(field, elements))
        return converted

    return convert_list


def _compile_map(layout: FieldLayout, budget: ValueBudget) -> ToArrow:
    key_field, value_layout = layout.children[0].field, layout.children[1]
    value_field = value_layout.field
    convert = compile_element(value_layout, budget)

    def convert_map(entries: Any) -> Any:
        budget.take(len(entries or ()) * layout.element_bytes)
        stored: dict[str, Any] = {}
        leftovers: dict[str, JsonForm] = {}
        for entry in entries or ():
            key = format_key(key_field, entry.get("key"))
            value = entry.get("value")
            if value is None:
                value = {} if value_field.message is not None else value_field.default
            converted = convert(value)
            leftovers.pop(key, None)
            if type(converted) is Unfit:
                leftovers[key] = converted.leftover
                converted = converted.stored
            stored[key] = converted
        items = list(stored.items())
        return Unfit(items, leftovers) if leftovers else items

    return convert_map


def compile_element(layout: FieldLayout, budget: ValueBudget) -> ToArrow:
    """Return the function that converts single values of a field, or elements of a repeated one.

    It counts the size of text in `budget`.
    """
    field = layout.field
    match layout.form:
        case ColumnForm.STRUCT:
            assert field.message is not None
            return compile_struct(field.message, layout.children, budget)
        case ColumnForm.WRAPPER:
            inner = layout.children[0].field
            convert = compile_element(layout.children[0], budget)
            return lambda value: convert(value.get(inner.name, inner.default))
        case ColumnForm.JSON_TEXT:
            return lambda value: _encode_text(field, value, budget)
        case ColumnForm.UNSIGNED_LONG:
            return Decimal
        case ColumnForm.ENUM:
            assert field.enum is not None
            names = field.enum.names

            def convert_enum(value: int) -> Any:
                name = names.get(value)
                if name is None:
                    return Unfit(None, value)
                budget.take(len(name))
                return name

            return convert_enum
        case ColumnForm.TIMESTAMP:
            return lambda value: _fit(field, value, _to_microseconds(value))
        case ColumnForm.DATE:
            return lambda value: _fit(field, value, read_date(value))
        case ColumnForm.TIME:
            return lambda value: _fit(field, value, format_time(value))
        case ColumnForm.DECIMAL:
            return lambda value: _fit(field, value, _read_decimal(field, value))
        case _:
            return lambda value: value


def _encode_text(field: FieldType, value: Any, budget: ValueBudget) -> str:
    form = build_element_form(field, value)
    budget.check_json(form)
    text = encode_json(form).decode()
    budget.take(len(text))
    return text


def _fit(field: FieldType, value: Any, stored: Any) -> Any:
    return Unfit(None, build_element_form(field, value)) if stored is None else stored


def _to_microseconds(value: Values) -> int | None:
    seconds, nanos = value.get("seconds", 0), value.get("nanos", 0)
    if not _SECONDS_MIN <= seconds <= _SECONDS_MAX or not 0 <= nanos < NANOSECONDS or nanos % 1000:
        return None
    return int(seconds * 1_000_000 + nanos // 1000)
