"""Codecs of column types: JSON values to Arrow arrays and back, exactly.

A codec takes values as the typed JSON parser returns them (`fast_type`): integers and texts as Python objects, numbers
that float64 could round as `msgspec.Raw`. `adapt` turns a value of the general parser into that form, or rejects it.
`build` converts a list of them at once. It fails if a value would not be restored exactly; the caller then finds the
value and rescues it.
"""

from __future__ import annotations

import base64
import binascii
import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Context, Decimal, Inexact, InvalidOperation
from typing import Any, Final, NamedTuple
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from chronik.errors import ConfigError
from chronik.formats.codec import format_float
from chronik.pipeline.tables.values.column_names import get_json_key
from chronik.pipeline.tables.values.exact_json import parse_exact_float
from chronik.pipeline.tables.values.sql_types import JSON_FORMAT, format_sql_type, get_json_format
from chronik.pipeline.tables.values.table_schema import Column
from chronik.wording import format_spelling_suggestion

NOTHING: Final = object()
"""Sentinel for a missing value, used where None stands for JSON null."""

NULL: Final = msgspec.Raw(b"null")

EXACT_IN_FLOAT_MAX: Final = 2**53
"""Largest integer up to which float64 represents all integers exactly."""

JsonValue = Any


class MisfitError(Exception):
    """A value does not fit the type of its column. The message gives the reason."""


BUILD_ERRORS: Final = (MisfitError, msgspec.DecodeError, ArithmeticError, ValueError, TypeError, pa.ArrowException)
"""Errors of `ValueCodec.build` for a value that does not fit."""


@dataclass(frozen=True, slots=True)
class BuiltColumn:
    """An Arrow array of decoded values, and the rows whose JSON is written differently than the array restores it."""

    array: pa.Array
    respelled_rows: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class AdaptedValue:
    """A JSON value converted to the codec's `fast_type`, and the part of the value that was lost."""

    value: Any
    leftover: JsonValue = NOTHING
    """JSON value that restores the original when merged over the restored value; NOTHING if nothing was lost."""
    has_misfit: bool = False
    """Whether a value inside the list or object did not fit its type."""


class CodecOptions(NamedTuple):
    """Options of the codecs of a table."""

    drops_unknown: bool = False
    """Whether nested fields that the type does not have are ignored."""
    accepts_non_finite: bool = False
    """Whether numbers may be the strings `NaN`, `Infinity` and `-Infinity`, as in the JSON forms of typed values."""


DEFAULT_OPTIONS: Final = CodecOptions()
TYPED_OPTIONS: Final = CodecOptions(accepts_non_finite=True)


class ValueCodec:
    """A codec that converts JSON values to Arrow values of one type and back."""

    fast_type: Any
    """Type with which the typed JSON parser decodes the values. The parser returns `missing` for null and absent
    values."""
    missing: Any = None
    slot_bytes: int = 16
    """The bytes that count per value, even if all fields of an object are absent."""
    element_bytes: int = 0
    """The highest number of bytes that count per element of a list or map in the type."""

    def __init__(self, data_type: pa.DataType) -> None:
        self.data_type = data_type

    def measure(self, value: JsonValue) -> int:
        """Return the bytes that count for the elements of lists and maps in a value. It may have another type."""
        return 0

    def adapt(self, value: JsonValue, *, cast: bool = False) -> AdaptedValue:
        """Convert a JSON value to `fast_type`; `cast` also accepts other JSON types if nothing is lost.

        Raises:
            MisfitError: The value does not fit.
        """
        adapted = self._adapt(value)
        if adapted is NOTHING and cast:
            adapted = self._cast(value)
        if adapted is NOTHING:
            raise MisfitError(f"{describe_json_type(value)} is not valid for type {format_sql_type(self.data_type)}")
        return AdaptedValue(adapted)

    def _adapt(self, value: JsonValue) -> Any:
        raise NotImplementedError

    def _cast(self, value: JsonValue) -> Any:
        """Convert a value of another JSON type without loss, or return NOTHING."""
        return NOTHING

    def build(self, values: Sequence[Any], *, is_adapted: bool = False) -> BuiltColumn:
        """Build an Arrow array from values of `fast_type`.

        `is_adapted` says that `adapt` returned the values and their leftovers, so that spellings of nested values are
        not lost.

        Raises:
            BUILD_ERRORS: A value does not fit.
        """
        raise NotImplementedError

    def restore(self, value: Any) -> JsonValue:
        """Convert an Arrow value, as returned by `to_pylist`, to the JSON value that it stores; never return None."""
        return value


def build_with_misfits(
    codec: ValueCodec, values: Sequence[Any], *, is_adapted: bool = False
) -> tuple[BuiltColumn, list[int]]:
    """Build an Arrow array in which values that do not fit are null; also return the rows of these values.

    Values that do not fit are rare, so the list is halved until they are found.
    """
    try:
        return codec.build(values, is_adapted=is_adapted), []
    except BUILD_ERRORS:
        if len(values) == 1:
            return BuiltColumn(pa.nulls(1, codec.data_type)), [0]
    middle = len(values) // 2
    first, first_misfits = build_with_misfits(codec, values[:middle], is_adapted=is_adapted)
    second, second_misfits = build_with_misfits(codec, values[middle:], is_adapted=is_adapted)
    return (
        BuiltColumn(
            pa.concat_arrays([first.array, second.array]),
            first.respelled_rows + tuple(row + middle for row in second.respelled_rows),
        ),
        first_misfits + [row + middle for row in second_misfits],
    )


