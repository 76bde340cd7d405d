"""The types of values that a JSON Schema describes: how columns store them, and their JSON forms.

A schema may accept values that its type cannot store, such as a string where numbers are usual. These are leftovers: a
type is a choice of storage, and no value is lost.
"""

from __future__ import annotations

import base64
import binascii
import math
import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date, datetime, time
from decimal import Decimal
from functools import cached_property
from itertools import accumulate, chain, repeat
from operator import itemgetter
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple

from chronik.formats.codec import (
    DAY_MAX,
    DAY_MIN,
    DEFAULT_KEY,
    EPOCH,
    FORMAT_KEY,
    JSON_TEXT,
    MICROSECONDS_MAX,
    MICROSECONDS_MIN,
    MICROSECONDS_PER_DAY,
    JsonForm,
    encode_json,
    format_date,
    format_decimal,
    format_timestamp,
)
from chronik.formats.encoding import (
    UnencodableValueError,
    build_type_error,
    decode_json,
    to_days,
    to_timestamp,
    to_unscaled,
)
from chronik.formats.json_schema.values import JsonValue

if TYPE_CHECKING:
    import pyarrow as pa

SCALAR_BYTES: Final = 16
"""The bytes that count per value, list or property, whether it is absent or not."""

INT64_MIN: Final = -(2**63)
INT64_MAX: Final = 2**63 - 1

FLOAT_DIGITS_MAX: Final = 767
"""Maximum significant digits of the exact decimal expansion of a float64."""

_DATE: Final = r"[0-9]{4}-[0-9]{2}-[0-9]{2}"
_TIMESTAMP: Final = (
    _DATE + r"T[0-2][0-9]:[0-5][0-9]:[0-5][0-9](?:\.[0-9]{1,6})?(?:Z|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])"
)
"""A timestamp of RFC 3339 with at most microseconds."""

_match_date: Final = re.compile(_DATE).fullmatch
_match_timestamp: Final = re.compile(_TIMESTAMP).fullmatch

_MISFIT: Final = object()
"""The result of storing a value that the type cannot store."""


class BuiltValues(NamedTuple):
    """An Arrow array, and the JSON forms that it cannot store, by index. See `DecodedColumn.leftovers`."""

    array: pa.Array
    leftovers: dict[int, JsonForm]


class WritingMode(NamedTuple):
    """The form of the values to write, and how to write nulls."""

    is_arrow: bool = False
    """Whether the values are Python objects from an Arrow array, in which JSON text is a string."""
    keeps_null: bool = False
    """Whether to write properties that are null though they are not required, if the schema accepts null."""


class JsonType:
    """The base class of types."""

    metadata: Mapping[bytes, bytes] = {}
    """The metadata of Arrow fields of this type."""
    column_count: int = 1
    """The number of columns, including nested ones. A type that is used several times counts each time."""
    slot_bytes: int = SCALAR_BYTES
    """The bytes that count per value, even if all properties of an object are absent."""
    element_bytes: int = 0
    """The highest number of bytes that count per element of a list or map in the type."""

    def measure(self, value: JsonValue) -> int:
        """Return the bytes that count for the elements of lists and maps in a value of the schema."""
        return 0

    @cached_property
    def arrow_type(self) -> pa.DataType:
        raise NotImplementedError

    def build_field(self, name: str, metadata: Mapping[bytes, bytes] = {}) -> pa.Field:
        """Return an Arrow field of this type. All fields are nullable: values that do not fit are null."""
        import pyarrow as pa

        return pa.field(name, self.arrow_type, metadata={**self.metadata, **metadata} or None)

    def to_form(self, value: JsonValue) -> JsonForm:
        """Return the JSON form of a value of the schema."""
        raise NotImplementedError

    def can_store(self, value: JsonValue) -> bool:
        """Return whether a column can store the whole value."""
        raise NotImplementedError

    def build(self, values: Sequence[JsonValue]) -> BuiltValues:
        """Build an Arrow array of values of the schema."""
        raise NotImplementedError

    def to_json(self, value: Any, mode: WritingMode) -> JsonValue:
        """Return the value of the schema for a JSON form, or for a Python object from an Arrow array.

        Raises:
            UnencodableValueError: There is no such value.
        """
        raise NotImplementedError


# Scalars


