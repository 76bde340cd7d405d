"""The interface of value encoders, which write values in the wire formats of schema registries.

An encoder writes values with one schema. It accepts a value in its JSON form (see `codec`) or an Arrow column. It never
rounds, truncates or wraps a value: one that its type cannot store is an error.
"""

from __future__ import annotations

import base64
import binascii
import importlib
import re
import struct
from collections.abc import Sequence
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final, Protocol

import msgspec

from chronik.errors import ChronikError
from chronik.formats.codec import EPOCH, JsonForm, ValueFormat, WriterSchema
from chronik.formats.framing import ID_MAGIC, encode_message_indexes
from chronik.varint import encode_zigzag, write_varint

if TYPE_CHECKING:
    import pyarrow as pa

_PREFIX: Final = struct.Struct(">BI")


class UnencodableValueError(ChronikError):
    """A value that does not match the schema with which it is to be written."""

    def __init__(self, problem: str) -> None:
        super().__init__(problem)
        self.problem = problem
        self.path: list[str] = []
        """Names and indexes that lead to the wrong part of the value, innermost first."""

    def __str__(self) -> str:
        path = "".join(reversed(self.path)).removeprefix(".")
        return f"{path}: {self.problem}" if path else self.problem


class ValueEncoder(Protocol):
    """An encoder of values with one schema. Not thread-safe."""

    @property
    def message_indexes(self) -> tuple[int, ...]:
        """The path to the message type in a Protobuf schema; empty for other formats."""

    def encode_value(self, value: JsonForm) -> bytes:
        """Encode a value in its JSON form as a payload, without the schema id.

        Raises:
            UnencodableValueError: The value does not match the schema.
        """

    def encode_column(self, column: pa.Array) -> list[bytes | None]:
        """Encode the elements of an Arrow array as payloads. An element that is null, such as a tombstone, is None.

        Raises:
            UnencodableValueError: An element does not match the schema; the message names its index.
        """


_ENCODERS: Final = {
    ValueFormat.AVRO: ("chronik.formats.avro.encoder", "AvroEncoder"),
    ValueFormat.JSON_SCHEMA: ("chronik.formats.json_schema.encoder", "JsonSchemaEncoder"),
    ValueFormat.PROTOBUF: ("chronik.formats.protobuf.encoder", "ProtobufEncoder"),
}


def create_encoder(schema: WriterSchema, message: str | Sequence[int] = ()) -> ValueEncoder:
    """Create the encoder for a schema.

    `message` selects a message type of a Protobuf schema by its full name or its indexes; by default the first one.

    Raises:
        UnsupportedSchemaError: The schema is invalid or not supported, or has no such message type.
        ConfigError: The library for the format is not installed.
    """
    module, name = _ENCODERS[schema.format]
    create = getattr(importlib.import_module(module), name)
    encoder: ValueEncoder = create(schema, message) if schema.format is ValueFormat.PROTOBUF else create(schema)
    return encoder


# Wire format


def build_prefix(schema_id: int, message_indexes: Sequence[int] = ()) -> bytes:
    """Return the bytes in front of all payloads with a schema: its id and, for Protobuf, the message indexes."""
    indexes = encode_message_indexes(message_indexes) if message_indexes else b""
    return _PREFIX.pack(ID_MAGIC, schema_id) + indexes


def write_zigzag(out: bytearray, value: int) -> None:
    """Append a 64-bit integer as a zigzag varint."""
    write_varint(out, encode_zigzag(value))


# JSON

_json_decoder: Final = msgspec.json.Decoder(float_hook=Decimal)


def decode_json(text: bytes) -> JsonForm:
    """Decode JSON text to a JSON form. Numbers with a fraction become decimals, so that no digit is lost.

    Raises:
        UnencodableValueError: The text is not valid JSON.
    """
    try:
        return _json_decoder.decode(text)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise UnencodableValueError(f"not valid JSON: {error}") from None


# Scalar values

