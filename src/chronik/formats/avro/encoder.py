"""The encoder of Avro values: a schema is compiled to a function that checks a value and appends its bytes."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from uuid import UUID

from chronik.formats.avro.defaults import encode_default
from chronik.formats.avro.layout import (
    TIME_UNITS_NS,
    TIMESTAMP_UNITS_NS,
    UTC_TIMESTAMPS,
    Form,
    Layout,
    parse_writer_schema,
    plan_layout,
)
from chronik.formats.avro.schema import (
    DEPTH_MAX,
    Array,
    AvroField,
    AvroRecord,
    Enum,
    Fixed,
    Kind,
    LogicalType,
    Map,
    Type,
    Union,
    find_logical_type,
    read_decimal,
)
from chronik.formats.codec import JsonForm, UnsupportedSchemaError, WriterSchema, format_single_float
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

    from chronik.formats.avro.column_encoder import WriteColumn

Write = Callable[[bytearray, Any], None]
"""A function that appends an encoded value; it raises UnencodableValueError for a value of another type."""

CHUNK_ROWS: Final = 32 * 1024
"""Rows that are encoded at the same time. Their intermediate results stay in the processor's cache."""

_DOUBLE: Final = struct.Struct("<d")
_SINGLE: Final = struct.Struct("<f")
_DURATION: Final = struct.Struct("<III")
_DURATION_FIELDS: Final = ("months", "days", "milliseconds")


class AvroEncoder:
    """An encoder of values with an Avro schema. Columns have the types that `AvroDecoder` returns, or narrower ones."""

    message_indexes: tuple[int, ...] = ()

    def __init__(self, schema: WriterSchema) -> None:
        """Compile a schema.

        Raises:
            UnsupportedSchemaError: The schema is invalid.
        """
        self._type, self._references = parse_writer_schema(schema)
        self._forms = _FormCompiler()
        self._write = self._forms.compile(self._type)
        self._layout: Layout | None = None
        self._write_arrow: Write | None = None
        self._write_columns: dict[pa.DataType, WriteColumn | None] = {}

    def encode_value(self, value: JsonForm) -> bytes:
        """Encode a value in its JSON form as a payload. See `ValueEncoder`."""
        out = bytearray()
        self._write(out, value)
        return bytes(out)

    def encode_column(self, column: pa.Array) -> list[bytes | None]:
        """Encode the elements of an Arrow array as payloads. See `ValueEncoder`."""
        import pyarrow as pa

        from chronik.formats.avro.column_encoder import ROWS_MIN, UnsupportedColumnError, compile_column

        if self._layout is None:
            self._layout = plan_layout(self._type, self._references)
        if column.type not in self._write_columns:
            self._write_columns[column.type] = compile_column(self._layout, column.type)
        write = self._write_columns[column.type]
        encoded: list[bytes | None] = []
        for start in range(0, len(column), CHUNK_ROWS):
            chunk = column.slice(start, CHUNK_ROWS)
            if write is not None and len(chunk) >= ROWS_MIN:
                try:
                    encoded += _write_chunk(chunk, write)
                    continue
                except (UnsupportedColumnError, pa.ArrowInvalid):
                    pass  # the encoder of single values finds out whether there is an error
            encoded += self._encode_one_by_one(chunk, self._layout, start)
        return encoded

    def _encode_one_by_one(self, column: pa.Array, layout: Layout, start: int) -> list[bytes | None]:
        if self._write_arrow is None:
            self._write_arrow = _ArrowCompiler(self._forms).compile(layout)
        write = self._write_arrow
        encoded: list[bytes | None] = []
        for index, value in enumerate(column.to_pylist(), start):
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


def _write_chunk(column: pa.Array, write: WriteColumn) -> list[bytes | None]:
    if not column.null_count:
        return write(column).to_pylist()  # type: ignore[no-any-return]
    present = iter(write(column.filter(column.is_valid())).to_pylist())
    return [next(present) if is_valid else None for is_valid in column.is_valid().to_pylist()]


