"""The default values of Avro schemas as JSON forms."""

from __future__ import annotations

import struct
from typing import Any, Final

from chronik.formats.avro.schema import (
    MISSING,
    Array,
    AvroField,
    AvroRecord,
    AvroSchemaError,
    Enum,
    Kind,
    Map,
    Steps,
    Type,
    Union,
    is_valid_default,
)
from chronik.formats.avro.values import FormCompiler, read_payload
from chronik.formats.codec import JsonForm, UndecodableValueError
from chronik.formats.encoding import write_zigzag

_DOUBLE: Final = struct.Struct("<d")
_SINGLE: Final = struct.Struct("<f")


class _InvalidDefaultError(Exception):
    """A default value that its type does not have."""


def find_default(field: AvroField) -> JsonForm:
    """Return the JSON form of a field's default value, or `MISSING` if it has none or an invalid one."""
    # Schemas write default values in another form than records. The bytes of the value lead from one to the other.
    encoded = encode_default(field)
    if encoded is None:
        return MISSING
    try:
        return read_payload(FormCompiler().compile(field.type), encoded)
    except UndecodableValueError:
        return MISSING


def encode_default(field: AvroField) -> bytes | None:
    """Return the payload of a field's default value, or None if it has none or an invalid one."""
    if not field.has_default:
        return None
    out = bytearray()
    try:
        _write(out, field.type, field.default, Steps())
    except (_InvalidDefaultError, AvroSchemaError):
        return None
    return bytes(out)


def _write(out: bytearray, type_: Type, value: Any, steps: Steps) -> None:
    if isinstance(type_, Union):
        _write_union(out, type_, value, steps)
        return
    if not is_valid_default(type_, value, steps):
        raise _InvalidDefaultError
    if isinstance(type_, AvroRecord):
        for field in type_.fields:
            _write(out, field.type, value.get(field.name, field.default), steps)
    elif isinstance(type_, Array):
        for item in value:
            write_zigzag(out, 1)  # each in a block of its own
            _write(out, type_.items, item, steps)
        out.append(0)
    elif isinstance(type_, Map):
        for key, item in value.items():
            write_zigzag(out, 1)
            _write_with_length(out, key.encode())
            _write(out, type_.values, item, steps)
        out.append(0)
    elif isinstance(type_, Enum):
        if value not in type_.symbols:
            raise _InvalidDefaultError
        write_zigzag(out, type_.symbols.index(value))
    else:
        _write_primitive(out, type_.kind, value)


def _write_union(out: bytearray, union: Union, value: Any, steps: Steps) -> None:
    for index, branch in enumerate(union.branches):
        if is_valid_default(branch, value, steps):
            write_zigzag(out, index)
            _write(out, branch, value, steps)
            return
    raise _InvalidDefaultError


def _write_with_length(out: bytearray, data: bytes) -> None:
    write_zigzag(out, len(data))
    out += data


def _write_primitive(out: bytearray, kind: Kind, value: Any) -> None:
    try:
        match kind:
            case Kind.BOOLEAN:
                out.append(value)
            case Kind.INT | Kind.LONG:
                write_zigzag(out, value)
            case Kind.FLOAT:
                out += _SINGLE.pack(value)
            case Kind.DOUBLE:
                out += _DOUBLE.pack(value)
            case Kind.STRING:
                _write_with_length(out, value.encode())
            case Kind.BYTES:
                _write_with_length(out, value.encode("latin-1"))
            case Kind.FIXED:
                out += value.encode("latin-1")
    except (UnicodeEncodeError, OverflowError):
        raise _InvalidDefaultError from None
