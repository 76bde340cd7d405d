"""The wire format of Protobuf: reading and writing of messages as dicts, with the semantics of Google's parsers.

A dict contains the fields that are present, by name. Enum values are numbers; a map is the list of its entries, in the
order of the data. Unknown fields are skipped, and so are known ones with a wrong wire type.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any, Final

from chronik.errors import ChronikError
from chronik.formats.protobuf.types import ENUM, GROUP, MESSAGE, FieldType, MessageType
from chronik.varint import write_varint

DEPTH_MAX: Final = 100
"""Maximum nesting depth of messages and groups in a value, as in Google's parsers."""

VALUES_MAX: Final = 1_000_000
"""Maximum fields of all messages in a value, including absent fields. Each takes about 100 bytes in a JSON form, but a
message takes only two bytes on the wire if all its fields are absent."""

VARINT, FIXED64, LENGTH, START_GROUP, END_GROUP, FIXED32 = range(6)
"""Wire types."""

_MASK64: Final = 2**64 - 1
_TAG_BYTES_MAX: Final = 5


class WireFormatError(ChronikError):
    """Data that is not a Protobuf message of the expected type."""


def read_message(message: MessageType, data: bytes, *, depth: int = 0) -> dict[str, Any]:
    """Read a message that fills the data. `depth` is that of the messages in which it is nested.

    Raises:
        WireFormatError: The data is not valid.
    """
    values: dict[str, Any] = {}
    _read_fields(message, data, 0, len(data), depth, values, _Budget(), group=0)
    return values


class _Budget:
    """The number of fields that the messages in a value may have."""

    __slots__ = ("left",)

    def __init__(self) -> None:
        self.left = VALUES_MAX

    def take(self, message: MessageType) -> None:
        self.left -= len(message.fields)
        if self.left < 0:
            raise WireFormatError(f"the messages have more than {VALUES_MAX} fields, including absent ones")


def _read_fields(
    message: MessageType,
    data: bytes,
    at: int,
    end: int,
    depth: int,
    values: dict[str, Any],
    budget: _Budget,
    *,
    group: int,
) -> int:
    """Read fields into `values` up to the end of the data or of the group, and return the position after it."""
    budget.take(message)
    by_number = message.by_number
    while at < end:
        start = at
        tag = data[at]
        at += 1
        if tag > 0x7F:
            tag, at = read_varint(data, start, end)
            if tag > 0xFFFFFFFF or at - start > _TAG_BYTES_MAX:
                raise WireFormatError(f"invalid tag at byte {start}")
        number, wire_type = tag >> 3, tag & 7
        if wire_type == END_GROUP:
            if number != group or not group:
                raise WireFormatError(f"unexpected end of a group at byte {start}")
            return at
        field = by_number.get(number)
        if field is None or not number:
            at = _skip_field(data, at, end, number, wire_type, depth)
            continue
        kind = field.kind
        if wire_type == LENGTH and kind in (MESSAGE, "string", "bytes"):
            size, at = read_varint(data, at, end)
            stop = at + size
            if stop > end:
                raise WireFormatError(f"field {field.name} is truncated")
            if kind == MESSAGE:
                _read_nested(message, field, data, at, stop, depth, values, budget, group=0)
            else:
                _store(message, field, _read_text(field, data[at:stop]), values)
            at = stop
        elif wire_type == _WIRE_TYPES[kind]:
            if kind == GROUP:
                at = _read_nested(message, field, data, at, end, depth, values, budget, group=number)
            else:
                value, at = _read_number(kind, data, at, end)
                _store_number(message, field, value, values)
        elif wire_type == LENGTH and field.is_repeated and kind != GROUP:
            size, at = read_varint(data, at, end)
            stop = at + size
            if stop > end:
                raise WireFormatError(f"field {field.name} is truncated")
            while at < stop:
                value, at = _read_number(kind, data, at, stop)
                _store_number(message, field, value, values)
        else:
            at = _skip_field(data, at, end, number, wire_type, depth)
    if group:
        raise WireFormatError("a group is truncated")
    return at


def _read_nested(
    message: MessageType,
    field: FieldType,
    data: bytes,
    at: int,
    end: int,
    depth: int,
    values: dict[str, Any],
    budget: _Budget,
    *,
    group: int,
) -> int:
    if depth + 1 > DEPTH_MAX:
        raise WireFormatError(f"messages are nested more than {DEPTH_MAX} levels deep")
    nested_type = field.message
    assert nested_type is not None
    if field.is_repeated:
        nested: dict[str, Any] = {}
        at = _read_fields(nested_type, data, at, end, depth + 1, nested, budget, group=group)
        if nested.pop(_UNKNOWN, None) is None or not field.is_map:
            values.setdefault(field.name, []).append(nested)
        return at
    _clear_oneof(message, field, values)
    # Occurrences of a message are merged.
    nested = values.setdefault(field.name, {})
    at = _read_fields(nested_type, data, at, end, depth + 1, nested, budget, group=group)
    nested.pop(_UNKNOWN, None)
    return at


_UNKNOWN: Final = ""
"""Key that marks a message with an unknown number of a closed enum: an entry of a map with one is an unknown field."""


def _store(message: MessageType, field: FieldType, value: Any, values: dict[str, Any]) -> None:
    if field.is_repeated:
        values.setdefault(field.name, []).append(value)
    else:
        _clear_oneof(message, field, values)
        values[field.name] = value


def _store_number(message: MessageType, field: FieldType, value: Any, values: dict[str, Any]) -> None:
    if field.enum is not None and field.enum.is_closed and value not in field.enum.names:
        values[_UNKNOWN] = True
    else:
        _store(message, field, value, values)


