"""The encoder of Avro values: a schema is compiled to a function that checks a value and appends its bytes."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Sequence
from enum import Enum, auto
from functools import cache, partial
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from chronik.formats.codec import JsonForm, UnsupportedSchemaError, WriterSchema
from chronik.formats.encoding import (
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
    write_zigzag,
)

if TYPE_CHECKING:
    import pyarrow as pa

Write = Callable[[bytearray, Any], None]
"""A function that appends an encoded value; it raises UnencodableValueError for a value of another type."""

SCHEMA_DEPTH_MAX: Final = 100

_DOUBLE: Final = struct.Struct("<d")
_SINGLE: Final = struct.Struct("<f")
_DURATION: Final = struct.Struct("<III")
_DURATION_FIELDS: Final = ("months", "days", "milliseconds")
_UNITS_NS: Final = {"millis": 1_000_000, "micros": 1000, "nanos": 1}


class _Source(Enum):
    """The form of the values to encode."""

    JSON = auto()
    ARROW = auto()
    """Python objects from an Arrow array. Values of types that a column has as JSON text are strings."""
    DEFAULT = auto()
    """Default values in a schema, where bytes are strings with the code points 0 to 255."""


class AvroEncoder:
    """An encoder of values with an Avro schema."""

    message_indexes: tuple[int, ...] = ()

    def __init__(self, schema: WriterSchema) -> None:
        """Compile a schema.

        Raises:
            UnsupportedSchemaError: The schema is invalid.
        """
        self._schema = schema
        self._write = _compile_schema(schema, _Source.JSON)
        self._write_arrow: Write | None = None

    def encode_value(self, value: JsonForm) -> bytes:
        """Encode a value in its JSON form as a payload. See `ValueEncoder`."""
        out = bytearray()
        self._write(out, value)
        return bytes(out)

    def encode_column(self, column: pa.Array) -> list[bytes | None]:
        """Encode the elements of an Arrow array as payloads. See `ValueEncoder`."""
        if self._write_arrow is None:
            self._write_arrow = _compile_schema(self._schema, _Source.ARROW)
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


def _compile_schema(schema: WriterSchema, source: _Source) -> Write:
    compiler = _Compiler(source)
    try:
        for reference in schema.references:
            compiler.compile(json.loads(reference.text))
        return compiler.compile(json.loads(schema.text))
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise UnsupportedSchemaError(f"invalid Avro schema: {error!r}") from None


class _Named:
    """A named type: its schema, and the function that writes it, which recursive types call before it is complete."""

    def __init__(self, name: str, schema: dict[str, Any]) -> None:
        self.name = name
        self.schema = schema
        self.write: Write | None = None

    def __call__(self, out: bytearray, value: Any) -> None:
        assert self.write is not None
        self.write(out, value)


class _Compiler:
    """A compiler of Avro schemas, which may refer to named types of earlier ones."""

    def __init__(self, source: _Source) -> None:
        self._source = source
        self._named: dict[str, _Named] = {}
        self._depth = 0

    def compile(self, schema: Any, namespace: str = "") -> Write:
        """Return the function that writes values with a schema."""
        self._depth += 1
        if self._depth > SCHEMA_DEPTH_MAX:
            raise UnsupportedSchemaError(f"invalid Avro schema: nested more than {SCHEMA_DEPTH_MAX} levels deep")
        try:
            return self._compile(schema, namespace)
        finally:
            self._depth -= 1

    def _compile(self, schema: Any, namespace: str) -> Write:
        if isinstance(schema, list):
            return self._compile_union(schema, namespace)
        if isinstance(schema, str):
            return (
                _WRITE_PRIMITIVE[schema](self._source) if schema in _WRITE_PRIMITIVE else self._find(schema, namespace)
            )
        kind = schema["type"]
        if isinstance(kind, list | dict):
            return self.compile(kind, namespace)
        logical = self._compile_logical(schema)
        if kind in ("record", "error", "enum", "fixed"):
            return self._compile_named(schema, namespace, logical)
        if logical is not None:
            return logical
        if kind == "array":
            return _write_array(self.compile(schema["items"], namespace))
        if kind == "map":
            return _write_map(self.compile(schema["values"], namespace))
        return self._compile(kind, namespace)

    def _find(self, name: str, namespace: str) -> Write:
        for full_name in (f"{namespace}.{name}", name) if namespace and "." not in name else (name,):
            if full_name in self._named:
                named = self._named[full_name]
                # A type inside of itself has no type in a table: columns have it as JSON text.
                is_recursive = named.write is None
                return _write_json_text(named) if is_recursive and self._source is _Source.ARROW else named
        raise UnsupportedSchemaError(f"invalid Avro schema: unknown type {name!r}")

    def _compile_named(self, schema: dict[str, Any], namespace: str, logical: Write | None) -> Write:
        name: str = schema["name"]
        if "." in name:
            namespace = name.rpartition(".")[0]
        else:
            namespace = schema.get("namespace", namespace) or ""
            name = f"{namespace}.{name}" if namespace else name
        named = self._named[name] = _Named(name, schema)
        if logical is not None:
            named.write = logical
        elif schema["type"] == "enum":
            named.write = _write_enum(schema["symbols"])
        elif schema["type"] == "fixed":
            named.write = _write_fixed(schema["size"], self._source)
        else:
            named.write = self._compile_record(schema["fields"], namespace)
        return named

    def _compile_record(self, fields: Sequence[dict[str, Any]], namespace: str) -> Write:
        compiled: list[tuple[str, Write, Callable[[], bytes] | None]] = []
        for field in fields:
            write = self.compile(field["type"], namespace)
            # Encoded on first use: encoding all of them would compile each type once per level that it is nested in.
            default = cache(partial(self._encode_default, field, namespace)) if "default" in field else None
            compiled.append((field["name"], write, default))
        names = {name for name, _, _ in compiled}

        def write_record(out: bytearray, value: Any) -> None:
            if type(value) is not dict:
                raise build_type_error("an object", value)
            for name, write, default in compiled:
                try:
                    if default is not None and name not in value:
                        out += default()
                    else:
                        write(out, value.get(name))
                except UnencodableValueError as error:
                    error.path.append(f".{name}")
                    raise
            if len(value) > len(compiled) or not value.keys() <= names:
                unknown = ", ".join(map(repr, sorted(value.keys() - names)))
                raise UnencodableValueError(f"the schema has no field {unknown}")

        return write_record

    def _encode_default(self, field: dict[str, Any], namespace: str) -> bytes:
        out = bytearray()
        _DefaultCompiler(self._named).compile(field["type"], namespace)(out, field["default"])
        return bytes(out)

    def _compile_logical(self, schema: dict[str, Any]) -> Write | None:
        """Return the function for a logical type, or None if the schema has none that applies to its type."""
        kind, logical = schema["type"], schema.get("logicalType")
        if not isinstance(logical, str) or self._source is _Source.DEFAULT:
            return None
        if logical == "decimal" and kind in ("bytes", "fixed"):
            return _compile_decimal(schema)
        if logical == "uuid" and (kind == "string" or (kind == "fixed" and schema["size"] == 16)):
            return _write_uuid_text if kind == "string" else _write_uuid_bytes
        if logical == "duration" and kind == "fixed" and schema["size"] == 12:
            return _write_duration
        if logical == "date" and kind == "int":
            return _write_number(to_days, 32)
        name, _, unit = logical.rpartition("-")
        unit_ns = _UNITS_NS.get(unit, 0)
        if name == "time" and unit_ns and kind == ("int" if unit == "millis" else "long"):
            return _write_number(lambda value: to_time_of_day(value, unit_ns), 32 if unit == "millis" else 64)
        if name in ("timestamp", "local-timestamp") and unit_ns and kind == "long":
            is_utc = name == "timestamp"
            return _write_number(lambda value: to_timestamp(value, unit_ns, is_utc=is_utc), 64)
        return None

    # Unions

    def _compile_union(self, branches: list[Any], namespace: str) -> Write:
        compiled = [(self._get_branch_name(each, namespace), self.compile(each, namespace)) for each in branches]
        null = next((index for index, (name, _) in enumerate(compiled) if name == "null"), None)
        others = [(index, name, write) for index, (name, write) in enumerate(compiled) if index != null]
        if len(others) == 1:
            return _write_optional(null, others[0][0], others[0][2])
        write_union = _write_union(null, others)
        return _write_json_text(write_union) if self._source is _Source.ARROW else write_union

    def _get_branch_name(self, schema: Any, namespace: str) -> str:
        """Return the name of a branch in Avro's JSON encoding: the type, or the full name of a named type."""
        if isinstance(schema, dict):
            if schema["type"] not in ("record", "error", "enum", "fixed"):
                return str(schema["type"])
            name: str = schema["name"]
            namespace = schema.get("namespace", namespace)
        elif schema in _WRITE_PRIMITIVE:
            return str(schema)
        else:
            name = schema
        return name if "." in name or not namespace else f"{namespace}.{name}"