class _JsonScalar(JsonType):
    """The base class of types of single values."""

    fast_types: ClassVar[frozenset[type]] = frozenset()
    """The Python types of values for which `build_fast` is tried."""

    def store(self, value: JsonValue) -> Any:
        """Return the Python object that an array stores for a value that is not null, or `_MISFIT`."""
        raise NotImplementedError

    def format(self, stored: Any) -> JsonForm:
        """Return the JSON form of a stored object."""
        return stored

    def build_fast(self, values: Sequence[JsonValue]) -> pa.Array | None:
        """Build an array of values of the fast types, or return None or raise ArrowException if some do not fit."""
        import pyarrow as pa

        return pa.array(values, self.arrow_type)

    def to_form(self, value: JsonValue) -> JsonForm:
        if value is None:
            return None
        stored = self.store(value)
        return value if stored is _MISFIT else self.format(stored)

    def can_store(self, value: JsonValue) -> bool:
        return value is None or self.store(value) is not _MISFIT

    def build(self, values: Sequence[JsonValue]) -> BuiltValues:
        import pyarrow as pa

        types = set(map(type, values))
        types.discard(type(None))
        if types <= self.fast_types:
            try:
                array = self.build_fast(values)
            except (pa.ArrowException, OverflowError):
                array = None
            if array is not None:
                return BuiltValues(array, {})
        stored = [None if value is None else self.store(value) for value in values]
        leftovers = {}
        for index, each in enumerate(stored):
            if each is _MISFIT:
                leftovers[index] = values[index]
                stored[index] = None
        return BuiltValues(pa.array(stored, self.arrow_type), leftovers)

    def to_json(self, value: Any, mode: WritingMode) -> JsonValue:
        return _to_plain_json(value)


class JsonBoolean(_JsonScalar):
    """A boolean."""

    fast_types = frozenset({bool})

    @cached_property
    def arrow_type(self) -> pa.DataType:
        import pyarrow as pa

        return pa.bool_()

    def store(self, value: JsonValue) -> Any:
        return value if isinstance(value, bool) else _MISFIT


class JsonInteger(_JsonScalar):
    """An integer, which may be written as 1.0."""

    fast_types = frozenset({int})

    @cached_property
    def arrow_type(self) -> pa.DataType:
        import pyarrow as pa

        return pa.int64()

    def store(self, value: JsonValue) -> Any:
        number = to_integer(value)
        return _MISFIT if number is None or not INT64_MIN <= number <= INT64_MAX else number


class JsonNumber(_JsonScalar):
    """A number, which a float64 stores if it is exact."""

    fast_types = frozenset({float, int})

    @cached_property
    def arrow_type(self) -> pa.DataType:
        import pyarrow as pa

        return pa.float64()

    def store(self, value: JsonValue) -> Any:
        if type(value) is float:
            return value
        if type(value) is int:
            try:
                return float(value) if int(float(value)) == value else _MISFIT
            except OverflowError:
                return _MISFIT
        return _round_to_float(value) if isinstance(value, Decimal) else _MISFIT


class JsonString(_JsonScalar):
    """A string."""

    fast_types = frozenset({str})

    @cached_property
    def arrow_type(self) -> pa.DataType:
        import pyarrow as pa

        return pa.string()

    def store(self, value: JsonValue) -> Any:
        return value if type(value) is str else _MISFIT


class JsonBase64(_JsonScalar):
    """A string with bytes in Base64 (`contentEncoding`, or the format `byte`)."""

    @cached_property
    def arrow_type(self) -> pa.DataType:
        import pyarrow as pa

        return pa.binary()

    def store(self, value: JsonValue) -> Any:
        data = _decode_base64(value)
        return _MISFIT if data is None else data

    def format(self, stored: bytes) -> JsonForm:
        return base64.b64encode(stored).decode()


class JsonDate(_JsonScalar):
    """A string with a date (the format `date`)."""

    fast_types = frozenset({str})

    @cached_property
    def arrow_type(self) -> pa.DataType:
        import pyarrow as pa

        return pa.date32()

    def store(self, value: JsonValue) -> Any:
        if type(value) is not str or not _match_date(value):
            return _MISFIT
        try:
            return to_days(value)
        except UnencodableValueError:
            return _MISFIT

    def format(self, stored: int) -> JsonForm:
        return format_date(stored)

    def build_fast(self, values: Sequence[JsonValue]) -> pa.Array | None:
        return _parse_texts(values, _DATE, self.arrow_type, DAY_MIN, DAY_MAX)

    def to_json(self, value: Any, mode: WritingMode) -> JsonValue:
        return format_date(to_days(value)) if isinstance(value, date) else _to_plain_json(value)