def describe_json_type(value: JsonValue) -> str:
    """Return the type of a JSON value for an error message."""
    descriptions = {list: "a list", dict: "an object", str: "a string", bool: "a boolean", type(None): "null"}
    return descriptions.get(type(value), "a number")


# Scalars


class BooleanCodec(ValueCodec):
    """A codec for JSON booleans."""

    fast_type = bool | None

    def _adapt(self, value: JsonValue) -> Any:
        return value if type(value) is bool else NOTHING

    def _cast(self, value: JsonValue) -> Any:
        return {"true": True, "false": False}.get(value, NOTHING) if type(value) is str else NOTHING

    def build(self, values: Sequence[Any], *, is_adapted: bool = False) -> BuiltColumn:
        return BuiltColumn(pa.array(values, self.data_type))


class IntegerCodec(ValueCodec):
    """A codec for JSON integers of 8 to 64 bits."""

    fast_type = int | None

    def _adapt(self, value: JsonValue) -> Any:
        return value if type(value) is int else NOTHING

    def _cast(self, value: JsonValue) -> Any:
        if type(value) is float and value.is_integer():
            return int(value)
        return int(value) if type(value) is str and re.fullmatch(r"-?(0|[1-9]\d{0,18})", value) else NOTHING

    def build(self, values: Sequence[Any], *, is_adapted: bool = False) -> BuiltColumn:
        return BuiltColumn(pa.array(values, self.data_type))


class StringCodec(ValueCodec):
    """A codec for JSON strings."""

    fast_type = str | None

    def _adapt(self, value: JsonValue) -> Any:
        return value if type(value) is str else NOTHING

    def _cast(self, value: JsonValue) -> Any:
        return msgspec.json.encode(value).decode()

    def build(self, values: Sequence[Any], *, is_adapted: bool = False) -> BuiltColumn:
        return BuiltColumn(pa.array(values, self.data_type))


class NonEmptyStringCodec(StringCodec):
    """A codec for JSON strings that must not be empty."""

    def build(self, values: Sequence[Any], *, is_adapted: bool = False) -> BuiltColumn:
        if "" in values:
            raise MisfitError("a partition column cannot have an empty string")
        return super().build(values)


class JsonTextCodec(ValueCodec):
    """A codec that stores any JSON value as its text, so that `5` and `"5"` remain different."""

    fast_type = msgspec.Raw
    missing = NULL

    def _adapt(self, value: JsonValue) -> Any:
        return msgspec.Raw(msgspec.json.encode(value))

    def build(self, values: Sequence[Any], *, is_adapted: bool = False) -> BuiltColumn:
        texts = [bytes(value) for value in values]
        return BuiltColumn(pa.array([None if text == b"null" else text for text in texts], self.data_type))

    def restore(self, value: Any) -> JsonValue:
        return msgspec.Raw(value.encode())


class NumberCodec(ValueCodec):
    """Base class of codecs for numbers that the parser must not round. The parser returns their text."""

    fast_type = msgspec.Raw
    missing = NULL

    def _adapt(self, value: JsonValue) -> Any:
        if type(value) is int or type(value) is float:
            return msgspec.Raw(msgspec.json.encode(value))
        return value if type(value) is msgspec.Raw else NOTHING

    def _cast(self, value: JsonValue) -> Any:
        if type(value) is str and re.fullmatch(r"-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?", value):
            return msgspec.Raw(value.encode())
        return NOTHING


_OUTLINES: Final = bytes(
    ord("0") if byte in b"0123456789." else ord("e") if byte in b"eE" else ord(" ") for byte in range(256)
)
_LONG_NUMBER: Final = b"0" * 16
"""Outline of the digits of a number that float64 may round: 16 digits, or 15 digits and a decimal point."""


def _may_be_rounded(text: bytes) -> bool:
    """Return whether the text contains a number with too many digits for a float64, or with an exponent."""
    outline = text.translate(_OUTLINES)
    return _LONG_NUMBER in outline or b"e" in outline


class FloatCodec(NumberCodec):
    """A codec for JSON numbers as float64. A number that float64 cannot represent does not fit."""

    _decode = staticmethod(msgspec.json.Decoder(list[float | None]).decode)

    def build(self, values: Sequence[Any], *, is_adapted: bool = False) -> BuiltColumn:
        joined = b",".join(values)
        floats = self._decode(b"[%b]" % joined)
        if _may_be_rounded(joined):
            _check_exact_floats(joined, floats)
        return BuiltColumn(pa.array(floats, self.data_type))


def _check_exact_floats(joined: bytes, floats: Sequence[float | None]) -> None:
    texts, restored = joined.split(b","), msgspec.json.encode(floats)[1:-1].split(b",")
    if texts == restored:
        return
    for text, again in zip(texts, restored, strict=True):
        # A short number without an exponent is exact, and so is one that is restored literally.
        if text != again and _may_be_rounded(text) and type(parse_exact_float(text.decode())) is not float:
            raise MisfitError(f"{text.decode()} has more digits than float64 can represent")


