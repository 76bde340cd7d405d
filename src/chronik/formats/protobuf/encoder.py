"""The encoder of Protobuf values: a message type is compiled to a function that checks a value and appends bytes."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from chronik.formats.codec import JsonForm, UnsupportedSchemaError, WriterSchema
from chronik.formats.encoding import (
    NANOSECONDS_PER_SECOND,
    UnencodableValueError,
    build_type_error,
    decode_json,
    to_bytes,
    to_days,
    to_float,
    to_int,
    to_single_float,
    to_time_of_day,
    to_timestamp,
    to_unscaled,
    to_utf8,
)
from chronik.formats.protobuf.layout import (
    LIST_TYPE,
    STRUCT_TYPE,
    ColumnForm,
    FieldLayout,
    find_special_form,
    load_message,
    plan_layouts,
)
from chronik.formats.protobuf.syntax import ProtoSyntaxError
from chronik.formats.protobuf.types import GROUP, MESSAGE, FieldType, MessageType, get_integer_size
from chronik.formats.protobuf.wire import DEPTH_MAX, END_GROUP, LENGTH, get_wire_type
from chronik.varint import write_varint

if TYPE_CHECKING:
    import pyarrow as pa

Write = Callable[[bytearray, Any], None]
"""A function that appends an encoded value; it raises UnencodableValueError for a value of another type."""

_MASK64: Final = 2**64 - 1
_DOUBLE: Final = struct.Struct("<d")
_SINGLE: Final = struct.Struct("<f")
_FIXED: Final = {
    "fixed32": struct.Struct("<I"),
    "sfixed32": struct.Struct("<i"),
    "fixed64": struct.Struct("<Q"),
    "sfixed64": struct.Struct("<q"),
}
_INTEGER_TEXT: Final = re.compile(r"-?[0-9]{1,20}")
_DURATION_TEXT: Final = re.compile(r"(-?)([0-9]{1,12})(?:\.([0-9]{1,9}))?s")
_DURATION_TYPE: Final = "google.protobuf.Duration"


class ProtobufEncoder:
    """An encoder of values of a Protobuf message type.

    Besides the JSON forms that the decoder returns, it accepts names and values of Protobuf's own JSON mapping: names
    of fields in camel case, integers in strings, and durations such as `1.5s`.
    """

    def __init__(self, schema: WriterSchema, message: str | Sequence[int] = ()) -> None:
        """Compile a message type of a schema, by its full name or its indexes; by default, the first one.

        Raises:
            UnsupportedSchemaError: The schema is invalid, or it has no such message type.
        """
        self._message, self._indexes = load_message(schema, message)
        try:
            self._write = _Compiler(is_arrow=False).compile_message(self._message)
        except ProtoSyntaxError as error:
            raise UnsupportedSchemaError(f"invalid Protobuf schema: {error}") from None
        self._write_arrow: Write | None = None

    @property
    def message_indexes(self) -> tuple[int, ...]:
        """The path to the message type. See `ValueEncoder`."""
        return self._indexes

    def encode_value(self, value: JsonForm) -> bytes:
        """Encode a value in its JSON form as a payload. See `ValueEncoder`."""
        out = bytearray()
        self._write(out, value)
        return bytes(out)

    def encode_column(self, column: pa.Array) -> list[bytes | None]:
        """Encode the elements of an Arrow array as payloads. See `ValueEncoder`."""
        if self._write_arrow is None:
            layouts = plan_layouts(self._message)
            self._write_arrow = _Compiler(is_arrow=True).compile_struct(self._message, layouts)
        write = self._write_arrow
        encoded: list[bytes | None] = []
        for index, value in enumerate(column.to_pylist()):
            if value is None:
                encoded.append(None)
                continue
            out = bytearray()
            try:
                write(out, value)
            except UnencodableValueError as error:
                error.path.append(f"[{index}]")
                raise
            encoded.append(bytes(out))
        return encoded


class _MessageWriter:
    """The function that writes a message type, which recursive types call before it is complete."""

    def __init__(self, compiler: _Compiler) -> None:
        self.write: Write | None = None
        self._compiler = compiler

    def __call__(self, out: bytearray, value: Any) -> None:
        assert self.write is not None
        compiler = self._compiler
        compiler.depth += 1
        try:
            if compiler.depth > DEPTH_MAX + 1:
                raise UnencodableValueError(f"messages are nested more than {DEPTH_MAX} levels deep")
            self.write(out, value)
        finally:
            compiler.depth -= 1


class _Compiler:
    """A compiler of functions that write messages from JSON forms, or from Python objects of Arrow arrays."""

    def __init__(self, *, is_arrow: bool) -> None:
        self._is_arrow = is_arrow
        self._writers: dict[int, _MessageWriter] = {}
        self.depth = 0
        """The nesting depth of the message that is being written."""

    # Messages

    def compile_message(self, message: MessageType) -> Write:
        """Return the function that writes a message in its JSON form."""
        writer = self._writers.get(id(message))
        if writer is None:
            writer = self._writers[id(message)] = _MessageWriter(self)
            pending = [(message, writer)]
            # Iterative, because types can refer to each other in chains of any length.
            while pending:
                current, unfinished = pending.pop()
                nested = [each.message for each in _iter_nested(current)]
                for each in nested:
                    if each is not None and id(each) not in self._writers:
                        self._writers[id(each)] = _MessageWriter(self)
                        pending.append((each, self._writers[id(each)]))
                unfinished.write = self.compile_struct(current, [None] * len(current.fields))
        return writer

    def compile_struct(self, message: MessageType, layouts: Sequence[FieldLayout | None]) -> Write:
        """Return the function that writes a message with layouts, or in its JSON form if they are None."""
        fields = sorted(zip(message.fields, layouts, strict=True), key=lambda pair: pair[0].number)
        writes = [(field.name, self._compile_field(field, layout)) for field, layout in fields]
        required = tuple(field.name for field in message.required)
        oneofs = [tuple(field.name for field in members) for members in message.oneofs.values() if len(members) > 1]
        names = frozenset(message.by_name)
        json_names = {_to_camel_case(name): name for name in message.by_name}

        def write_message(out: bytearray, value: Any) -> None:
            if type(value) is not dict:
                raise build_type_error("an object", value)
            if not value.keys() <= names:
                value = _rename_fields(value, names, json_names)
            for members in oneofs:
                present = [name for name in members if value.get(name) is not None]
                if len(present) > 1:
                    raise UnencodableValueError(f"{present[0]} and {present[1]} exclude each other")
            for name in required:
                if value.get(name) is None:
                    raise UnencodableValueError(f"required field {name} is missing")
            for name, write in writes:
                element = value.get(name)
                if element is not None:
                    try:
                        write(out, element)
                    except UnencodableValueError as error:
                        error.path.append(f".{name}")
                        raise

        return write_message

    def _compile_field(self, field: FieldType, layout: FieldLayout | None) -> Write:
        if field.is_map:
            return self._compile_map(field, layout)
        tag = _encode_tag(field.number, get_wire_type(field.kind))
        write_element = self._compile_element(field, layout)
        if field.is_packed:
            return _write_packed(field, write_element)
        if field.kind == MESSAGE:
            write = _write_nested(tag, write_element)
        else:
            end = _encode_tag(field.number, END_GROUP) if field.kind == GROUP else b""
            write = _write_tagged(tag, write_element, end)
        if field.is_repeated:
            return _write_list(write)
        return write if field.has_presence else _write_unless_default(write, len(tag), write_element, field)

    def _compile_map(self, field: FieldType, layout: FieldLayout | None) -> Write:
        message = field.message
        assert message is not None
        key_field, value_field = message.by_name["key"], message.by_name["value"]
        key_layout, value_layout = (None, None) if layout is None else layout.children
        key_tag = _encode_tag(1, get_wire_type(key_field.kind))
        value_tag = _encode_tag(2, get_wire_type(value_field.kind))
        write_key = self._compile_element(key_field, key_layout)
        write_content = self._compile_element(value_field, value_layout)
        is_message = value_field.message is not None
        write_nested = _write_nested(value_tag, write_content)

        def write_entry(out: bytearray, entry: tuple[str, Any]) -> None:
            out += key_tag
            write_key(out, _parse_key(key_field, entry[0]))
            if is_message:
                write_nested(out, entry[1])
            else:
                out += value_tag
                write_content(out, entry[1])

        write_delimited = _write_nested(_encode_tag(field.number, LENGTH), write_entry)

        def write(out: bytearray, value: Any) -> None:
            if type(value) is dict:
                items = list(value.items())
            elif isinstance(value, list) and all(isinstance(each, tuple) for each in value):
                items = value  # a map of an Arrow array
            else:
                raise build_type_error("an object", value)
            for key, element in items:
                try:
                    if element is None:
                        raise UnencodableValueError("a value of a map is null")
                    write_delimited(out, (key, element))
                except UnencodableValueError as error:
                    error.path.append(f".{key}")
                    raise

        return write

    # Elements

    def _compile_element(self, field: FieldType, layout: FieldLayout | None) -> Write:
        """Return the function that writes a single value of a field's type, without its tag or length."""
        message = field.message
        if message is None:
            return self._compile_scalar(field)
        if layout is not None and layout.form is ColumnForm.JSON_TEXT:
            write_json = self._compile_json_element(field, message)
            return _write_json_text(write_json)
        if layout is not None and layout.form is ColumnForm.STRUCT:
            return self.compile_struct(message, layout.children)
        return self._compile_json_element(field, message)

    def _compile_json_element(self, field: FieldType, message: MessageType) -> Write:
        special = find_special_form(message, field)
        match special:
            case None:
                write_message = self._compile_nested(message)
                return _write_duration(write_message) if message.full_name == _DURATION_TYPE else write_message
            case ColumnForm.WRAPPER:
                inner = message.fields[0]
                return self._compile_field(inner, None)
            case ColumnForm.JSON_TEXT:
                return self._compile_json_type(message)
        plain = self._compile_nested(message)
        fill = _SPECIAL_FIELDS[special]

        def write(out: bytearray, value: Any) -> None:
            # The decoder returns values that are beyond the text form as ordinary messages.
            plain(out, value if type(value) is dict else fill(field, value))

        return write

    def _compile_json_type(self, message: MessageType) -> Write:
        """Return the function that writes a JSON value as a `google.protobuf.Struct`, `Value` or `ListValue`."""
        if message.full_name == STRUCT_TYPE:
            return lambda out, value: _write_json_object(out, value, self.depth)
        if message.full_name == LIST_TYPE:
            return lambda out, value: _write_json_list(out, value, self.depth)
        return lambda out, value: _write_json_value(out, value, self.depth)

    def _compile_nested(self, message: MessageType) -> Write:
        if self._is_arrow:
            return _Compiler(is_arrow=False).compile_message(message)
        return self.compile_message(message)

    def _compile_scalar(self, field: FieldType) -> Write:
        kind = field.kind
        if field.enum is not None:
            return _write_enum(field)
        if kind == "bool":
            return _write_boolean
        if kind == "double":
            return _write_double
        if kind == "float":
            is_exact = self._is_arrow
            return lambda out, value: _append(out, _SINGLE.pack(to_single_float(value, is_exact=is_exact)))
        if kind == "string":
            return lambda out, value: _write_with_length(out, to_utf8(value))
        if kind == "bytes":
            convert = _check_bytes if self._is_arrow else to_bytes
            return lambda out, value: _write_with_length(out, convert(value))
        return _write_integer(kind)