class _DefaultCompiler(_Compiler):
    """A compiler of functions that write the default values of a schema."""

    def __init__(self, outer: dict[str, _Named]) -> None:
        super().__init__(_Source.DEFAULT)
        self._outer = outer

    def _encode_default(self, field: dict[str, Any], namespace: str) -> bytes:
        out = bytearray()
        _DefaultCompiler({**self._outer, **self._named}).compile(field["type"], namespace)(out, field["default"])
        return bytes(out)

    def _find(self, name: str, namespace: str) -> Write:
        for full_name in (f"{namespace}.{name}", name) if namespace and "." not in name else (name,):
            if full_name in self._named:
                return self._named[full_name]
            if full_name in self._outer:
                outer_namespace = full_name.rpartition(".")[0]
                return self.compile(self._outer[full_name].schema, outer_namespace)
        raise UnencodableValueError(f"unknown type {name!r}")


def _write_null(out: bytearray, value: Any) -> None:
    if value is not None:
        raise build_type_error("null", value)


def _write_boolean(out: bytearray, value: Any) -> None:
    if not isinstance(value, bool):
        raise build_type_error("a boolean", value)
    out.append(value)


def _write_int(out: bytearray, value: Any) -> None:
    write_zigzag(out, to_int(value, 32, "int"))


