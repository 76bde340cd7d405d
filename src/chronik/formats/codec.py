"""The interface of value decoders, and the two forms in which they return values.

A decoder reads the payloads that were written with one schema. It has two paths, which give equal results:

- `decode_column` decodes many payloads to an Arrow array. It is used by tables and queries.
- `decode_value` decodes one payload to its JSON form, without pyarrow. It is used by the console and the CLI.

The Arrow types are those that a table can store, and each has one JSON form:

| Arrow type                      | JSON form                                                                       |
|---------------------------------|---------------------------------------------------------------------------------|
| bool, int8 to int64, string     | the same                                                                        |
| float32, float64                | a number; NaN and the infinities are the strings `NaN`, `Infinity` and `-Infinity` |
| decimal128(precision, scale)    | a `Decimal`, which `encode_json` writes as a number                             |
| binary                          | a Base64 string                                                                 |
| date32                          | a string such as `2026-11-19`                                                   |
| timestamp(us, UTC)              | a string such as `2026-11-19T08:30:00Z`, with 0, 3 or 6 fractional digits |
| timestamp(us)                   | the same without `Z`                                                            |
| list                            | a list                                                                          |
| map(string, …)                  | an object                                                                       |
| struct                          | an object; fields that are null may be missing                                  |
| string with `JSON_TEXT`         | any JSON value; the array contains its text                                     |

A value that its Arrow type cannot store without loss, such as a timestamp beyond year 9999, is null in the array and
returned in `DecodedColumn.leftovers` instead. It does not fail its record.
"""

from __future__ import annotations

import importlib
import struct
from collections.abc import Mapping, Sequence
from datetime import date, datetime, timedelta
from decimal import MAX_EMAX, MAX_PREC, MIN_EMIN, Context, Decimal
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

import msgspec

from chronik.errors import ChronikError

if TYPE_CHECKING:
    import pyarrow as pa

JsonForm = Any
"""A value in its JSON form: None, bool, int, float, Decimal, str, and lists and dicts of these."""

FORMAT_KEY: Final = b"chronik.format"
"""Key of Arrow field metadata with the format of a field's values in JSON."""

JSON_TEXT: Final = b"json"
"""Value of `FORMAT_KEY` for string fields that contain any JSON value as text."""

ALIASES_KEY: Final = b"chronik.aliases"
"""Key of Arrow field metadata with a JSON list of the field's former names (Avro's `aliases`)."""

NUMBER_KEY: Final = b"chronik.number"
"""Key of Arrow field metadata with the number that identifies a field instead of its name (Protobuf)."""

MESSAGE_KEY: Final = b"chronik.message"
"""Key of Arrow field metadata with the message type to which `NUMBER_KEY` belongs, of fields in nested messages."""

DEFAULT_KEY: Final = b"chronik.default"
"""Key of Arrow field metadata with the JSON form of the value that a schema defines for records without the field."""

DECIMAL_PRECISION_MAX: Final = 38
"""Maximum precision of decimals in tables. Decimals with a higher one are JSON text."""


class ValueFormat(StrEnum):
    """A format of values that a decoder exists for."""

    AVRO = "avro"
    JSON_SCHEMA = "json-schema"
    PROTOBUF = "protobuf"


class ReferencedSchema(NamedTuple):
    """A schema to which another schema refers by name, directly or through other references."""

    name: str
    """Avro full name, JSON Schema URI or Protobuf import path."""
    text: str


class WriterSchema(NamedTuple):
    """The schema with which values were written."""

    format: ValueFormat
    text: str
    references: tuple[ReferencedSchema, ...] = ()
    """All referenced schemas, each before the schemas that refer to it."""


class UnsupportedSchemaError(ChronikError):
    """A schema that is not valid, or that no decoder supports; its values become dead-letter records."""


class UndecodableValueError(ChronikError):
    """A value that was not written with the schema that it names."""


class DecodedColumn(NamedTuple):
    """The result of decoding payloads in bulk."""

    array: pa.Array
    """An array of the decoder's Arrow type, with one element for each payload. It is null where there is an error."""
    errors: dict[int, str]
    """Error message of each payload that cannot be decoded, by its index."""
    leftovers: dict[int, JsonForm]
    """The JSON forms of values that their Arrow types cannot store, by index of the payload.

    Merging a leftover over the JSON form of the array's element gives the JSON form of the payload: objects are merged
    recursively, and any other value replaces the old one. If an element of a list does not fit, the whole list is a
    leftover.
    """