class _FormCompiler:
    """A compiler of functions that write values in their JSON forms. The types may be recursive."""

    def __init__(self) -> None:
        self._records: dict[int, Write] = {}
        self._depth = 0

    def compile(self, type_: Type) -> Write:
        """Return the function that writes the JSON form of a type.

        Raises:
            UnsupportedSchemaError: The type is nested too deeply.
        """
        self._depth += 1
        if self._depth > DEPTH_MAX:
            raise UnsupportedSchemaError(f"the Avro schema is nested more than {DEPTH_MAX} levels deep")
        try:
            return self._compile(type_)
        finally:
            self._depth -= 1

    def _compile(self, type_: Type) -> Write:
        if isinstance(type_, AvroRecord):
            if id(type_) not in self._records:
                fields: list[_FieldWriter] = []
                self._records[id(type_)] = _write_record(fields)
                fields += [_FieldWriter(field, self.compile(field.type)) for field in type_.fields]
            return self._records[id(type_)]
        if isinstance(type_, Union):
            return self._compile_union(type_)
        if isinstance(type_, Array):
            return _write_array(self.compile(type_.items))
        if isinstance(type_, Map):
            return _write_map(self.compile(type_.values))
        return _compile_scalar(type_, to_bytes, is_arrow=False)

    def _compile_union(self, union: Union) -> Write:
        compiled = [
            _describe_branch(position, branch, self.compile(branch)) for position, branch in enumerate(union.branches)
        ]
        null = next((each.position for each in compiled if each.name == Kind.NULL), None)
        others = [each for each in compiled if each.position != null]
        return (
            _write_optional(null, others[0].position, others[0].write)
            if len(others) == 1
            else _write_union(null, others)
        )


class _ArrowCompiler:
    """A compiler of functions that write Python objects from Arrow arrays."""

    def __init__(self, forms: _FormCompiler) -> None:
        self._forms = forms
        self._records: dict[int, Write] = {}

    def compile(self, layout: Layout) -> Write:
        """Return the function that writes values with a layout."""
        match layout.form:
            case Form.STRUCT:
                if id(layout) not in self._records:
                    writes = zip(layout.type.fields, map(self.compile, layout.children), strict=True)
                    self._records[id(layout)] = _write_record([_FieldWriter(field, write) for field, write in writes])
                return self._records[id(layout)]
            case Form.OPTIONAL:
                return _write_optional(layout.null_branch, layout.branch, self.compile(layout.children[0]))
            case Form.LIST:
                return _write_array(self.compile(layout.children[0]))
            case Form.MAP:
                return _write_map(self.compile(layout.children[0]), is_arrow=True)
            case Form.JSON_TEXT:
                return _write_json_text(self._forms.compile(layout.type))
            case _:
                return _compile_scalar(layout.type, _check_bytes, is_arrow=True)


class _FieldWriter:
    """The name of a field and the function that writes its values."""

    __slots__ = ("_default", "_field", "has_default", "name", "write")

    def __init__(self, field: AvroField, write: Write) -> None:
        self._field = field
        self._default: bytes | None = None
        self.name = field.name
        self.write = write
        self.has_default = field.has_default

    def get_default(self) -> bytes:
        """Return the encoded default value."""
        if self._default is None:  # encoded on first use, because the default values of nested records may be large
            self._default = encode_default(self._field)
            if self._default is None:
                raise UnencodableValueError(f"the default value of the field {self.name!r} is invalid")
        return self._default


def _write_record(fields: Sequence[_FieldWriter]) -> Write:
    def write_record(out: bytearray, value: Any) -> None:
        if type(value) is not dict:
            raise build_type_error("an object", value)
        for field in fields:
            name = field.name
            try:
                if field.has_default and name not in value:
                    out += field.get_default()
                else:
                    field.write(out, value.get(name))
            except UnencodableValueError as error:
                error.path.append(f".{name}")
                raise
        if len(value) > len(fields) or not value.keys() <= {field.name for field in fields}:
            unknown = ", ".join(map(repr, sorted(value.keys() - {field.name for field in fields})))
            raise UnencodableValueError(f"the schema has no field {unknown}")

    return write_record


def _compile_scalar(type_: Type, convert_bytes: Callable[[Any], bytes], *, is_arrow: bool) -> Write:
    """Return the function that writes a type that consists of no other types."""
    logical = _compile_logical(type_)
    if logical is not None:
        return logical
    if isinstance(type_, Enum):
        return _write_enum(type_.symbols)
    if isinstance(type_, Fixed):
        return _write_fixed(type_.size, convert_bytes)
    if type_.kind is Kind.BYTES:
        return lambda out, value: _write_with_length(out, convert_bytes(value))
    if type_.kind is Kind.FLOAT:
        return lambda out, value: out.extend(_SINGLE.pack(to_single_float(value, is_exact=is_arrow)))
    return _WRITE_PRIMITIVE[type_.kind]