class SingleFloatCodec(NumberCodec):
    """A codec for JSON numbers as float32, restored with the fewest digits that identify the value."""

    def build(self, values: Sequence[Any], *, is_adapted: bool = False) -> BuiltColumn:
        numbers = _decode_decimals(values)
        with np.errstate(over="ignore"):
            rounded = np.array([0 if number is None else float(number) for number in numbers], np.float32)
        for number, single in zip(numbers, rounded, strict=True):
            if number is not None and (not np.isfinite(single) or Decimal(str(single)) != number):
                raise MisfitError(f"{number} has more digits than float32 can represent")
        return BuiltColumn(pa.array(rounded, mask=np.array([number is None for number in numbers], bool)))

    def restore(self, value: Any) -> JsonValue:
        return float(str(np.float32(value)))


class NonFiniteFloatCodec(NumberCodec):
    """A codec for numbers that may also be the JSON strings `NaN`, `Infinity` and `-Infinity`."""

    def __init__(self, finite: NumberCodec) -> None:
        super().__init__(finite.data_type)
        self._finite = finite

    def _adapt(self, value: JsonValue) -> Any:
        if type(value) is str and value in NON_FINITE_FLOATS:
            return msgspec.Raw(msgspec.json.encode(value))
        return super()._adapt(value)

    def build(self, values: Sequence[Any], *, is_adapted: bool = False) -> BuiltColumn:
        found = {row: _NON_FINITE[text] for row, text in enumerate(map(bytes, values)) if text in _NON_FINITE}
        if not found:
            return self._finite.build(values, is_adapted=is_adapted)
        built = self._finite.build([NULL if row in found else value for row, value in enumerate(values)])
        numbers = built.array.to_pylist()
        for row, number in found.items():
            numbers[row] = number
        return BuiltColumn(pa.array(numbers, self.data_type, from_pandas=False), built.respelled_rows)

    def restore(self, value: Any) -> JsonValue:
        return self._finite.restore(value) if math.isfinite(value) else format_float(value)


NON_FINITE_FLOATS: Final = ("NaN", "Infinity", "-Infinity")
_NON_FINITE: Final = {msgspec.json.encode(text): float(text) for text in NON_FINITE_FLOATS}


_decode_decimal_list = msgspec.json.Decoder(list[Decimal | None]).decode


def _decode_decimals(values: Sequence[Any]) -> list[Decimal | None]:
    """Decode raw JSON numbers exactly. Raises MisfitError for texts, which the decoder would accept."""
    joined = b",".join(values)
    if b'"' in joined:
        raise MisfitError("a string is not a number")
    return _decode_decimal_list(b"[%b]" % joined)


class DecimalCodec(NumberCodec):
    """A codec for JSON numbers as decimals with a fixed precision and scale."""

    def __init__(self, data_type: pa.DataType) -> None:
        super().__init__(data_type)
        self._unit = Decimal((0, (1,), -data_type.scale))
        self._context = Context(prec=data_type.precision, traps=[Inexact, InvalidOperation])

    def build(self, values: Sequence[Any], *, is_adapted: bool = False) -> BuiltColumn:
        # Arrow crashes on 1e-999999999 and reads 1.000… with 40 zeros as 0, so that it gets digits of this scale only.
        quantize, unit = self._context.quantize, self._unit
        try:
            numbers = [None if number is None else quantize(number, unit) for number in _decode_decimals(values)]
        except (Inexact, InvalidOperation):
            raise MisfitError(f"the number does not fit type {format_sql_type(self.data_type)}") from None
        return BuiltColumn(pa.array(numbers, self.data_type))

    def restore(self, value: Any) -> JsonValue:
        return msgspec.Raw(f"{value.normalize(_EXACT):f}".encode())


class TextCodec(ValueCodec):
    """Base class of codecs for values that are written as strings in JSON."""

    fast_type = str | None

    def _adapt(self, value: JsonValue) -> Any:
        return value if type(value) is str else NOTHING


class NumberTextCodec(TextCodec):
    """A codec for numbers that are written as JSON strings."""

    def __init__(self, data_type: pa.DataType) -> None:
        super().__init__(data_type)
        self._numbers: ValueCodec = _create_number_codec(data_type)

    def _cast(self, value: JsonValue) -> Any:
        return msgspec.json.encode(value).decode() if type(value) in (int, float, msgspec.Raw) else NOTHING

    def build(self, values: Sequence[Any], *, is_adapted: bool = False) -> BuiltColumn:
        if any(value is not None and not _JSON_NUMBER.fullmatch(value) for value in values):
            raise MisfitError("not a number")
        if isinstance(self._numbers, IntegerCodec):
            built = self._numbers.build([None if value is None else int(value) for value in values])
        else:
            built = self._numbers.build([NULL if value is None else msgspec.Raw(value.encode()) for value in values])
        restored = [None if value is None else self.restore(value) for value in built.array.to_pylist()]
        pairs = enumerate(zip(values, restored, strict=True))
        return BuiltColumn(built.array, tuple(row for row, (value, again) in pairs if value != again))

    def restore(self, value: Any) -> JsonValue:
        if type(value) is Decimal:
            return f"{value:f}"  # with all digits of the scale, as amounts are usually written
        return msgspec.json.encode(self._numbers.restore(value)).decode()


