"""The decoder of single Avro values: a type is compiled to a function that reads a value from a payload."""

from __future__ import annotations

import base64
import struct
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any, Final, NamedTuple
from uuid import UUID

from chronik.escaping import escape, truncate_text
from chronik.formats.avro.layout import Form, Layout, select_form
from chronik.formats.avro.schema import (
    DEPTH_MAX,
    DURATION_BYTES,
    INT_MAX,
    INT_MIN,
    UUID_BYTES,
    Array,
    AvroRecord,
    Fixed,
    Kind,
    LogicalType,
    Map,
    Type,
    Union,
    find_logical_type,
    iter_types,
    read_decimal,
)
from chronik.formats.avro.schema import Enum as EnumType
from chronik.formats.codec import (
    JsonForm,
    UndecodableValueError,
    UnsupportedSchemaError,
    encode_json,
    format_date,
    format_decimal,
    format_float,
    format_single_float,
    format_timestamp,
)
from chronik.formats.decoded_size import ValueBudget
from chronik.varint import VarintTooLongError, decode_zigzag, read_varint

_VARINT_BYTES_MAX: Final = 10

RECORD_DEPTH_MAX: Final = 100
"""Maximum nesting of records in a value. Values of recursive types may be nested as deeply as they are long."""

EMPTY_VALUES_MAX: Final = 10_000
"""Maximum values per payload that take no bytes. An array of them may have 2**63 items in 10 bytes."""

DECIMAL_BYTES_MAX: Final = 4096
"""Maximum bytes of a decimal. Formatting takes time that is quadratic in the length."""

PATH_CHARACTERS_MAX: Final = 500
"""Maximum characters of a path in an error message."""

KEY_SLOT_BYTES: Final = 4
"""Bytes that a column takes per key of a map, besides its characters."""

_DOUBLE: Final = struct.Struct("<d")
_SINGLE: Final = struct.Struct("<f")
_DURATION: Final = struct.Struct("<III")
DURATION_FIELDS: Final = ("months", "days", "milliseconds")

_NANOSECONDS_PER_SECOND: Final = 1_000_000_000
NANOSECONDS_PER_DAY: Final = 86_400 * _NANOSECONDS_PER_SECOND


class AvroReadError(UndecodableValueError):
    """A payload that does not match its schema, at a path."""

    def __init__(self, problem: str) -> None:
        super().__init__(problem)
        self.problem = problem
        self.path: list[str] = []
        """Names and indexes that lead to the wrong part of the value, innermost first."""

    def __str__(self) -> str:
        # Keys of maps may be of any length, and contain line breaks.
        path = escape(truncate_text("".join(reversed(self.path)).removeprefix("."), PATH_CHARACTERS_MAX))
        return f"{path}: {self.problem}" if path else self.problem


class Payload:
    """A payload and the position up to which it was read."""

    __slots__ = ("data", "depth", "empty_values", "end", "position")

    def __init__(self, data: bytes, position: int = 0, end: int | None = None) -> None:
        self.data = data
        self.position = position
        self.end = len(data) if end is None else end
        self.depth = 0
        self.empty_values = 0


Read = Callable[[Payload], Any]
"""A function that reads a value. It raises AvroReadError if the payload does not contain one of its type."""


class Leftover(NamedTuple):
    """The result of reading a value that its Arrow type cannot store without loss."""

    form: JsonForm
    """The JSON form of the part that does not fit; see `codec.DecodedColumn.leftovers`."""
    value: Any
    """The rest of the value."""


def read_payload(read: Read, data: bytes) -> Any:
    """Read the value of a whole payload.

    Raises:
        UndecodableValueError: The payload does not consist of one value.
    """
    payload = Payload(data)
    try:
        value = read(payload)
    except RecursionError:
        raise AvroReadError("the value is nested too deeply") from None
    if payload.position != payload.end:
        raise AvroReadError(f"{payload.end - payload.position} bytes follow the value")
    return value


# Scalars