class JsonTimestamp(_JsonScalar):
    """A string with a timestamp (the format `date-time`). Its offset from UTC is not stored."""

    fast_types = frozenset({str})

    @cached_property
    def arrow_type(self) -> pa.DataType:
        import pyarrow as pa

        return pa.timestamp("us", "UTC")

    def store(self, value: JsonValue) -> Any:
        if type(value) is not str or not _match_timestamp(value):
            return _MISFIT
        try:
            parsed = datetime.fromisoformat(value)
        except ValueError:
            return _MISFIT
        passed = parsed.replace(tzinfo=None) - EPOCH - (parsed.utcoffset() or EPOCH - EPOCH)
        microseconds = passed.days * MICROSECONDS_PER_DAY + passed.seconds * 1_000_000 + passed.microseconds
        return microseconds if MICROSECONDS_MIN <= microseconds <= MICROSECONDS_MAX else _MISFIT

    def format(self, stored: int) -> JsonForm:
        return format_timestamp(stored, is_utc=True)

    def build_fast(self, values: Sequence[JsonValue]) -> pa.Array | None:
        return _parse_texts(values, _TIMESTAMP, self.arrow_type, MICROSECONDS_MIN, MICROSECONDS_MAX)

    def to_json(self, value: Any, mode: WritingMode) -> JsonValue:
        if not isinstance(value, date):
            return _to_plain_json(value)
        return format_timestamp(to_timestamp(value, 1000, is_utc=True), is_utc=True)


class JsonDecimal(_JsonScalar):
    """A number that Kafka Connect wrote as a decimal with a scale."""

    def __init__(self, precision: int, scale: int) -> None:
        self.precision = precision
        self.scale = scale

    @cached_property
    def arrow_type(self) -> pa.DataType:
        import pyarrow as pa

        return pa.decimal128(self.precision, self.scale)

    def store(self, value: JsonValue) -> Any:
        try:
            return format_decimal(to_unscaled(value, self.precision, self.scale), self.scale)
        except UnencodableValueError:
            return _MISFIT


class JsonDecimalText(JsonDecimal):
    """A string in which Kafka Connect wrote the unscaled integer of a decimal in Base64."""

    def store(self, value: JsonValue) -> Any:
        data = _decode_base64(value)
        if not data:
            return _MISFIT
        unscaled = int.from_bytes(data, "big", signed=True)
        if abs(unscaled) >= 10**self.precision or _encode_integer(unscaled) != data:
            return _MISFIT
        return format_decimal(unscaled, self.scale)

    def to_json(self, value: Any, mode: WritingMode) -> JsonValue:
        if isinstance(value, str):
            return value
        unscaled = to_unscaled(value, self.precision, self.scale)
        return base64.b64encode(_encode_integer(unscaled)).decode()


class JsonDays(_JsonScalar):
    """A number of days that Kafka Connect wrote for a date."""

    @cached_property
    def arrow_type(self) -> pa.DataType:
        import pyarrow as pa

        return pa.date32()

    def store(self, value: JsonValue) -> Any:
        number = to_integer(value)
        return _MISFIT if number is None or not DAY_MIN <= number <= DAY_MAX else number

    def format(self, stored: int) -> JsonForm:
        return format_date(stored)

    def to_json(self, value: Any, mode: WritingMode) -> JsonValue:
        return value if to_integer(value) is not None else to_days(value)


class JsonMilliseconds(_JsonScalar):
    """A number of milliseconds that Kafka Connect wrote for a timestamp."""

    @cached_property
    def arrow_type(self) -> pa.DataType:
        import pyarrow as pa

        return pa.timestamp("us", "UTC")

    def store(self, value: JsonValue) -> Any:
        number = to_integer(value)
        if number is None or not MICROSECONDS_MIN <= number * 1000 <= MICROSECONDS_MAX:
            return _MISFIT
        return number * 1000

    def format(self, stored: int) -> JsonForm:
        return format_timestamp(stored, is_utc=True)

    def to_json(self, value: Any, mode: WritingMode) -> JsonValue:
        return value if to_integer(value) is not None else to_timestamp(value, 1_000_000, is_utc=True)