_JSON_NUMBER: Final = re.compile(r"-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?", re.ASCII)


class BinaryCodec(TextCodec):
    """A codec for bytes that are written as JSON strings, in Base64 or hexadecimal digits."""

    def __init__(self, data_type: pa.DataType, *, hexadecimal: bool) -> None:
        super().__init__(data_type)
        self._hexadecimal = hexadecimal

    def build(self, values: Sequence[Any], *, is_adapted: bool = False) -> BuiltColumn:
        try:
            found = [None if value is None else self._decode(value) for value in values]
        except (binascii.Error, UnicodeError) as error:
            raise MisfitError(str(error)) from error
        respelled = [
            row
            for row, (value, data) in enumerate(zip(values, found, strict=True))
            if data is not None and self.restore(data) != value
        ]
        return BuiltColumn(pa.array(found, self.data_type), tuple(respelled))

    def _decode(self, text: str) -> bytes:
        return binascii.unhexlify(text) if self._hexadecimal else base64.b64decode(text.encode(), validate=True)

    def restore(self, value: Any) -> JsonValue:
        return value.hex() if self._hexadecimal else base64.b64encode(value).decode()


# Dates and times

_ISO_DATE: Final = r"\d{4}-\d\d-\d\d"
_ISO_TIMESTAMP: Final = _ISO_DATE + r"[T ]\d\d:\d\d(:\d\d(\.\d{1,6})?)?"
_ISO_OFFSET: Final = r"(Z|[+-]\d\d(:?\d\d)?)"
_YEAR_ZERO: Final = "^0000"
_SECONDS: Final = _ISO_DATE + r"T\d\d:\d\d:\d\d"
_NOT_000: Final = r"(\d\d[1-9]|\d[1-9]0|[1-9]00)"


class IsoStyle(NamedTuple):
    """An ISO 8601 timestamp format as written by one library, in which a codec restores timestamps."""

    pattern: str
    """Regular expression of the timestamps, without the offset."""
    offset: str
    """Text with which the format writes the UTC offset of UTC, such as `Z`."""
    choose_timespec: Callable[[int], str]
    """Function from a timestamp's microseconds to the `timespec` argument of `datetime.isoformat`."""


ISO_STYLES: Final = {
    "iso8601": IsoStyle(
        rf"{_SECONDS}(\.{_NOT_000}|\.\d{{3}}{_NOT_000})?",
        "Z",
        lambda us: "microseconds" if us % 1000 else "milliseconds" if us else "seconds",
    ),
    "iso8601_ms": IsoStyle(rf"{_SECONDS}\.\d{{3}}", "Z", lambda us: "microseconds" if us % 1000 else "milliseconds"),
    "iso8601_python": IsoStyle(
        rf"{_SECONDS}(\.{_NOT_000}\d{{3}}|\.\d{{3}}{_NOT_000})?",
        "+00:00",
        lambda us: "microseconds" if us else "seconds",
    ),
}
"""Formats of timestamps as text: as Java's Instant, JavaScript's toISOString and Python's isoformat write them.

All of them read any timestamp in ISO 8601. They differ in how a column restores it.
"""

ARROW_ZONES_END: Final = datetime(2037, 1, 1)
"""Local time from which Arrow ignores daylight saving time, because it reads only the listed transitions of a zone."""