def _compile_logical(type_: Type) -> Write | None:
    """Return the function that writes a logical type, or None if the type has none."""
    logical_type = find_logical_type(type_)
    match logical_type:
        case None | LogicalType.BIG_DECIMAL:
            return None
        case LogicalType.DECIMAL:
            return _write_decimal(*read_decimal(type_), type_.size if isinstance(type_, Fixed) else None)
        case LogicalType.UUID:
            return _write_uuid_text if type_.kind is Kind.STRING else _write_uuid_bytes
        case LogicalType.DURATION:
            return _write_duration
        case LogicalType.DATE:
            return _write_number(to_days, 32)
        case LogicalType.TIME_MILLIS | LogicalType.TIME_MICROS:
            unit_ns = TIME_UNITS_NS[logical_type]
            return _write_number(lambda value: to_time_of_day(value, unit_ns), 32 if type_.kind is Kind.INT else 64)
        case _:
            unit_ns, is_utc = TIMESTAMP_UNITS_NS[logical_type], logical_type in UTC_TIMESTAMPS
            return _write_number(lambda value: to_timestamp(value, unit_ns, is_utc=is_utc), 64)


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


def _write_with_length(out: bytearray, data: bytes) -> None:
    write_zigzag(out, len(data))
    out += data


def _check_bytes(value: Any) -> bytes:
    if not isinstance(value, bytes):
        raise build_type_error("binary", value)
    return value


def _write_string(out: bytearray, value: Any) -> None:
    _write_with_length(out, to_utf8(value))


_WRITE_PRIMITIVE: Final[dict[Kind, Write]] = {
    Kind.NULL: _write_null,
    Kind.BOOLEAN: _write_boolean,
    Kind.INT: _write_int,
    Kind.LONG: _write_long,
    Kind.DOUBLE: _write_double,
    Kind.STRING: _write_string,
}


def _write_number(convert: Callable[[Any], int], bits: int) -> Write:
    """Return a function for a logical type. It accepts the underlying number as well, as in Avro's JSON encoding."""

    def write(out: bytearray, value: Any) -> None:
        write_zigzag(out, to_int(value if type(value) is int else convert(value), bits, "the type"))

    return write


def _write_decimal(precision: int, scale: int, size: int | None) -> Write:
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


def _write_fixed(size: int, convert: Callable[[Any], bytes]) -> Write:
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


def _write_map(write_value: Write, *, is_arrow: bool = False) -> Write:
    def write(out: bytearray, value: Any) -> None:
        if is_arrow and isinstance(value, list):
            items = value  # pairs
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


class _BranchWriter(NamedTuple):
    """A branch of a union, and the function that writes its values."""

    position: int
    name: str
    """Name of the branch in Avro's JSON encoding: the type, or the full name of a named type."""
    write: Write
    is_formatted: bool
    """Whether the type is a date, time or timestamp, whose JSON forms are text."""
    has_fraction: bool
    """Whether the type is a decimal, whose JSON forms have digits after the point."""


def _describe_branch(position: int, branch: Type, write: Write) -> _BranchWriter:
    logical_type = find_logical_type(branch)
    is_formatted = logical_type is not None and branch.kind in (Kind.INT, Kind.LONG)
    has_fraction = logical_type is LogicalType.DECIMAL and read_decimal(branch)[1] > 0
    return _BranchWriter(position, branch.full_name, write, is_formatted, has_fraction)


def _find_inexact_branches(value: Any) -> Sequence[str]:
    """Return the types of a union that a value matches only if no other type does."""
    if isinstance(value, str):
        return ("bytes", "fixed")
    if type(value) is int:
        return ("float", "double")
    if not isinstance(value, float | Decimal):
        return ()
    inexact = ["int", "long"]  # text of integers has no decimal point, and -0.0 is not an integer
    if not _is_exact_single(value):
        inexact.append("float")
    if isinstance(value, Decimal) and Decimal(repr(float(value))) != value:
        inexact.append("double")
    return inexact


def _is_exact_single(value: float | Decimal) -> bool:
    """Return whether a number is the JSON form of a float32."""
    try:
        return format_single_float(_SINGLE.unpack(_SINGLE.pack(value))[0]) == float(value)
    except OverflowError:
        return False


def _write_union(null: int | None, branches: Sequence[_BranchWriter]) -> Write:
    by_name = {branch.name: branch for branch in branches}

    def write_branch(out: bytearray, branch: _BranchWriter, value: Any) -> UnencodableValueError | None:
        start = len(out)
        try:
            write_zigzag(out, branch.position)
            branch.write(out, value)
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
            if name in by_name and write_branch(out, by_name[name], inner) is None:
                return
        inexact = _find_inexact_branches(value)
        is_text, is_integer = isinstance(value, str), type(value) is int

        def is_inexact(branch: _BranchWriter) -> bool:
            is_misread = (branch.is_formatted and not is_text) or (branch.has_fraction and is_integer)
            return is_misread or branch.name in inexact

        for branch in sorted(branches, key=is_inexact):  # stable: otherwise the first match wins
            if write_branch(out, branch, value) is None:
                return
        raise build_type_error(f"one of {', '.join(by_name)}", value)

    return write