class JsonAny(_JsonScalar):
    """Any value, which columns store as JSON text."""

    metadata = {FORMAT_KEY: JSON_TEXT}  # noqa: RUF012

    @cached_property
    def arrow_type(self) -> pa.DataType:
        import pyarrow as pa

        return pa.string()

    def store(self, value: JsonValue) -> Any:
        return encode_json(value).decode()

    def to_form(self, value: JsonValue) -> JsonForm:
        return value

    def to_json(self, value: Any, mode: WritingMode) -> JsonValue:
        if not mode.is_arrow:
            return _to_plain_json(value)
        if not isinstance(value, str):
            raise build_type_error("JSON text", value)
        return decode_json(value.encode())


# Nested types


class JsonList(JsonType):
    """An array whose elements have one type."""

    def __init__(self, element: JsonType) -> None:
        self.element = element
        self.column_count = 1 + element.column_count
        self.element_bytes = max(element.slot_bytes, element.element_bytes)

    def measure(self, value: JsonValue) -> int:
        if type(value) is not list:
            return 0
        return len(value) * self.element.slot_bytes + _measure_all(self.element, value)

    @cached_property
    def arrow_type(self) -> pa.DataType:
        import pyarrow as pa

        return pa.list_(self.element.build_field("item"))

    def to_form(self, value: JsonValue) -> JsonForm:
        return list(map(self.element.to_form, value)) if type(value) is list else value

    def can_store(self, value: JsonValue) -> bool:
        return value is None or (type(value) is list and all(map(self.element.can_store, value)))

    def build(self, values: Sequence[JsonValue]) -> BuiltValues:
        import pyarrow as pa

        kept, leftovers = _separate(values, list)
        offsets, is_null = _compute_offsets(kept)
        elements = self.element.build(list(chain.from_iterable(filter(None, kept))))
        if elements.leftovers:  # a list is stored as a whole or not at all
            rows = {bisect_right(offsets, index) - 1 for index in elements.leftovers}
            leftovers.update((row, self.to_form(values[row])) for row in rows)
            return BuiltValues(
                self.build([None if row in leftovers else value for row, value in enumerate(kept)]).array, leftovers
            )
        mask = pa.array(is_null) if any(is_null) else None
        starts = pa.array(offsets, pa.int32())
        return BuiltValues(pa.ListArray.from_arrays(starts, elements.array, type=self.arrow_type, mask=mask), leftovers)

    def to_json(self, value: Any, mode: WritingMode) -> JsonValue:
        if not isinstance(value, list):
            return _to_plain_json(value)
        converted = []
        for index, each in enumerate(value):
            try:
                converted.append(None if each is None else self.element.to_json(each, mode))
            except UnencodableValueError as error:
                error.path.append(f"[{index}]")
                raise
        return converted


class JsonMap(JsonType):
    """An object whose properties have any names, and values of one type."""

    def __init__(self, value: JsonType) -> None:
        self.value = value
        self.column_count = 1 + value.column_count
        self.element_bytes = max(value.slot_bytes, value.element_bytes)

    def measure(self, value: JsonValue) -> int:
        if type(value) is not dict:
            return 0
        return len(value) * self.value.slot_bytes + _measure_all(self.value, value.values())

    @cached_property
    def arrow_type(self) -> pa.DataType:
        import pyarrow as pa

        return pa.map_(pa.string(), self.value.build_field("value"))

    def to_form(self, value: JsonValue) -> JsonForm:
        if type(value) is not dict:
            return value
        return {key: self.value.to_form(each) for key, each in value.items()}

    def can_store(self, value: JsonValue) -> bool:
        return value is None or (type(value) is dict and all(map(self.value.can_store, value.values())))

    def build(self, values: Sequence[JsonValue]) -> BuiltValues:
        import pyarrow as pa

        kept, leftovers = _separate(values, dict)
        offsets, is_null = _compute_offsets(kept)
        present = list(filter(None, kept))
        keys = list(chain.from_iterable(present))
        built = self.value.build(list(chain.from_iterable(each.values() for each in present)))
        for index, leftover in built.leftovers.items():
            leftovers.setdefault(bisect_right(offsets, index) - 1, {})[keys[index]] = leftover
        array = pa.MapArray.from_arrays(
            pa.array(offsets, pa.int32()),
            pa.array(keys, pa.string()),
            built.array,
            type=self.arrow_type,
            mask=pa.array(is_null) if any(is_null) else None,
        )
        return BuiltValues(array, leftovers)

    def to_json(self, value: Any, mode: WritingMode) -> JsonValue:
        items = _to_items(value)
        if items is None:
            return _to_plain_json(value)
        converted = {}
        for key, each in items:
            try:
                converted[key] = None if each is None else self.value.to_json(each, mode)
            except UnencodableValueError as error:
                error.path.append(f".{key}")
                raise
        return converted