def _clear_oneof(message: MessageType, field: FieldType, values: dict[str, Any]) -> None:
    if field.oneof is not None:
        for other in message.oneofs[field.oneof]:
            if other is not field:
                values.pop(other.name, None)


def _read_text(field: FieldType, data: bytes) -> str | bytes:
    if field.kind == "bytes":
        return data
    try:
        return data.decode()
    except UnicodeDecodeError:
        # Parsers of proto2 accept any bytes. There is no text for them, so they are an error here, as in proto3.
        raise WireFormatError(f"field {field.name} is not valid UTF-8") from None


def read_varint(data: bytes, at: int, end: int) -> tuple[int, int]:
    """Return an unsigned 64-bit number, and the position after it.

    It does not call `chronik.varint.read_varint`, which would take 1.2 to 1.6 times as long.
    """
    value = shift = 0
    start = at
    while at < end and shift < 70:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & _MASK64, at
        shift += 7
    raise WireFormatError(f"invalid number at byte {start}")


_DOUBLE: Final = struct.Struct("<d")
_SINGLE: Final = struct.Struct("<f")
_FIXED: Final[Mapping[str, struct.Struct]] = {
    "double": _DOUBLE,
    "float": _SINGLE,
    "fixed64": struct.Struct("<Q"),
    "sfixed64": struct.Struct("<q"),
    "fixed32": struct.Struct("<I"),
    "sfixed32": struct.Struct("<i"),
}

_WIRE_TYPES: Final[Mapping[str, int]] = {
    **dict.fromkeys(("bool", "int32", "int64", "uint32", "uint64", "sint32", "sint64", ENUM), VARINT),
    **dict.fromkeys(("double", "fixed64", "sfixed64"), FIXED64),
    **dict.fromkeys(("string", "bytes", MESSAGE), LENGTH),
    **dict.fromkeys(("float", "fixed32", "sfixed32"), FIXED32),
    GROUP: START_GROUP,
}


def get_wire_type(kind: str) -> int:
    """Return the wire type of a kind of field, if it is not packed."""
    return _WIRE_TYPES[kind]


def _read_number(kind: str, data: bytes, at: int, end: int) -> tuple[Any, int]:
    fixed = _FIXED.get(kind)
    if fixed is not None:
        if at + fixed.size > end:
            raise WireFormatError(f"a number of type {kind} is truncated")
        return fixed.unpack_from(data, at)[0], at + fixed.size
    value, at = read_varint(data, at, end)
    match kind:
        case "uint64":
            pass
        case "int64":
            value = value - (1 << 64) if value >> 63 else value
        case "bool":
            return value != 0, at
        case "sint64":
            value = (value >> 1) ^ -(value & 1)
        case "uint32":
            value &= 0xFFFFFFFF
        case "sint32":
            value &= 0xFFFFFFFF
            value = (value >> 1) ^ -(value & 1)
        case _:  # int32 and enums
            value &= 0xFFFFFFFF
            value = value - (1 << 32) if value >> 31 else value
    return value, at


def _skip_field(data: bytes, at: int, end: int, number: int, wire_type: int, depth: int) -> int:
    """Return the position after an unknown field."""
    groups: list[int] = []
    while True:
        if not number:
            raise WireFormatError(f"invalid tag before byte {at}")
        match wire_type:
            case 0:
                _, at = read_varint(data, at, end)
            case 1:
                at += 8
            case 2:
                size, at = read_varint(data, at, end)
                at += size
            case 3:
                groups.append(number)
                if depth + len(groups) > DEPTH_MAX:
                    raise WireFormatError(f"groups are nested more than {DEPTH_MAX} levels deep")
            case 4:
                if not groups or groups.pop() != number:
                    raise WireFormatError(f"unexpected end of a group before byte {at}")
            case 5:
                at += 4
            case _:
                raise WireFormatError(f"invalid wire type before byte {at}")
        if at > end:
            raise WireFormatError("an unknown field is truncated")
        if not groups:
            return at
        start = at
        tag, at = read_varint(data, at, end)
        if tag > 0xFFFFFFFF or at - start > _TAG_BYTES_MAX:
            raise WireFormatError(f"invalid tag at byte {start}")
        number, wire_type = tag >> 3, tag & 7


def write_message(message: MessageType, values: Mapping[str, Any]) -> bytes:
    """Write a message whose fields have valid values, in the order of the field numbers."""
    out = bytearray()
    for number in sorted(message.by_number):
        field = message.by_number[number]
        value = values.get(field.name)
        if value is None:
            continue
        if not field.is_repeated:
            write_field(out, field, value)
        elif field.is_packed:
            packed = bytearray()
            for element in value:
                _write_number(packed, field.kind, element)
            if packed:
                write_varint(out, field.number << 3 | LENGTH)
                write_varint(out, len(packed))
                out += packed
        else:
            for element in value:
                write_field(out, field, element)
    return bytes(out)


def write_field(out: bytearray, field: FieldType, value: Any) -> None:
    """Append one occurrence of a field with its tag."""
    kind = field.kind
    write_varint(out, field.number << 3 | _WIRE_TYPES[kind])
    if kind == GROUP:
        assert field.message is not None
        out += write_message(field.message, value)
        write_varint(out, field.number << 3 | END_GROUP)
    elif kind in (MESSAGE, "string", "bytes"):
        data = write_message(field.message, value) if field.message is not None else value
        data = data.encode() if isinstance(data, str) else data
        write_varint(out, len(data))
        out += data
    else:
        _write_number(out, kind, value)


def _write_number(out: bytearray, kind: str, value: Any) -> None:
    fixed = _FIXED.get(kind)
    if fixed is not None:
        out += fixed.pack(value)
    elif kind in ("sint32", "sint64"):
        write_varint(out, ((value << 1) ^ (value >> 63)) & _MASK64)
    else:
        write_varint(out, int(value) & _MASK64)