def _iter_nested(message: MessageType) -> Sequence[FieldType]:
    """Return the fields whose types are ordinary messages, including those of map values."""
    nested = []
    for field in message.fields:
        inner = field
        if field.is_map:
            assert field.message is not None
            inner = field.message.by_name["value"]
        if inner.message is not None and find_special_form(inner.message, inner) is not ColumnForm.JSON_TEXT:
            nested.append(inner)
    return nested


def _to_camel_case(name: str) -> str:
    """Return the name of a field in Protobuf's JSON mapping."""
    first, *parts = name.split("_")
    return first + "".join(part[:1].upper() + part[1:] for part in parts)


def _rename_fields(value: dict[str, Any], names: frozenset[str], json_names: dict[str, str]) -> dict[str, Any]:
    renamed: dict[str, Any] = {}
    for key, element in value.items():
        name = key if key in names else json_names.get(key)
        if name is None or name in renamed:
            problem = "the message has no field" if name is None else "the value has twice the field"
            raise UnencodableValueError(f"{problem} {key!r}")
        renamed[name] = element
    return renamed


def _encode_tag(number: int, wire_type: int) -> bytes:
    tag = bytearray()
    write_varint(tag, number << 3 | wire_type)
    return bytes(tag)


def _append(out: bytearray, data: bytes) -> None:
    out += data