class IsoTimestampCodec(TextCodec):
    """A codec for ISO 8601 timestamps, with a UTC offset or in the column's time zone."""

    def __init__(self, data_type: pa.DataType, style: IsoStyle, zone: str | None) -> None:
        super().__init__(data_type)
        self._has_zone = data_type.tz is not None
        self._zone = _load_zone(zone)
        self._zone_name = zone or "UTC"
        self._style = style
        self._suffix = style.offset if self._has_zone and zone is None else ""
        self._canonical = f"^{style.pattern}{re.escape(self._suffix)}$"

    def build(self, values: Sequence[Any], *, is_adapted: bool = False) -> BuiltColumn:
        texts = pa.array(values, pa.string())
        is_canonical = pc.match_substring_regex(texts, self._canonical)
        if pc.all(is_canonical, min_count=0).as_py():  # nulls do not count
            return BuiltColumn(self._check_years(self._parse_canonical_timestamps(texts)))
        others = pc.invert(is_canonical).fill_null(False)
        canonical = self._parse_canonical_timestamps(pc.if_else(others, pa.scalar(None, pa.string()), texts))
        array = pc.replace_with_mask(canonical, others, self._parse_iso_timestamps(texts.filter(others)))
        return BuiltColumn(
            self._check_years(array), tuple(np.flatnonzero(others.to_numpy(zero_copy_only=False)).tolist())
        )

    def _parse_canonical_timestamps(self, texts: pa.Array) -> pa.Array:
        return texts.cast(self.data_type) if self._suffix or not self._has_zone else self._parse_local_timestamps(texts)

    def _parse_local_timestamps(self, texts: pa.Array) -> pa.Array:
        # Where clocks are set back, a local time occurs twice; where they are set forward, it does not exist.
        local = texts.cast(pa.timestamp("us"))
        is_late = pc.greater_equal(local, ARROW_ZONES_END)
        nothing = pa.scalar(None, local.type)
        early = pc.assume_timezone(
            pc.if_else(is_late, nothing, local), self._zone_name, ambiguous="earliest", nonexistent="raise"
        ).cast(self.data_type)
        if not pc.any(is_late).as_py():
            return early
        late = [
            None if each is None else self._to_utc(each) for each in pc.if_else(is_late, local, nothing).to_pylist()
        ]
        return pc.coalesce(early, pa.array(late, self.data_type))

    def _to_utc(self, local: datetime) -> datetime:
        absolute = local.replace(tzinfo=self._zone).astimezone(UTC)
        if absolute.astimezone(self._zone).replace(tzinfo=None) != local:
            raise MisfitError(f"{local} does not exist in time zone {self._zone_name}")
        return absolute

    def _parse_iso_timestamps(self, texts: pa.Array) -> pa.Array:
        has_offset = pc.match_substring_regex(texts, f"^{_ISO_TIMESTAMP}{_ISO_OFFSET}$")
        is_local = pc.match_substring_regex(texts, f"^({_ISO_DATE}|{_ISO_TIMESTAMP})$")
        if not pc.all(pc.or_(has_offset, is_local) if self._has_zone else is_local, min_count=0).as_py():
            raise MisfitError("not an ISO 8601 timestamp with at most microseconds")
        if not self._has_zone:
            return texts.cast(self.data_type)
        nothing = pa.scalar(None, pa.string())
        absolute = pc.if_else(has_offset, texts, nothing).cast(self.data_type)
        return pc.coalesce(absolute, self._parse_local_timestamps(pc.if_else(has_offset, nothing, texts)))

    def _check_years(self, timestamps: pa.Array) -> pa.Array:
        """Return the timestamps if all are in years 1 to 9999, in UTC and in the column's time zone."""
        margin = 0 if self._zone is UTC else MICROSECONDS_PER_DAY
        bounds = pc.min_max(timestamps.cast(pa.int64())).as_py()
        if bounds["min"] is not None and not (
            MICROSECONDS_MIN + margin <= bounds["min"] <= bounds["max"] <= MICROSECONDS_MAX - margin
        ):
            raise MisfitError("the timestamp is outside of years 1 to 9999")
        return timestamps

    def restore(self, value: Any) -> JsonValue:
        local = value.astimezone(self._zone).replace(tzinfo=None) if self._has_zone else value
        return local.isoformat(timespec=self._style.choose_timespec(local.microsecond)) + self._suffix


class IsoDateCodec(TextCodec):
    """A codec for ISO 8601 dates."""

    def build(self, values: Sequence[Any], *, is_adapted: bool = False) -> BuiltColumn:
        texts = pa.array(values, pa.string())
        if pc.any(pc.match_substring_regex(texts, _YEAR_ZERO)).as_py():
            raise MisfitError("there is no year 0")
        return BuiltColumn(texts.cast(self.data_type))

    def restore(self, value: Any) -> JsonValue:
        return value.isoformat()


PATTERN_SAMPLE: Final = datetime(2001, 2, 3, 4, 5, 6, 789, UTC)
"""Timestamp with which a codec checks its `strptime` pattern."""


class PatternCodec(TextCodec):
    """A codec for dates and timestamps that are written in a `strptime` pattern."""

    def __init__(self, data_type: pa.DataType, pattern: str, zone: str | None) -> None:
        super().__init__(data_type)
        try:
            datetime.strptime(PATTERN_SAMPLE.strftime(pattern), pattern)
        except (ValueError, re.error) as error:
            raise ConfigError(f"invalid format {pattern!r}: {error}") from None
        self._pattern = pattern
        self._is_date = pa.types.is_date(data_type)
        self._zone = None if self._is_date or data_type.tz is None else _load_zone(zone)
        self._has_offset = "%z" in pattern

    def build(self, values: Sequence[Any], *, is_adapted: bool = False) -> BuiltColumn:
        found = [None if value is None else self._parse(value) for value in values]
        respelled = [
            row
            for row, (value, parsed) in enumerate(zip(values, found, strict=True))
            if parsed is not None and self.restore(parsed) != value
        ]
        return BuiltColumn(pa.array(found, self.data_type), tuple(respelled))

    def _parse(self, text: str) -> date:
        parsed = datetime.strptime(text, self._pattern)
        if self._is_date:
            return parsed.date()
        if self._zone is None:
            return parsed.replace(tzinfo=None)
        return parsed.astimezone(UTC) if parsed.tzinfo else parsed.replace(tzinfo=self._zone).astimezone(UTC)

    def restore(self, value: Any) -> JsonValue:
        if self._zone is not None:
            value = value.astimezone(self._zone)
        # Python does not pad the years before 1000 on all platforms.
        pattern = re.sub("%%|%Y", lambda match: match[0] if match[0] == "%%" else f"{value.year:04d}", self._pattern)
        return value.strftime(pattern)