class StructField(NamedTuple):
    """A property of an object."""

    type: JsonType
    is_required: bool = False
    accepts_null: bool = False
    default: JsonForm = None
    """The JSON form of the value for records that lack the property though it is required: those of older schemas."""

    def writes_null(self, mode: WritingMode) -> bool:
        """Return whether null is written, instead of omitting the property."""
        return self.accepts_null and (self.is_required or mode.keeps_null)

    def build_metadata(self) -> dict[bytes, bytes]:
        """Return the metadata of the property's Arrow field."""
        return {} if self.default is None else {DEFAULT_KEY: encode_json(self.default)}


class JsonStruct(JsonType):
    """An object with certain properties. Others are leftovers."""

    def __init__(self, fields: Mapping[str, StructField]) -> None:
        self.fields: Final = dict(fields)
        self._names: Final = frozenset(fields)
        self._get_all: Final[Callable[[Any], Any]] = itemgetter(*self.fields)
        types = [each.type for each in fields.values()]
        self.column_count = 1 + sum(each.column_count for each in types)
        self.slot_bytes = sum(each.slot_bytes for each in types)
        self.element_bytes = max((each.element_bytes for each in types), default=0)
        self._with_elements = [(name, each.type) for name, each in fields.items() if each.type.element_bytes]

    def measure(self, value: JsonValue) -> int:
        if type(value) is not dict:
            return 0
        return sum(each.measure(value.get(name)) for name, each in self._with_elements)

    @cached_property
    def arrow_type(self) -> pa.DataType:
        import pyarrow as pa

        return pa.struct([each.type.build_field(name, each.build_metadata()) for name, each in self.fields.items()])

    def to_form(self, value: JsonValue) -> JsonForm:
        if type(value) is not dict:
            return value
        form = {name: field.type.to_form(value.get(name)) for name, field in self.fields.items()}
        if not self._names.issuperset(value):
            form |= self._find_others(value)
        return form

    def can_store(self, value: JsonValue) -> bool:
        if type(value) is not dict:
            return value is None
        return all(
            each is None if name not in self.fields else self.fields[name].type.can_store(each)
            for name, each in value.items()
        )

    def _find_others(self, value: dict[str, JsonValue]) -> dict[str, JsonForm]:
        return {key: each for key, each in value.items() if each is not None and key not in self._names}

    def build(self, values: Sequence[JsonValue]) -> BuiltValues:
        import pyarrow as pa

        kept, leftovers = _separate(values, dict)
        columns = self._extract_columns(kept)
        for row, is_known in enumerate(map(self._names.issuperset, map(_get_keys, kept))):
            if not is_known:
                others = self._find_others(kept[row])
                if others:
                    leftovers[row] = others
        arrays = []
        for name, field, column in zip(self.fields, self.fields.values(), columns, strict=True):
            built = field.type.build(column)
            arrays.append(built.array)
            for row, leftover in built.leftovers.items():
                leftovers.setdefault(row, {})[name] = leftover
        is_null = [value is None for value in kept]
        mask = pa.array(is_null) if any(is_null) else None
        return BuiltValues(pa.StructArray.from_arrays(arrays, fields=list(self.arrow_type), mask=mask), leftovers)

    def _extract_columns(self, values: Sequence[dict[str, JsonValue] | None]) -> Iterable[Sequence[JsonValue]]:
        """Return the values of each property."""
        if len(self.fields) > 1:
            try:
                return list(zip(*map(self._get_all, values), strict=True)) or [()] * len(self.fields)
            except (KeyError, TypeError):  # a property is missing, or an object is null
                pass
        present = [{} if value is None else value for value in values]
        return [list(map(dict.get, present, repeat(name))) for name in self.fields]

    def to_json(self, value: Any, mode: WritingMode) -> JsonValue:
        items = _to_items(value)
        if items is None:
            return _to_plain_json(value)
        converted = {}
        for key, each in items:
            field = self.fields.get(key)
            if each is None and field is not None and not field.writes_null(mode):
                continue  # null stands for a missing property as well
            try:
                if field is None:
                    converted[key] = _to_plain_json(each)
                else:
                    converted[key] = None if each is None else field.type.to_json(each, mode)
            except UnencodableValueError as error:
                error.path.append(f".{key}")
                raise
        return converted