def _read_slice(payload: Payload, length: int) -> bytes:
    start = payload.position
    end = start + length
    if end > payload.end:
        raise AvroReadError(f"the payload ends within a value: expected {length} bytes, got {payload.end - start}")
    payload.position = end
    return payload.data[start:end]


def read_long(payload: Payload) -> int:
    """Read a zigzag varint of up to 64 bits."""
    try:
        raw, position = read_varint(payload.data, payload.position, _VARINT_BYTES_MAX)
    except VarintTooLongError:
        raise AvroReadError("a number exceeds 64 bits") from None
    except IndexError:
        raise AvroReadError("the payload ends within a number") from None
    if position > payload.end:
        raise AvroReadError("the payload ends within a number")
    if raw >> 64:
        raise AvroReadError("a number exceeds 64 bits")
    payload.position = position
    return decode_zigzag(raw)


def _read_int(payload: Payload) -> int:
    value = read_long(payload)
    if not INT_MIN <= value <= INT_MAX:
        raise AvroReadError(f"{value} is out of range for int")
    return value


def _read_null(payload: Payload) -> None:
    payload.empty_values += 1
    if payload.empty_values > EMPTY_VALUES_MAX:
        raise AvroReadError(f"the payload has more than {EMPTY_VALUES_MAX} values without content")


def _read_boolean(payload: Payload) -> bool:
    byte = _read_slice(payload, 1)[0]
    if byte > 1:
        raise AvroReadError(f"{byte} is not a boolean")
    return byte == 1


def _read_double(payload: Payload) -> float:
    value: float = _DOUBLE.unpack(_read_slice(payload, 8))[0]
    return value


def _read_single(payload: Payload) -> float:
    value: float = _SINGLE.unpack(_read_slice(payload, 4))[0]
    return value


def _read_bytes(payload: Payload) -> bytes:
    length = read_long(payload)
    if length < 0:
        raise AvroReadError(f"{length} is not a length")
    return _read_slice(payload, length)


def _read_string(payload: Payload) -> str:
    try:
        return _read_bytes(payload).decode()
    except UnicodeDecodeError as error:
        raise AvroReadError(f"a string is not valid UTF-8: {error.reason}") from None


def _read_fixed(size: int) -> Read:
    def read(payload: Payload) -> bytes:
        if not size:
            _read_null(payload)
        return _read_slice(payload, size)

    return read


def _read_enum(symbols: Sequence[str]) -> Read:
    def read(payload: Payload) -> str:
        index = read_long(payload)
        if not 0 <= index < len(symbols):
            raise AvroReadError(f"the enum has no symbol {index}")
        return symbols[index]

    return read


def format_time(units: int, unit_ns: int) -> str | None:
    """Return the JSON form of a time of day, with 0, 3 or 6 fractional digits, or None if it is not one."""
    nanoseconds = units * unit_ns
    if not 0 <= nanoseconds < NANOSECONDS_PER_DAY:
        return None
    seconds, rest = divmod(nanoseconds, _NANOSECONDS_PER_SECOND)
    text = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    if not rest:
        return text
    return f"{text}.{rest // 1000:06}" if rest % 1_000_000 else f"{text}.{rest // 1_000_000:03}"


def format_nanoseconds(nanoseconds: int, *, is_utc: bool) -> str:
    """Return the JSON form of a timestamp in nanoseconds since 1970, with 9 fractional digits."""
    seconds, rest = divmod(nanoseconds, _NANOSECONDS_PER_SECOND)
    text = format_timestamp(seconds * 1_000_000, is_utc=False)
    return f"{text}.{rest:09}{'Z' if is_utc else ''}"


def _read_unscaled(read_data: Read) -> Read:
    def read(payload: Payload) -> int:
        data = read_data(payload)
        if len(data) > DECIMAL_BYTES_MAX:
            raise AvroReadError(f"a decimal has {len(data)} bytes, expected at most {DECIMAL_BYTES_MAX}")
        return int.from_bytes(data, "big", signed=True)

    return read