def _write_with_length(out: bytearray, data: bytes | bytearray) -> None:
    write_varint(out, len(data))
    out += data


def _write_tagged(tag: bytes, write_element: Write, end: bytes) -> Write:
    def write(out: bytearray, value: Any) -> None:
        out += tag
        write_element(out, value)
        out += end

    return write


def _write_nested(tag: bytes, write_content: Write) -> Write:
    def write(out: bytearray, value: Any) -> None:
        content = bytearray()
        write_content(content, value)
        out += tag
        _write_with_length(out, content)

    return write


def _write_list(write_element: Write) -> Write:
    def write(out: bytearray, value: Any) -> None:
        if not isinstance(value, list):
            raise build_type_error("a list", value)
        for index, element in enumerate(value):
            _write_at(write_element, out, element, index)

    return write


def _write_packed(field: FieldType, write_element: Write) -> Write:
    tag = _encode_tag(field.number, LENGTH)

    def write(out: bytearray, value: Any) -> None:
        if not isinstance(value, list):
            raise build_type_error("a list", value)
        if value:
            content = bytearray()
            for index, element in enumerate(value):
                _write_at(write_element, content, element, index)
            out += tag
            _write_with_length(out, content)

    return write


def _write_at(write: Write, out: bytearray, element: Any, index: int) -> None:
    try:
        if element is None:
            raise UnencodableValueError("an element of a list is null")
        write(out, element)
    except UnencodableValueError as error:
        error.path.append(f"[{index}]")
        raise