def _get_keys(value: dict[str, JsonValue] | None) -> Iterable[str]:
    return () if value is None else value


def _separate(values: Sequence[JsonValue], expected: type) -> tuple[Sequence[Any], dict[int, Any]]:
    """Return the values of a type, with None instead of others, and the others by index."""
    if set(map(type, values)) <= {expected, type(None)}:
        return values, {}
    others = {row: value for row, value in enumerate(values) if value is not None and type(value) is not expected}
    return [None if row in others else value for row, value in enumerate(values)], others


def _compute_offsets(values: Sequence[Any]) -> tuple[list[int], list[bool]]:
    """Return the offsets of lists or maps in their concatenation, and whether each is null."""
    lengths = [0 if value is None else len(value) for value in values]
    return list(accumulate(lengths, initial=0)), [value is None for value in values]


def _parse_texts(
    values: Sequence[str | None], pattern: str, arrow_type: pa.DataType, low: int, high: int
) -> pa.Array | None:
    """Parse strings with Arrow, or return None unless all match the pattern and are in the range."""
    import pyarrow as pa
    import pyarrow.compute as pc

    texts = pa.array(values, pa.string())
    if pc.all(pc.match_substring_regex(texts, f"^(?:{pattern})$")).as_py() is False:
        return None
    array = texts.cast(arrow_type)
    bounds = pc.min_max(array.cast(pa.int32() if pa.types.is_date32(arrow_type) else pa.int64())).as_py()
    is_in_range = bounds["min"] is None or (bounds["min"] >= low and bounds["max"] <= high)
    return array if is_in_range else None


def to_integer(value: JsonValue) -> int | None:
    """Return the integer that a number is equal to, or None if there is none."""
    if type(value) is int:
        return value
    if type(value) is float:
        return int(value) if value.is_integer() else None
    if not isinstance(value, Decimal) or abs(value.adjusted()) > 400:  # integers beyond are huge
        return None
    return int(value) if value == value.to_integral_value() else None


def _round_to_float(value: Decimal) -> Any:
    """Return the float64 whose digits are those of a decimal, at its precision, or `_MISFIT`.

    0.10000000000000001 is 0.1 with 17 digits, for example.
    """
    rounded = float(value)
    digits = len(value.as_tuple().digits)
    if not math.isfinite(rounded) or digits > FLOAT_DIGITS_MAX:
        return _MISFIT
    return rounded if Decimal(f"{rounded:.{digits - 1}e}") == value else _MISFIT


def _measure_all(element: JsonType, values: Iterable[JsonValue]) -> int:
    return sum(map(element.measure, values)) if element.element_bytes else 0


def _decode_base64(value: JsonValue) -> bytes | None:
    """Decode a Base64 string. Return None unless encoding the bytes gives the same string."""
    if type(value) is not str:
        return None
    try:
        data = base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        return None
    return data if base64.b64encode(data) == value.encode() else None


def _encode_integer(value: int) -> bytes:
    """Return an integer in as few bytes as possible, in two's complement."""
    return value.to_bytes((value if value >= 0 else ~value).bit_length() // 8 + 1, "big", signed=True)


def _to_items(value: Any) -> Iterable[tuple[str, Any]] | None:
    """Return the properties of an object, or the items of a map of an Arrow array; None if it is neither."""
    if isinstance(value, dict):
        return value.items()
    if isinstance(value, list) and value and all(isinstance(each, tuple) for each in value):
        return value
    return None


def _to_plain_json(value: Any) -> JsonValue:
    """Return the JSON form of a value, or of a Python object from an Arrow array whose type the schema leaves open."""
    if value is None or isinstance(value, bool | int | str | Decimal):
        return value
    if isinstance(value, float):
        if not math.isfinite(value):
            raise UnencodableValueError(f"JSON has no {value}")
        return value
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, datetime):
        is_utc = value.tzinfo is not None
        return format_timestamp(to_timestamp(value, 1000, is_utc=is_utc), is_utc=is_utc)
    if isinstance(value, date):
        return format_date(to_days(value))
    if isinstance(value, time):
        return value.isoformat()
    items = _to_items(value)
    if items is not None:
        return {key: _to_plain_json(each) for key, each in items}
    if isinstance(value, list):
        return list(map(_to_plain_json, value))
    raise build_type_error("a JSON value", value)