_TIME_PATTERN: Final = re.compile(r"(\d\d):(\d\d)(?::(\d\d)(?:\.(\d{1,9}))?)?")
_TIMESTAMP_PATTERN: Final = re.compile(
    r"(\d{4}-\d\d-\d\d)(?:[T ](\d\d:\d\d(?::\d\d(?:\.\d{1,9})?)?))?\s?(Z|[+-]\d\d:?\d\d)?"
)
NANOSECONDS_PER_SECOND: Final = 1_000_000_000
NANOSECONDS_PER_DAY: Final = 86_400 * NANOSECONDS_PER_SECOND


def build_type_error(expected: str, value: Any) -> UnencodableValueError:
    """Return the error for a value that is not of the expected type."""
    shown = repr(str(value) if isinstance(value, Decimal) else value)
    return UnencodableValueError(f"expected {expected}, got {shown if len(shown) <= 80 else shown[:77] + '...'}")


_WHOLE_DIGITS_MAX: Final = 100

DECIMAL_DIGITS_MAX: Final = 4000
"""Maximum digits of a decimal. Python limits conversions of text to integers to 4,300 digits."""


def _is_whole(value: Any) -> bool:
    """Return whether a value is a number without a fraction. A large exponent would take long to expand."""
    if isinstance(value, Decimal):
        return value.adjusted() < _WHOLE_DIGITS_MAX and value == value.to_integral_value()
    return isinstance(value, float) and value.is_integer()


def to_int(value: Any, bits: int, name: str, *, is_signed: bool = True) -> int:
    """Return an integer that fits in the given number of bits."""
    if type(value) is not int:
        if not _is_whole(value):  # 1.0 is an integer in JSON
            raise build_type_error(name, value)
        value = int(value)
    low, high = (-(1 << bits - 1), 1 << bits - 1) if is_signed else (0, 1 << bits)
    if not low <= value < high:
        raise UnencodableValueError(f"{value} is out of range for {name}")
    return int(value)


_NON_FINITE: Final = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}
_SINGLE: Final = struct.Struct("<f")


def to_float(value: Any, name: str = "double") -> float:
    """Return a number as a float64. An integer must be representable exactly."""
    if isinstance(value, float):
        return value
    if isinstance(value, str) and value in _NON_FINITE:
        return _NON_FINITE[value]
    if isinstance(value, bool) or not isinstance(value, int | Decimal):
        raise build_type_error(name, value)
    try:
        found = float(value)
    except OverflowError:
        found = float("inf")
    if found in (float("inf"), float("-inf")) or (isinstance(value, int) and int(found) != value):
        raise UnencodableValueError(f"{value} is out of range for {name}")
    return found


def to_single_float(value: Any, name: str = "float", *, is_exact: bool = False) -> float:
    """Return a number that fits into a float32. With `is_exact`, it must be representable exactly."""
    found = to_float(value, name)
    try:
        rounded: float = _SINGLE.unpack(_SINGLE.pack(found))[0]
    except OverflowError:
        raise UnencodableValueError(f"{value} is out of range for {name}") from None
    if rounded != found and found == found and (is_exact or isinstance(value, int)):
        raise UnencodableValueError(f"{value} cannot be stored as {name} without loss")
    return found


def to_bytes(value: Any, name: str = "a Base64 string") -> bytes:
    """Return bytes, which the JSON form has in Base64."""
    if isinstance(value, bytes):
        return value
    if not isinstance(value, str):
        raise build_type_error(name, value)
    try:
        return base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        raise build_type_error(name, value) from None


def to_utf8(value: Any, name: str = "a string") -> bytes:
    """Return a string in UTF-8."""
    if not isinstance(value, str):
        raise build_type_error(name, value)
    try:
        return value.encode()
    except UnicodeEncodeError:
        raise UnencodableValueError("the string contains a lone surrogate") from None