EPOCH_UNITS: Final = {"epoch_s": 1_000_000, "epoch_ms": 1000, "epoch_us": 1}
"""Formats of timestamps that are JSON numbers, each with the number of microseconds in its unit."""

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class EpochCodec(NumberCodec):
    """A codec for timestamps that are numbers of seconds, milliseconds or microseconds since 1970."""

    def __init__(self, data_type: pa.DataType, unit_us: int) -> None:
        super().__init__(data_type)
        self._unit_us = unit_us

    def build(self, values: Sequence[Any], *, is_adapted: bool = False) -> BuiltColumn:
        microseconds: list[int | None] = []
        for number in _decode_decimals(values):
            if number is None:
                microseconds.append(None)
                continue
            try:
                us = _EXACT.multiply(number, self._unit_us)
            except (Inexact, InvalidOperation):
                us = NOT_A_NUMBER
            if us != us.to_integral_value() or not MICROSECONDS_MIN <= us <= MICROSECONDS_MAX:
                raise MisfitError("the number is not a timestamp in years 1 to 9999, or finer than a microsecond")
            microseconds.append(int(us))
        return BuiltColumn(pa.array(microseconds, pa.int64()).cast(self.data_type))

    def restore(self, value: Any) -> JsonValue:
        since = (value if value.tzinfo else value.replace(tzinfo=UTC)) - EPOCH
        us = since // timedelta(microseconds=1)
        whole, rest = divmod(us, self._unit_us)
        return whole if rest == 0 else msgspec.Raw(f"{(Decimal(us) / self._unit_us).normalize():f}".encode())


NOT_A_NUMBER: Final = Decimal("NaN")

_EXACT: Final = Context(prec=100, traps=[Inexact, InvalidOperation])
"""Decimal context that raises an exception instead of rounding."""

MICROSECONDS_PER_DAY: Final = 86_400_000_000
MICROSECONDS_MIN: Final = (datetime(1, 1, 1, tzinfo=UTC) - EPOCH) // timedelta(microseconds=1)
MICROSECONDS_MAX: Final = (datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC) - EPOCH) // timedelta(microseconds=1)


class EpochDaysCodec(IntegerCodec):
    """A codec for dates that are numbers of days since 1970."""

    def build(self, values: Sequence[Any], *, is_adapted: bool = False) -> BuiltColumn:
        return BuiltColumn(
            pa.array([None if days is None else _convert_day_to_date(days) for days in values], self.data_type)
        )

    def restore(self, value: Any) -> JsonValue:
        return (value - EPOCH.date()).days


def _convert_day_to_date(days: int) -> date:
    return EPOCH.date() + timedelta(days=days)


def _load_zone(name: str | None) -> ZoneInfo | Any:
    if name is None:
        return UTC
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise ConfigError(f"unknown time zone {name!r}; expected a name such as Europe/Berlin") from None


# Lists, maps and objects


class ListCodec(ValueCodec):
    """A codec for JSON lists whose elements have one type."""

    def __init__(self, data_type: pa.DataType, options: CodecOptions) -> None:
        super().__init__(data_type)
        self._element = create_field_codec(data_type.value_field, options)
        self.fast_type = list[self._element.fast_type] | None  # type: ignore[name-defined]
        self.element_bytes = max(self._element.slot_bytes, self._element.element_bytes)

    def measure(self, value: JsonValue) -> int:
        if type(value) is not list:
            return 0
        return len(value) * self._element.slot_bytes + _measure_all(self._element, value)

    def adapt(self, value: JsonValue, *, cast: bool = False) -> AdaptedValue:
        if type(value) is not list:
            raise MisfitError(f"{describe_json_type(value)} is not valid for type {format_sql_type(self.data_type)}")
        adapted = [adapt_nested_value(self._element, each, cast=cast) for each in value]
        is_complete = all(each.leftover is NOTHING for each in adapted)
        # Elements cannot be merged one by one, so the whole list is left over if one of them does not fit.
        leftover = NOTHING if is_complete else value
        return AdaptedValue([each.value for each in adapted], leftover, any(each.has_misfit for each in adapted))

    def build(self, values: Sequence[Any], *, is_adapted: bool = False) -> BuiltColumn:
        elements = _build_nested(
            self._element, [element for each in values if each is not None for element in each], is_adapted
        )
        mask = pa.array([each is None for each in values], pa.bool_())
        ends = pa.array(_compute_list_offsets(values))
        return BuiltColumn(pa.ListArray.from_arrays(ends, elements, type=self.data_type, mask=mask))

    def restore(self, value: Any) -> JsonValue:
        return [None if each is None else self._element.restore(each) for each in value]


class MapCodec(ValueCodec):
    """A codec for JSON objects with arbitrary keys, whose values have one type."""

    def __init__(self, data_type: pa.DataType, options: CodecOptions) -> None:
        super().__init__(data_type)
        self._value = create_field_codec(data_type.item_field, options)
        self.fast_type = dict[str, self._value.fast_type] | None  # type: ignore[name-defined]
        self.element_bytes = max(self._value.slot_bytes, self._value.element_bytes)

    def measure(self, value: JsonValue) -> int:
        if type(value) is not dict:
            return 0
        return len(value) * self._value.slot_bytes + _measure_all(self._value, value.values())

    def adapt(self, value: JsonValue, *, cast: bool = False) -> AdaptedValue:
        if type(value) is not dict:
            raise MisfitError(f"{describe_json_type(value)} is not valid for type {format_sql_type(self.data_type)}")
        adapted = {key: adapt_nested_value(self._value, each, cast=cast) for key, each in value.items()}
        leftover = {key: each.leftover for key, each in adapted.items() if each.leftover is not NOTHING}
        has_misfit = any(each.has_misfit for each in adapted.values())
        return AdaptedValue({key: each.value for key, each in adapted.items()}, leftover or NOTHING, has_misfit)

    def build(self, values: Sequence[Any], *, is_adapted: bool = False) -> BuiltColumn:
        keys = pa.array([key for each in values if each is not None for key in each], pa.string())
        items = _build_nested(
            self._value, [item for each in values if each is not None for item in each.values()], is_adapted
        )
        ends = pa.array(_compute_list_offsets(values), mask=np.array([*(each is None for each in values), False], bool))
        return BuiltColumn(pa.MapArray.from_arrays(ends, keys, items, type=self.data_type))

    def restore(self, value: Any) -> JsonValue:
        return {key: None if each is None else self._value.restore(each) for key, each in value}