def _write_unless_default(write: Write, tag_bytes: int, write_scalar: Write, field: FieldType) -> Write:
    """Return a function that omits the default value of a field without presence."""
    default = bytearray()
    write_scalar(default, b"" if field.kind == "bytes" else field.default)

    def write_unless_default(out: bytearray, value: Any) -> None:
        start = len(out)
        write(out, value)
        if out[start + tag_bytes :] == default:
            del out[start:]

    return write_unless_default


def _write_json_text(write_value: Write) -> Write:
    """Return a function that parses JSON text, which columns contain for messages that they cannot store."""

    def write(out: bytearray, value: Any) -> None:
        if not isinstance(value, str):
            raise build_type_error("JSON text", value)
        write_value(out, decode_json(value.encode()))

    return write


# Scalars


def _write_boolean(out: bytearray, value: Any) -> None:
    if not isinstance(value, bool):
        raise build_type_error("a boolean", value)
    out.append(value)


def _write_double(out: bytearray, value: Any) -> None:
    out += _DOUBLE.pack(to_float(value))


def _check_bytes(value: Any) -> bytes:
    if not isinstance(value, bytes):
        raise build_type_error("binary", value)
    return value


def _write_integer(kind: str) -> Write:
    size = get_integer_size(kind)
    assert size is not None
    bits, is_signed = size
    fixed = _FIXED.get(kind)
    is_zigzag = kind in ("sint32", "sint64")

    def write(out: bytearray, value: Any) -> None:
        if isinstance(value, str) and _INTEGER_TEXT.fullmatch(value):
            value = int(value)  # as in Protobuf's JSON mapping
        number = to_int(value, bits, kind, is_signed=is_signed)
        if fixed is not None:
            out += fixed.pack(number)
        else:
            write_varint(out, ((number << 1) ^ (number >> 63) if is_zigzag else number) & _MASK64)

    return write


def _write_enum(field: FieldType) -> Write:
    enum = field.enum
    assert enum is not None

    def write(out: bytearray, value: Any) -> None:
        if isinstance(value, str):
            number = enum.numbers.get(value)
            if number is None:
                raise build_type_error(f"one of {', '.join(enum.numbers)}", value)
        else:
            number = to_int(value, 32, "enum")
            if enum.is_closed and number not in enum.names:
                raise build_type_error(f"one of {', '.join(enum.numbers)}", value)
        write_varint(out, number & _MASK64)

    return write