def to_unscaled(value: Any, precision: int, scale: int) -> int:
    """Return the unscaled integer of a decimal with the given precision and scale."""
    name = f"decimal({precision}, {scale})"
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        raise build_type_error(name, value)
    if isinstance(value, float):
        value = Decimal(repr(value))
    elif isinstance(value, int):
        value = Decimal(value)
    sign, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int):
        raise build_type_error(name, value)
    if len(digits) > DECIMAL_DIGITS_MAX:
        raise UnencodableValueError(f"a number has {len(digits)} digits, expected at most {DECIMAL_DIGITS_MAX}")
    unscaled: int = int("".join(map(str, digits)) or "0")
    shift = exponent + scale
    if unscaled and abs(shift) > len(digits) + precision:
        raise UnencodableValueError(f"{value} cannot be stored as {name} without loss")
    if shift >= 0:
        unscaled *= int(10**shift)
    else:
        unscaled, rest = divmod(unscaled, 10 ** min(-shift, len(digits) + 1))
        if rest:
            raise UnencodableValueError(f"{value} cannot be stored as {name} without loss")
    if unscaled >= 10**precision:
        raise UnencodableValueError(f"{value} is out of range for {name}")
    return -unscaled if sign else unscaled


def to_days(value: Any) -> int:
    """Return a date as days since 1970-01-01."""
    if isinstance(value, str):
        try:
            value = date.fromisoformat(value)
        except ValueError:
            raise build_type_error("a date such as 2026-11-19", value) from None
    if isinstance(value, datetime) or not isinstance(value, date):
        raise build_type_error("a date such as 2026-11-19", value)
    return value.toordinal() - EPOCH.toordinal()


def to_time_of_day(value: Any, unit_ns: int) -> int:
    """Return a time of day in units of `unit_ns` nanoseconds since midnight."""
    if isinstance(value, time):
        seconds = value.hour * 3600 + value.minute * 60 + value.second
        return _divide_exactly(seconds * NANOSECONDS_PER_SECOND + value.microsecond * 1000, unit_ns, value)
    match = _TIME_PATTERN.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise build_type_error("a time such as 08:30:00", value)
    return _divide_exactly(_parse_time(match), unit_ns, value)


def _parse_time(match: re.Match[str]) -> int:
    hours, minutes, seconds = int(match[1]), int(match[2]), int(match[3] or 0)
    if hours > 23 or minutes > 59 or seconds > 59:
        raise build_type_error("a time such as 08:30:00", match[0])
    return (hours * 3600 + minutes * 60 + seconds) * NANOSECONDS_PER_SECOND + int((match[4] or "").ljust(9, "0"))


def to_timestamp(value: Any, unit_ns: int, *, is_utc: bool) -> int:
    """Return a timestamp in units of `unit_ns` nanoseconds since 1970-01-01T00:00:00."""
    expected = "a timestamp such as 2026-11-19T08:30:00" + ("Z" if is_utc else "")
    if isinstance(value, datetime):
        if (value.tzinfo is None) is is_utc:
            raise build_type_error(expected, value)
        passed = value.astimezone(UTC).replace(tzinfo=None) - EPOCH if is_utc else value - EPOCH
        microseconds = (passed.days * 86_400 + passed.seconds) * 1_000_000 + passed.microseconds
        return _divide_exactly(microseconds * 1000, unit_ns, value)
    match = _TIMESTAMP_PATTERN.fullmatch(value) if isinstance(value, str) else None
    if match is None or (match[3] is None) is is_utc:
        raise build_type_error(expected, value)
    time_match = _TIME_PATTERN.fullmatch(match[2] or "00:00")
    assert time_match is not None
    nanoseconds = to_days(match[1]) * NANOSECONDS_PER_DAY + _parse_time(time_match)
    if match[3] and match[3] != "Z":
        sign = -1 if match[3][0] == "+" else 1
        minutes = int(match[3][1:3]) * 60 + int(match[3][-2:])
        nanoseconds += sign * minutes * 60 * NANOSECONDS_PER_SECOND
    return _divide_exactly(nanoseconds, unit_ns, value)


def _divide_exactly(nanoseconds: int, unit_ns: int, value: Any) -> int:
    units, rest = divmod(nanoseconds, unit_ns)
    if rest:
        name = {1_000_000: "milliseconds", 1000: "microseconds"}.get(unit_ns, "seconds")
        raise UnencodableValueError(f"{value} cannot be stored in {name} without loss")
    return units