def _write_long(out: bytearray, value: Any) -> None:
    write_zigzag(out, to_int(value, 64, "long"))


def _write_double(out: bytearray, value: Any) -> None:
    out += _DOUBLE.pack(to_float(value))


def _write_single(source: _Source) -> Write:
    is_exact = source is _Source.ARROW

    def write(out: bytearray, value: Any) -> None:
        out += _SINGLE.pack(to_single_float(value, is_exact=is_exact))

    return write


def _write_with_length(out: bytearray, data: bytes) -> None:
    write_zigzag(out, len(data))
    out += data


def _write_bytes(source: _Source) -> Write:
    convert = _select_bytes_converter(source)
    return lambda out, value: _write_with_length(out, convert(value))


def _select_bytes_converter(source: _Source) -> Callable[[Any], bytes]:
    return {_Source.JSON: to_bytes, _Source.ARROW: _check_bytes, _Source.DEFAULT: _parse_default_bytes}[source]


def _check_bytes(value: Any) -> bytes:
    if not isinstance(value, bytes):
        raise build_type_error("binary", value)
    return value


def _parse_default_bytes(value: Any) -> bytes:
    try:
        return str(value).encode("latin-1")
    except UnicodeEncodeError:
        raise build_type_error("a string with code points up to 255", value) from None


def _write_string(out: bytearray, value: Any) -> None:
    _write_with_length(out, to_utf8(value))


_WRITE_PRIMITIVE: Final[dict[str, Callable[[_Source], Write]]] = {
    "null": lambda source: _write_null,
    "boolean": lambda source: _write_boolean,
    "int": lambda source: _write_int,
    "long": lambda source: _write_long,
    "float": _write_single,
    "double": lambda source: _write_double,
    "bytes": _write_bytes,
    "string": lambda source: _write_string,
}


def _write_number(convert: Callable[[Any], int], bits: int) -> Write:
    """Return a function for a logical type. It accepts the underlying number as well, as in Avro's JSON encoding."""

    def write(out: bytearray, value: Any) -> None:
        write_zigzag(out, to_int(value if type(value) is int else convert(value), bits, "the type"))

    return write


def _compile_decimal(schema: dict[str, Any]) -> Write | None:
    precision, scale, size = schema.get("precision"), schema.get("scale", 0), schema.get("size")
    if not isinstance(precision, int) or not isinstance(scale, int) or not 0 <= scale <= precision or precision < 1:
        return None  # not valid: the underlying type applies

    def write(out: bytearray, value: Any) -> None:
        unscaled = to_unscaled(value, precision, scale)
        length = size or (unscaled if unscaled >= 0 else ~unscaled).bit_length() // 8 + 1
        try:
            data = unscaled.to_bytes(length, "big", signed=True)
        except OverflowError:
            raise UnencodableValueError(f"{value} is out of range for fixed({length})") from None
        if size is None:
            _write_with_length(out, data)
        else:
            out += data

    return write


def _parse_uuid(value: Any) -> UUID:
    try:
        return UUID(value)
    except (ValueError, AttributeError, TypeError):
        raise build_type_error("a UUID", value) from None