def _read_duration(payload: Payload) -> dict[str, int]:
    numbers = _DURATION.unpack(_read_slice(payload, DURATION_BYTES))
    return dict(zip(DURATION_FIELDS, numbers, strict=True))


def _read_uuid(payload: Payload) -> str:
    return str(UUID(bytes=_read_slice(payload, UUID_BYTES)))


# Blocks of arrays and maps


def _read_blocks(payload: Payload, read_item: Callable[[Payload, int], None]) -> None:
    """Read the items of an array or map; the function gets the index of the item."""
    total = 0
    while True:
        count = read_long(payload)
        if count < 0:
            count = -count
            read_long(payload)  # the bytes of the block
        if count == 0:
            return
        if count > payload.end - payload.position + EMPTY_VALUES_MAX:
            raise AvroReadError(f"a block of {count} items is longer than the payload")
        for index in range(total, total + count):
            read_item(payload, index)
        total += count


# JSON forms


class FormCompiler:
    """A compiler of functions that read values in their JSON forms. The types may be recursive."""

    def __init__(self) -> None:
        self._records: dict[int, Read] = {}
        self._fields: list[list[tuple[str, Read]]] = []
        self._depth = 0

    def break_cycles(self) -> None:
        """Release the compiled functions, which must not be called any more: those of recursive types are cycles."""
        self._records.clear()
        for fields in self._fields:
            fields.clear()

    def compile(self, type_: Type) -> Read:
        """Return the function that reads the JSON form of a type.

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

    def _compile(self, type_: Type) -> Read:
        if isinstance(type_, AvroRecord):
            return self._compile_record(type_)
        if isinstance(type_, Union):
            return self._compile_union(type_)
        if isinstance(type_, Array):
            return _read_list(self.compile(type_.items))
        if isinstance(type_, Map):
            return _read_map(self.compile(type_.values))
        return _compile_scalar(type_)

    def _compile_record(self, record: AvroRecord) -> Read:
        if id(record) in self._records:
            return self._records[id(record)]
        fields: list[tuple[str, Read]] = []
        self._fields.append(fields)
        is_empty = not record.fields

        def read_record(payload: Payload) -> dict[str, JsonForm]:
            if is_empty:
                _read_null(payload)
            if payload.depth >= RECORD_DEPTH_MAX:
                raise AvroReadError(f"records are nested more than {RECORD_DEPTH_MAX} levels deep")
            payload.depth += 1
            value = {}
            name = ""
            try:
                for name, read in fields:
                    value[name] = read(payload)
            except AvroReadError as error:
                error.path.append(f".{name}")
                raise
            payload.depth -= 1
            return value

        self._records[id(record)] = read_record
        fields += [(field.name, self.compile(field.type)) for field in record.fields]
        return read_record

    def _compile_union(self, union: Union) -> Read:
        others = [branch for branch in union.branches if branch.kind is not Kind.NULL]
        branches = [None if branch.kind is Kind.NULL else self.compile(branch) for branch in union.branches]
        tags = _find_tags(others)
        names = frozenset(tags)

        def read_union(payload: Payload) -> JsonForm:
            index = read_long(payload)
            if not 0 <= index < len(branches):
                raise AvroReadError(f"the union has no branch {index}")
            read = branches[index]
            if read is None:
                return None
            value = read(payload)
            if len(others) == 1:
                return value
            name = union.branches[index].full_name
            return {name: value} if tags[name] or _needs_tag(value, union.branches[index], names) else value

        return read_union


_OBJECT_KINDS: Final = (Kind.RECORD, Kind.MAP)
_TEXT_KINDS: Final = (Kind.STRING, Kind.BYTES, Kind.ENUM, Kind.FIXED)


def _get_json_type(type_: Type) -> str:
    """Return the type that the forms of a type have in JSON."""
    form = select_form(type_) if type_.kind not in (*_OBJECT_KINDS, Kind.ARRAY) else None
    if type_.kind in _OBJECT_KINDS or form is Form.DURATION:
        return "object"
    if find_logical_type(type_) is LogicalType.DECIMAL:
        return "number"
    if type_.kind in _TEXT_KINDS or form in (Form.DATE, Form.TIME, Form.TIMESTAMP, Form.NANOSECOND_TIMESTAMP):
        return "string"
    return {Kind.BOOLEAN: "boolean", Kind.ARRAY: "array"}.get(type_.kind, "number")


def _find_tags(branches: Sequence[Type]) -> dict[str, bool]:
    """Return whether the values of each branch are tagged as in Avro's JSON encoding, such as `{"Order": {}}`.

    They are if another branch has the same type in JSON, unless both are numbers.
    """
    types = [_get_json_type(branch) for branch in branches]
    return {
        branch.full_name: json_type != "number" and types.count(json_type) > 1
        for branch, json_type in zip(branches, types, strict=True)
    }


def _needs_tag(value: JsonForm, branch: Type, names: frozenset[str]) -> bool:
    """Return whether a value that has no tag would be taken for one with a tag, or for one of another branch."""
    if isinstance(value, dict):
        return len(value) == 1 and not names.isdisjoint(value)
    # A number that is NaN or infinite, or a date or time that is out of range.
    return isinstance(value, str if _get_json_type(branch) == "number" else int) and not isinstance(value, bool)


def _read_list(read_item: Read) -> Read:
    def read(payload: Payload) -> list[JsonForm]:
        value: list[JsonForm] = []

        def append(payload: Payload, index: int) -> None:
            try:
                value.append(read_item(payload))
            except AvroReadError as error:
                error.path.append(f"[{index}]")
                raise

        _read_blocks(payload, append)
        return value

    return read


def _read_map(read_value: Read) -> Read:
    def read(payload: Payload) -> dict[str, JsonForm]:
        value: dict[str, JsonForm] = {}

        def insert(payload: Payload, _: int) -> None:
            key = _read_string(payload)
            try:
                value[key] = read_value(payload)
            except AvroReadError as error:
                error.path.append(f".{key}")
                raise

        _read_blocks(payload, insert)
        return value

    return read


def _compile_scalar(type_: Type) -> Read:
    """Return the function that reads the JSON form of a type that consists of no other types."""
    read = _get_raw_reader(type_)
    if find_logical_type(type_) is LogicalType.DECIMAL:
        scale = read_decimal(type_)[1]
        read_unscaled = _read_unscaled(read)
        return lambda payload: format_decimal(read_unscaled(payload), scale)
    form = select_form(type_)
    match form:
        case Form.UUID:
            return _read_uuid
        case Form.DURATION:
            return _read_duration
        case Form.DATE | Form.TIME | Form.TIMESTAMP | Form.NANOSECOND_TIMESTAMP:
            return _read_formatted_or_number(read, get_number_format(Layout(type_, form)))
    format_ = _FORMATS.get(type_.kind)
    return read if format_ is None else lambda payload: format_(read(payload))


def _get_raw_reader(type_: Type) -> Read:
    """Return the function that reads values of a type without its logical type."""
    if isinstance(type_, Fixed):
        return _read_fixed(type_.size)
    if isinstance(type_, EnumType):
        return _read_enum(type_.symbols)
    return _READ_PRIMITIVE[type_.kind]


def get_number_format(layout: Layout) -> Callable[[int], str | None]:
    """Return the function that formats a date, time or timestamp; it returns None for values out of range."""
    if layout.form is Form.DATE:
        return format_date
    unit_ns, is_utc = layout.unit_ns, layout.is_utc
    if layout.form is Form.TIME:
        return lambda units: format_time(units, unit_ns)
    if layout.form is Form.NANOSECOND_TIMESTAMP:
        return lambda units: format_nanoseconds(units, is_utc=is_utc)
    factor = unit_ns // 1000
    return lambda units: format_timestamp(units * factor, is_utc=is_utc)


def _read_formatted_or_number(read_number: Read, format_: Callable[[int], str | None]) -> Read:
    """Read a date, time or timestamp. One that is out of range has its number as JSON form."""

    def read(payload: Payload) -> str | int:
        number: int = read_number(payload)
        text = format_(number)
        return number if text is None else text

    return read


def _format_bytes(data: bytes) -> str:
    return base64.b64encode(data).decode()


_READ_PRIMITIVE: Final[dict[Kind, Read]] = {
    Kind.NULL: _read_null,
    Kind.BOOLEAN: _read_boolean,
    Kind.INT: _read_int,
    Kind.LONG: read_long,
    Kind.FLOAT: _read_single,
    Kind.DOUBLE: _read_double,
    Kind.BYTES: _read_bytes,
    Kind.STRING: _read_string,
}

_FORMATS: Final[dict[Kind, Callable[[Any], JsonForm]]] = {
    Kind.FLOAT: format_single_float,
    Kind.DOUBLE: format_float,
    Kind.BYTES: _format_bytes,
    Kind.FIXED: _format_bytes,
}
"""The functions that return the JSON forms of values, where they differ."""


# Python objects for Arrow arrays


class ArrowCompiler:
    """A compiler of functions that read values as Python objects from which an Arrow array can be built.

    The functions return a `Leftover` for a value that its Arrow type cannot store.
    """

    def __init__(self, forms: FormCompiler, budget: ValueBudget) -> None:
        """Create a compiler. The functions count the size of a value in `budget`."""
        self._forms = forms
        self._budget = budget
        self._records: dict[int, Read] = {}

    def compile(self, layout: Layout) -> Read:
        """Return the function that reads values with a layout."""
        match layout.form:
            case Form.STRUCT:
                if id(layout) not in self._records:
                    self._records[id(layout)] = self._compile_struct(layout)
                return self._records[id(layout)]
            case Form.OPTIONAL:
                return _read_optional(layout, self.compile(layout.children[0]))
            case Form.LIST:
                item = layout.children[0]
                read_item = self._count_slots(self.compile(item), item.slot_bytes)
                return _read_arrow_list(read_item, self._forms.compile(layout.type))
            case Form.MAP:
                value = layout.children[0]
                return _read_arrow_map(self._count_slots(self.compile(value), KEY_SLOT_BYTES + value.slot_bytes))
            case Form.JSON_TEXT:
                return read_json_text(layout.type, self._forms.compile(layout.type), self._budget)
            case Form.ENUM:
                return self._count_symbols(_compile_scalar(layout.type))
            case Form.DECIMAL:
                return _read_arrow_decimal(layout)
            case Form.DATE | Form.TIME | Form.TIMESTAMP | Form.NANOSECOND_TIMESTAMP:
                return _read_arrow_number(layout)
            case Form.FIXED | Form.BYTES | Form.FLOAT | Form.DOUBLE:
                return _get_raw_reader(layout.type)
            case _:
                return _compile_scalar(layout.type)

    def _count_slots(self, read: Read, slot_bytes: int) -> Read:
        take = self._budget.take

        def read_item(payload: Payload) -> Any:
            take(slot_bytes)
            return read(payload)

        return read_item

    def _count_symbols(self, read: Read) -> Read:
        take = self._budget.take

        def read_symbol(payload: Payload) -> str:
            symbol: str = read(payload)
            take(len(symbol))
            return symbol

        return read_symbol

    def _compile_struct(self, layout: Layout) -> Read:
        fields = [
            (field.name, self.compile(child)) for field, child in zip(layout.type.fields, layout.children, strict=True)
        ]

        def read_struct(payload: Payload) -> dict[str, Any] | Leftover:
            if payload.depth >= RECORD_DEPTH_MAX:
                raise AvroReadError(f"records are nested more than {RECORD_DEPTH_MAX} levels deep")
            payload.depth += 1
            value = {}
            leftovers = {}
            name = ""
            try:
                for name, read in fields:
                    value[name] = read(payload)
                    if type(value[name]) is Leftover:
                        leftovers[name], value[name] = value[name]
            except AvroReadError as error:
                error.path.append(f".{name}")
                raise
            payload.depth -= 1
            return Leftover(leftovers, value) if leftovers else value

        return read_struct


def read_json_text(type_: Type, read_form: Read, budget: ValueBudget) -> Read:
    """Return a function that reads a value as JSON text, or as None if it is null. It counts the text in `budget`."""
    text_per_byte = _find_text_per_byte(type_)

    def read(payload: Payload) -> str | None:
        start, empty_values = payload.position, payload.empty_values
        form = read_form(payload)
        if form is None:
            return None
        content = payload.position - start + payload.empty_values - empty_values
        if content * text_per_byte > budget.left:
            budget.check_json(form)
        text = encode_json(form).decode()
        budget.take(len(text))
        return text

    return read


_SCALAR_TEXT_MAX: Final = 64
"""Maximum characters of a value of a primitive type per byte of its payload, and of the punctuation around it."""


def _find_text_per_byte(root: Type) -> int:
    """Return the maximum size of the JSON of a value per byte, or per value without bytes, of its payload.

    Between two bytes of a payload are at most the names of all fields and branches, since types that contain
    themselves need bytes, and one symbol.
    """
    names = symbol = 0
    for type_ in iter_types(root):
        if isinstance(type_, AvroRecord):
            names += len(type_.full_name) + sum(len(field.name) for field in type_.fields) + 8 * len(type_.fields) + 8
        elif isinstance(type_, EnumType):
            names += len(type_.full_name)
            symbol = max(symbol, *map(len, type_.symbols), 0)
        elif isinstance(type_, Fixed):
            names += len(type_.full_name)
    return names + symbol + _SCALAR_TEXT_MAX


def _read_optional(layout: Layout, read_branch: Read) -> Read:
    branch, null_branch = layout.branch, layout.null_branch

    def read(payload: Payload) -> Any:
        index = read_long(payload)
        if index == branch:
            return read_branch(payload)
        if index == null_branch:
            return None
        raise AvroReadError(f"the union has no branch {index}")

    return read


def _read_arrow_list(read_item: Read, read_form: Read) -> Read:
    def read(payload: Payload) -> list[Any] | Leftover:
        value: list[Any] = []
        start, empty_values = payload.position, payload.empty_values
        has_leftover = False

        def append(payload: Payload, index: int) -> None:
            nonlocal has_leftover
            try:
                item = read_item(payload)
            except AvroReadError as error:
                error.path.append(f"[{index}]")
                raise
            has_leftover |= type(item) is Leftover
            value.append(item)

        _read_blocks(payload, append)
        if not has_leftover:
            return value
        payload.position, payload.empty_values = start, empty_values
        return Leftover(read_form(payload), None)

    return read


def _read_arrow_map(read_value: Read) -> Read:
    read_items = _read_map(read_value)

    def read(payload: Payload) -> list[tuple[str, Any]] | Leftover:
        items = read_items(payload)
        leftovers = {}
        for key, value in items.items():
            if type(value) is Leftover:
                leftovers[key], items[key] = value
        pairs = list(items.items())
        return Leftover(leftovers, pairs) if leftovers else pairs

    return read


def _read_arrow_decimal(layout: Layout) -> Read:
    read_unscaled = _read_unscaled(_get_raw_reader(layout.type))
    precision, scale = layout.precision_and_scale
    limit = 10**precision

    def read(payload: Payload) -> Decimal | Leftover:
        unscaled = read_unscaled(payload)
        form = format_decimal(unscaled, scale)
        return form if -limit < unscaled < limit else Leftover(form, None)

    return read


def _read_arrow_number(layout: Layout) -> Read:
    read_number = _get_raw_reader(layout.type)
    format_ = get_number_format(layout)
    is_text = layout.form in (Form.TIME, Form.NANOSECOND_TIMESTAMP)
    factor = layout.unit_ns // 1000 if layout.form is Form.TIMESTAMP else 1

    def read(payload: Payload) -> str | int | Leftover:
        number: int = read_number(payload)
        text = format_(number)
        if text is None:
            return Leftover(number, None)
        return text if is_text else number * factor

    return read