class StructCodec(ValueCodec):
    """A codec for JSON objects with named fields. A field that does not fit is kept as a leftover."""

    def __init__(self, data_type: pa.DataType, options: CodecOptions) -> None:
        super().__init__(data_type)
        self._drops_unknown = options.drops_unknown
        self._fields = [(field.name, get_json_key(field), create_field_codec(field, options)) for field in data_type]
        self._by_source = {source: index for index, (_, source, _) in enumerate(self._fields)}
        self._struct: Any = define_struct(
            [(source, codec) for _, source, codec in self._fields], forbid_unknown_fields=not options.drops_unknown
        )
        self.fast_type = self._struct | None
        codecs = [codec for _, _, codec in self._fields]
        self.slot_bytes = sum(codec.slot_bytes for codec in codecs)
        self.element_bytes = max((codec.element_bytes for codec in codecs), default=0)
        self._with_elements = [(source, codec) for _, source, codec in self._fields if codec.element_bytes]

    def measure(self, value: JsonValue) -> int:
        if type(value) is not dict:
            return 0
        return sum(codec.measure(value.get(source)) for source, codec in self._with_elements)

    def adapt(self, value: JsonValue, *, cast: bool = False) -> AdaptedValue:
        if type(value) is not dict:
            raise MisfitError(f"{describe_json_type(value)} is not valid for type {format_sql_type(self.data_type)}")
        arguments: dict[str, Any] = {}
        leftover: dict[str, Any] = {}
        has_misfit = False
        for key, each in value.items():
            if each is None:
                continue
            index = self._by_source.get(key)
            if index is None:
                if not self._drops_unknown:
                    leftover[key] = each
                continue
            adapted = adapt_nested_value(self._fields[index][2], each, cast=cast)
            arguments[build_attribute_name(index)] = adapted.value
            has_misfit |= adapted.has_misfit
            if adapted.leftover is not NOTHING:
                leftover[key] = adapted.leftover
        return AdaptedValue(self._struct(**arguments), leftover or NOTHING, has_misfit)

    def build(self, values: Sequence[Any], *, is_adapted: bool = False) -> BuiltColumn:
        children = []
        for index, (_, _, codec) in enumerate(self._fields):
            name = build_attribute_name(index)
            missing = codec.missing
            children.append(
                _build_nested(codec, [missing if each is None else getattr(each, name) for each in values], is_adapted)
            )
        mask = pa.array([each is None for each in values], pa.bool_())
        return BuiltColumn(pa.StructArray.from_arrays(children, fields=list(self.data_type), mask=mask))

    def restore(self, value: Any) -> JsonValue:
        return {source: codec.restore(value[name]) for name, source, codec in self._fields if value[name] is not None}


def _measure_all(codec: ValueCodec, values: Iterable[JsonValue]) -> int:
    return sum(map(codec.measure, values)) if codec.element_bytes else 0


def build_attribute_name(index: int) -> str:
    """Return the attribute name for a field of the parser's struct types, since JSON keys may be any text."""
    return f"f{index}"


def define_struct(fields: Sequence[tuple[str, ValueCodec]], *, forbid_unknown_fields: bool = True) -> type:
    """Define a msgspec struct for the typed parser, with a field for each JSON key."""
    names = [build_attribute_name(index) for index in range(len(fields))]
    return msgspec.defstruct(
        "Object",
        [(name, codec.fast_type, codec.missing) for name, (_, codec) in zip(names, fields, strict=True)],
        rename={name: key for name, (key, _) in zip(names, fields, strict=True)},
        forbid_unknown_fields=forbid_unknown_fields,
        gc=False,
    )


def adapt_nested_value(codec: ValueCodec, value: JsonValue, *, cast: bool) -> AdaptedValue:
    """Convert a value nested in a list or object. A value that does not fit becomes null and is kept as a leftover."""
    if value is None:
        return AdaptedValue(codec.missing)
    try:
        adapted = codec.adapt(value, cast=cast)
        if isinstance(codec, ListCodec | MapCodec | StructCodec):
            return adapted
        respelled = codec.build([adapted.value]).respelled_rows and not cast
    except BUILD_ERRORS:
        return AdaptedValue(codec.missing, value, has_misfit=True)
    return AdaptedValue(adapted.value, value) if respelled else adapted