def _write_uuid_text(out: bytearray, value: Any) -> None:
    _parse_uuid(value)
    _write_string(out, value)


def _write_uuid_bytes(out: bytearray, value: Any) -> None:
    out += _parse_uuid(value).bytes


def _write_duration(out: bytearray, value: Any) -> None:
    if not isinstance(value, dict) or value.keys() != set(_DURATION_FIELDS):
        raise build_type_error(f"an object with {', '.join(_DURATION_FIELDS)}", value)
    out += _DURATION.pack(*(to_int(value[name], 32, name, is_signed=False) for name in _DURATION_FIELDS))


def _write_enum(symbols: Sequence[str]) -> Write:
    encoded: dict[str, bytes] = {}
    for index, symbol in enumerate(symbols):
        out = bytearray()
        write_zigzag(out, index)
        encoded[symbol] = bytes(out)

    def write(out: bytearray, value: Any) -> None:
        if not isinstance(value, str) or value not in encoded:
            raise build_type_error(f"one of {', '.join(encoded)}", value)
        out += encoded[value]

    return write


def _write_fixed(size: int, source: _Source) -> Write:
    convert = _select_bytes_converter(source)

    def write(out: bytearray, value: Any) -> None:
        data = convert(value)
        if len(data) != size:
            raise UnencodableValueError(f"expected {size} bytes, got {len(data)}")
        out += data

    return write


def _write_array(write_item: Write) -> Write:
    def write(out: bytearray, value: Any) -> None:
        if not isinstance(value, list):
            raise build_type_error("a list", value)
        if value:
            write_zigzag(out, len(value))
            for index, item in enumerate(value):
                try:
                    write_item(out, item)
                except UnencodableValueError as error:
                    error.path.append(f"[{index}]")
                    raise
        out.append(0)

    return write


def _write_map(write_value: Write) -> Write:
    def write(out: bytearray, value: Any) -> None:
        if isinstance(value, list) and all(isinstance(each, tuple) for each in value):
            items = value  # a map of an Arrow array
        elif isinstance(value, dict):
            items = list(value.items())
        else:
            raise build_type_error("an object", value)
        if items:
            write_zigzag(out, len(items))
            for key, item in items:
                _write_string(out, key)
                try:
                    write_value(out, item)
                except UnencodableValueError as error:
                    error.path.append(f".{key}")
                    raise
        out.append(0)

    return write


def _write_json_text(write_value: Write) -> Write:
    """Return a function that parses JSON text, which columns contain for types that tables cannot store."""

    def write(out: bytearray, value: Any) -> None:
        if value is None:
            write_value(out, None)
        elif isinstance(value, str):
            write_value(out, decode_json(value.encode()))
        else:
            raise build_type_error("JSON text", value)

    return write


def _write_optional(null: int | None, branch: int, write_value: Write) -> Write:
    null_index, index = bytearray(), bytearray()
    write_zigzag(index, branch)
    if null is not None:
        write_zigzag(null_index, null)

    def write(out: bytearray, value: Any) -> None:
        if value is None and null is not None:
            out += null_index
        else:
            out += index
            write_value(out, value)

    return write


_INEXACT_BRANCHES: Final = {int: ("float", "double"), str: ("bytes", "fixed")}
"""Types of a union that a number or a string matches only if no other type does."""


def _write_union(null: int | None, branches: Sequence[tuple[int, str, Write]]) -> Write:
    by_name = {name: (index, write) for index, name, write in branches}

    def write_branch(out: bytearray, index: int, write_value: Write, value: Any) -> UnencodableValueError | None:
        start = len(out)
        try:
            write_zigzag(out, index)
            write_value(out, value)
        except UnencodableValueError as error:
            del out[start:]
            return error
        return None

    def write(out: bytearray, value: Any) -> None:
        if value is None and null is not None:
            write_zigzag(out, null)
            return
        if isinstance(value, dict) and len(value) == 1:  # Avro's JSON encoding, such as {"string": "text"}
            ((name, inner),) = value.items()
            if name in by_name and write_branch(out, *by_name[name], inner) is None:
                return
        inexact = _INEXACT_BRANCHES.get(type(value), ())
        ordered = sorted(branches, key=lambda branch: branch[1] in inexact)  # stable: otherwise the first match wins
        for index, _, write_value in ordered:
            if write_branch(out, index, write_value, value) is None:
                return
        raise build_type_error(f"one of {', '.join(by_name)}", value)

    return write