class ValueDecoder(Protocol):
    """A decoder of the payloads that were written with one schema. Not thread-safe."""

    @property
    def arrow_field(self) -> pa.Field:
        """The Arrow type of the payloads, usually a struct, and metadata. Names are those of the schema, unchanged.

        Nested fields have the metadata `FORMAT_KEY`, `ALIASES_KEY`, `NUMBER_KEY`, `MESSAGE_KEY` and `DEFAULT_KEY`
        where they apply.
        """

    def decode_column(self, payloads: pa.BinaryArray) -> DecodedColumn:
        """Decode payloads, none of which is null, to an Arrow array. A payload that cannot be decoded is an error.

        Raises:
            ColumnTooLargeError: The values of several payloads are too large. See `decoded_size.decode_in_parts`.
        """

    def decode_value(self, payload: bytes) -> JsonForm:
        """Decode one payload to its JSON form. Fields that are null are present as None.

        Raises:
            UndecodableValueError: The payload was not written with this schema.
        """


def create_decoder(schema: WriterSchema, message_indexes: Sequence[int] = ()) -> ValueDecoder:
    """Create the decoder for a writer's schema. `message_indexes` selects a message type of a Protobuf schema.

    Raises:
        UnsupportedSchemaError: The schema is invalid or not supported.
        ConfigError: The library for the format is not installed.
    """
    module, name = _DECODERS[schema.format]
    # The libraries are large, so that each is imported with the first schema of its format.
    create = getattr(importlib.import_module(module), name)
    if schema.format is ValueFormat.PROTOBUF:
        decoder: ValueDecoder = create(schema, tuple(message_indexes))
    else:
        decoder = create(schema)
    return decoder


_DECODERS: Final[Mapping[ValueFormat, tuple[str, str]]] = {
    ValueFormat.AVRO: ("chronik.formats.avro.decoder", "AvroDecoder"),
    ValueFormat.JSON_SCHEMA: ("chronik.formats.json_schema.decoder", "JsonSchemaDecoder"),
    ValueFormat.PROTOBUF: ("chronik.formats.protobuf.decoder", "ProtobufDecoder"),
}
"""Module and class of the decoder of each format."""

# JSON forms

_encoder: Final = msgspec.json.Encoder(decimal_format="number")


def encode_json(value: JsonForm) -> bytes:
    """Encode a JSON form as JSON text."""
    return _encoder.encode(value)


EPOCH: Final = datetime(1970, 1, 1)
DAY_MIN: Final = (date(1, 1, 1) - EPOCH.date()).days
DAY_MAX: Final = (date(9999, 12, 31) - EPOCH.date()).days
MICROSECONDS_PER_DAY: Final = 86_400_000_000
MICROSECONDS_MIN: Final = DAY_MIN * MICROSECONDS_PER_DAY
MICROSECONDS_MAX: Final = (DAY_MAX + 1) * MICROSECONDS_PER_DAY - 1


def format_date(days: int) -> str | None:
    """Return the JSON form of a date in days since 1970-01-01, or None if it is outside of years 1 to 9999."""
    if not DAY_MIN <= days <= DAY_MAX:
        return None
    return (EPOCH.date() + timedelta(days)).isoformat()


def format_timestamp(microseconds: int, *, is_utc: bool) -> str | None:
    """Return the JSON form of a timestamp in microseconds since 1970, or None if it is outside of years 1 to 9999."""
    if not MICROSECONDS_MIN <= microseconds <= MICROSECONDS_MAX:
        return None
    value = EPOCH + timedelta(microseconds=microseconds)
    fraction = value.microsecond
    timespec = "microseconds" if fraction % 1000 else "milliseconds" if fraction else "seconds"
    return value.isoformat(timespec=timespec) + ("Z" if is_utc else "")


_NON_FINITE: Final[Mapping[str, str]] = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}


def format_float(value: float) -> float | str:
    """Return the JSON form of a float64."""
    return _NON_FINITE.get(repr(value), value)


def format_single_float(value: float) -> float | str:
    """Return the JSON form of a float32, given as a float64: the number with the fewest digits that identifies it."""
    if repr(value) in _NON_FINITE:
        return _NON_FINITE[repr(value)]
    for digits in (6, 7, 8):
        short = float(f"{value:.{digits}g}")
        if abs(short) < 3.5e38 and _round_to_single(short) == value:
            return short
    return float(f"{value:.9g}")


_SINGLE: Final = struct.Struct("<f")


def _round_to_single(value: float) -> float | None:
    try:
        rounded: float = _SINGLE.unpack(_SINGLE.pack(value))[0]
    except OverflowError:
        return None
    return rounded


def format_decimal(unscaled: int, scale: int) -> Decimal:
    """Return the JSON form of a decimal."""
    # A decimal context would round to its precision.
    return Decimal(unscaled).scaleb(-scale, _EXACT_CONTEXT)


_EXACT_CONTEXT: Final = Context(prec=MAX_PREC, Emax=MAX_EMAX, Emin=MIN_EMIN)