def _build_nested(codec: ValueCodec, values: Sequence[Any], is_adapted: bool) -> pa.Array:
    """Build an array of nested values.

    Raises:
        BUILD_ERRORS: A value does not fit, or its spelling would be lost.
    """
    built = codec.build(values, is_adapted=is_adapted)
    if built.respelled_rows and not is_adapted:
        raise MisfitError("a nested value is spelled differently")
    return built.array


def _compute_list_offsets(values: Sequence[Any]) -> np.ndarray[Any, np.dtype[np.int32]]:
    """Return the offsets array of a list column: the cumulative number of elements, starting with 0."""
    ends = np.zeros(len(values) + 1, np.int32)
    np.cumsum([0 if each is None else len(each) for each in values], dtype=np.int32, out=ends[1:])
    return ends


# Choice of the codec


def create_column_codec(
    column: Column, options: CodecOptions = DEFAULT_OPTIONS, *, rejects_empty: bool = False
) -> ValueCodec:
    """Create the codec of a column. With `rejects_empty`, empty strings do not fit.

    Raises:
        ConfigError: The format or time zone is invalid for the type.
    """
    codec = _create_codec(column.data_type, column.format, column.zone, options)
    return NonEmptyStringCodec(column.data_type) if rejects_empty and isinstance(codec, StringCodec) else codec


def create_field_codec(field: pa.Field, options: CodecOptions) -> ValueCodec:
    """Create the codec of a field that is nested in a column's type."""
    return _create_codec(field.type, get_json_format(field), None, options)


def _create_codec(data_type: pa.DataType, format: str | None, zone: str | None, options: CodecOptions) -> ValueCodec:
    is_a: Any = pa.types
    if zone is not None and not (is_a.is_timestamp(data_type) and data_type.tz is not None):
        raise ConfigError(f"zone: only columns of type timestamp have a time zone, not {format_sql_type(data_type)}")
    if is_a.is_struct(data_type) or is_a.is_list(data_type) or is_a.is_map(data_type):
        _check_format(data_type, format, ())
        nested = StructCodec if is_a.is_struct(data_type) else ListCodec if is_a.is_list(data_type) else MapCodec
        return nested(data_type, options)
    if is_a.is_boolean(data_type):
        _check_format(data_type, format, ())
        return BooleanCodec(data_type)
    if is_a.is_string(data_type):
        _check_format(data_type, format, (JSON_FORMAT,))
        return JsonTextCodec(data_type) if format == JSON_FORMAT else StringCodec(data_type)
    if is_a.is_binary(data_type):
        _check_format(data_type, format, ("base64", "hex"))
        return BinaryCodec(data_type, hexadecimal=format == "hex")
    if is_a.is_date32(data_type):
        return _create_date_codec(data_type, format)
    if is_a.is_timestamp(data_type):
        return _create_timestamp_codec(data_type, format, zone)
    if is_a.is_integer(data_type) or is_a.is_floating(data_type) or is_a.is_decimal(data_type):
        _check_format(data_type, format, ("number", "string"))
        if format == "string":
            return NumberTextCodec(data_type)
        return _create_number_codec(data_type, accepts_non_finite=options.accepts_non_finite)
    raise ConfigError(f"type {format_sql_type(data_type)} is not supported")


def _check_format(
    data_type: pa.DataType, format: str | None, known: Sequence[str], *, allows_patterns: bool = False
) -> None:
    if format is None or format in known or (allows_patterns and "%" in format):
        return
    expected = [*known, *(["a strptime pattern such as %d.%m.%Y"] if allows_patterns else [])]
    reason = f"expected {' or '.join(expected)}" if expected else "this type has no formats"
    suggestion = format_spelling_suggestion(format, known)
    raise ConfigError(f"invalid format {format!r} of type {format_sql_type(data_type)}: {reason}{suggestion}")


def _create_number_codec(data_type: pa.DataType, *, accepts_non_finite: bool = False) -> ValueCodec:
    if pa.types.is_integer(data_type):
        return IntegerCodec(data_type)
    if pa.types.is_decimal(data_type):
        return DecimalCodec(data_type)
    finite = SingleFloatCodec(data_type) if pa.types.is_float32(data_type) else FloatCodec(data_type)
    return NonFiniteFloatCodec(finite) if accepts_non_finite else finite


def _create_timestamp_codec(data_type: pa.DataType, format: str | None, zone: str | None) -> ValueCodec:
    _check_format(data_type, format, (*ISO_STYLES, *EPOCH_UNITS), allows_patterns=True)
    if format in EPOCH_UNITS:
        return EpochCodec(data_type, EPOCH_UNITS[format])
    if format is None or format in ISO_STYLES:
        return IsoTimestampCodec(data_type, ISO_STYLES[format or "iso8601"], zone)
    if "%z" in format and data_type.tz is None:
        raise ConfigError("timestamp_ntz has no offset: remove %z from the format, or use timestamp")
    return PatternCodec(data_type, format, zone)


def _create_date_codec(data_type: pa.DataType, format: str | None) -> ValueCodec:
    _check_format(data_type, format, ("iso8601", "epoch_days"), allows_patterns=True)
    if format == "epoch_days":
        return EpochDaysCodec(data_type)
    return IsoDateCodec(data_type) if format is None or format == "iso8601" else PatternCodec(data_type, format, None)