def _parse_key(field: FieldType, key: Any) -> Any:
    """Return the key of a map, which is a string in its JSON form."""
    if not isinstance(key, str):
        raise build_type_error("a string", key)
    if field.kind == "bool":
        if key not in ("true", "false"):
            raise build_type_error("true or false", key)
        return key == "true"
    return key


# Messages with a special meaning


def _write_duration(write_message: Write) -> Write:
    """Return a function that accepts text such as `1.5s`, as in Protobuf's JSON mapping."""

    def write(out: bytearray, value: Any) -> None:
        if isinstance(value, str):
            match = _DURATION_TEXT.fullmatch(value)
            if match is None:
                raise build_type_error("a duration such as 1.5s", value)
            sign = -1 if match[1] else 1
            value = {"seconds": sign * int(match[2]), "nanos": sign * int((match[3] or "").ljust(9, "0"))}
        write_message(out, value)

    return write


def _split_timestamp(field: FieldType, value: Any) -> dict[str, Any]:
    seconds, nanos = divmod(to_timestamp(value, 1, is_utc=True), NANOSECONDS_PER_SECOND)
    return {"seconds": seconds, "nanos": nanos}


def _split_date(field: FieldType, value: Any) -> dict[str, Any]:
    from datetime import date

    day = date.fromordinal(to_days(value) + date(1970, 1, 1).toordinal())
    return {"year": day.year, "month": day.month, "day": day.day}


def _split_time(field: FieldType, value: Any) -> dict[str, Any]:
    rest, nanos = divmod(to_time_of_day(value, 1), NANOSECONDS_PER_SECOND)
    return {"hours": rest // 3600, "minutes": rest // 60 % 60, "seconds": rest % 60, "nanos": nanos}


def _split_decimal(field: FieldType, value: Any) -> dict[str, Any]:
    assert field.precision_and_scale is not None
    precision, scale = field.precision_and_scale
    unscaled = to_unscaled(value, precision, scale)
    length = (unscaled if unscaled >= 0 else ~unscaled).bit_length() // 8 + 1
    data = unscaled.to_bytes(length, "big", signed=True)
    return {"value": data, "precision": len(str(abs(unscaled))), "scale": scale}


_SPECIAL_FIELDS: Final[dict[ColumnForm, Callable[[FieldType, Any], dict[str, Any]]]] = {
    ColumnForm.TIMESTAMP: _split_timestamp,
    ColumnForm.DATE: _split_date,
    ColumnForm.TIME: _split_time,
    ColumnForm.DECIMAL: _split_decimal,
}


def _write_json_object(out: bytearray, value: Any, depth: int) -> None:
    if type(value) is not dict:
        raise build_type_error("an object", value)
    for key, element in value.items():
        content = bytearray(b"\x0a")
        _write_with_length(content, to_utf8(key))
        nested = bytearray()
        _write_json_value(nested, element, depth + 2)
        content += b"\x12"
        _write_with_length(content, nested)
        out += b"\x0a"
        _write_with_length(out, content)


def _write_json_list(out: bytearray, value: Any, depth: int) -> None:
    if not isinstance(value, list):
        raise build_type_error("a list", value)
    for element in value:
        content = bytearray()
        _write_json_value(content, element, depth + 1)
        out += b"\x0a"
        _write_with_length(out, content)


def _write_json_value(out: bytearray, value: Any, depth: int) -> None:
    if depth > DEPTH_MAX:
        raise UnencodableValueError(f"messages are nested more than {DEPTH_MAX} levels deep")
    if value is None:
        out += b"\x08\x00"
    elif isinstance(value, bool):
        out += b"\x20\x01" if value else b"\x20\x00"
    elif isinstance(value, str):
        out += b"\x1a"
        _write_with_length(out, to_utf8(value))
    elif isinstance(value, dict | list):
        content = bytearray()
        is_object = isinstance(value, dict)
        (_write_json_object if is_object else _write_json_list)(content, value, depth + 1)
        out += b"\x2a" if is_object else b"\x32"
        _write_with_length(out, content)
    else:
        out += b"\x11" + _DOUBLE.pack(to_float(value))
