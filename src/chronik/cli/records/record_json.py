"""Records as JSON lines, as `consume --format json` prints and `produce --format json` reads them.

Bytes are written as text if they are valid UTF-8, otherwise in Base64 under a name that ends in `_base64`. On input,
keys and values may be any JSON value; its text is taken verbatim, which preserves number formats and key order.

Typed keys and values are written as JSON, with their schema in `key_schema` and `value_schema`. On input, these fields
select the schema with which the JSON is encoded again. `key_error` and `value_error` say why one was not decoded.
"""

from __future__ import annotations

import base64
import re
from typing import Annotated, Any

from msgspec import DecodeError, Meta, Raw, Struct, ValidationError
from msgspec.json import Decoder, format

from chronik.cli.arguments import INT64_MAX, InvalidInput, parse_timestamp_ms
from chronik.cli.records.record_encoder import FieldEncoder, NamedSchema, RecordEncoders
from chronik.client.records import ConsumedRecord, OutgoingRecord
from chronik.escaping import escape_json_text, to_json_text
from chronik.formats.typed_values import TypedFields, TypedValue, UndecodedValue
from chronik.protocol.records import RecordHeader
from chronik.wording import format_spelling_suggestion

_BASE64 = "_base64"
_UNSET = Raw(b"null")
_UNKNOWN_FIELD = re.compile(r"Object contains unknown field `(.*)`", re.DOTALL)
NOT_DECODED = TypedFields()
NO_TIMESTAMP = -1
"""Timestamp of a record that has none, because it is stored in an old message format."""


class _JsonHeader(Struct, forbid_unknown_fields=True):
    name: str
    value: Raw = _UNSET
    value_base64: str | None = None


class _JsonRecord(Struct, forbid_unknown_fields=True):
    """A record as a JSON object. Unknown fields are rejected, since a misspelled `value` would produce a tombstone."""

    key: Raw = _UNSET
    key_base64: str | None = None
    key_schema: NamedSchema | None = None
    key_error: str | None = None
    """Why the key was not decoded. It is accepted but ignored, because the key itself is unchanged."""
    value: Raw = _UNSET
    value_base64: str | None = None
    value_schema: NamedSchema | None = None
    value_error: str | None = None
    headers: list[_JsonHeader] | dict[str, Raw] | None = None
    timestamp: Annotated[int, Meta(ge=NO_TIMESTAMP, le=INT64_MAX)] | str | None = None
    partition: Annotated[int, Meta(ge=0, le=2**31 - 1)] | None = None
    topic: Raw = _UNSET
    """The topic in the output of `consume`. It is accepted but ignored, because the topic is a command-line
    argument."""
    offset: Raw = _UNSET


_LINE_DECODER = Decoder(_JsonRecord)
_STRING_DECODER = Decoder(str)


def record_to_json(record: ConsumedRecord, typed: TypedFields = NOT_DECODED) -> bytes:
    """Format a record as a line of JSON; `typed` are its decoded key and value."""
    fields: dict[str, str] = {
        "topic": to_json_text(record.topic),
        "partition": str(record.partition),
        "offset": str(record.offset),
        "timestamp": str(record.timestamp),
        **_format_field("key", record.key, typed.key),
        **_format_field("value", record.value, typed.value),
        "headers": to_json_text([{"name": name, **_bytes_to_json("value", value)} for name, value in record.headers]),
    }
    return ("{" + ", ".join(f'"{name}": {text}' for name, text in fields.items()) + "}").encode()


def _format_field(name: str, data: bytes | None, typed: TypedValue | UndecodedValue | None) -> dict[str, str]:
    """Return the fields of a key or value, with values as JSON text."""
    if isinstance(typed, TypedValue):
        text = escape_json_text(format(typed.json, indent=0).decode())
        return {name: text, f"{name}_schema": to_json_text(_describe_schema(typed))}
    plain = {field: to_json_text(value) for field, value in _bytes_to_json(name, data).items()}
    return plain if typed is None else {**plain, f"{name}_error": to_json_text(typed.reason)}


def _describe_schema(typed: TypedValue) -> dict[str, Any]:
    named = {"id": typed.schema} if isinstance(typed.schema, int) else {"guid": str(typed.schema)}
    indexes = {"message_indexes": typed.message_indexes} if typed.message_indexes else {}
    return {**named, "format": typed.format.value, **indexes}


def record_from_json(line: bytes, encoders: RecordEncoders | None = None) -> OutgoingRecord:
    """Parse a JSON line, and encode typed keys and values.

    Raises:
        InvalidInput: The line is not a valid record.
    """
    fields = _decode_line(line)
    headers = _parse_headers(fields.headers)
    value = _bytes_from_json("value", fields.value, fields.value_base64)
    key = _bytes_from_json("key", fields.key, fields.key_base64)
    if encoders is not None:
        value = _encode_field(value, fields.value, fields.value_schema, headers, encoders.value)
        key = _encode_field(key, fields.key, fields.key_schema, headers, encoders.key)
    return OutgoingRecord(value, key, headers, _parse_timestamp(fields.timestamp), fields.partition)


def _encode_field(
    plain: bytes | None,
    given: Raw,
    schema: NamedSchema | None,
    headers: tuple[RecordHeader, ...],
    encoder: FieldEncoder,
) -> bytes | None:
    """Encode a key or value that is given as JSON, unless no schema is known for it."""
    if plain is None or given is _UNSET:
        return plain
    encoded = encoder.encode(bytes(given), schema, headers)
    return plain if encoded is None else encoded


def _decode_line(line: bytes) -> _JsonRecord:
    try:
        line.decode()  # raw values are not validated otherwise
        return _LINE_DECODER.decode(line)
    except ValidationError as error:
        raise InvalidInput(_format_error(str(error))) from None
    except (DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidInput(f"not valid JSON: {error}") from None


def _format_error(error: str) -> str:
    """Format a msgspec error with the path of the field first: `partition: expected int, got str`."""
    what, _, path = error.partition(" - at `$")
    path = path.rstrip("`").lstrip(".")
    if unknown := _UNKNOWN_FIELD.fullmatch(what):
        fields = (_JsonHeader if path.startswith("headers[") else _JsonRecord).__struct_fields__
        where = f"{path}: " if path else ""
        suggestion = format_spelling_suggestion(unknown[1], fields) or _expected_fields(fields)
        return f"{where}unknown field {unknown[1]!r}{suggestion}"
    if not path:
        return 'expected an object such as {"key": "k", "value": "v"}'
    what = what.replace("`", "")
    return f"{path}: {what[:1].lower()}{what[1:]}"


def _expected_fields(fields: tuple[str, ...]) -> str:
    return f"; expected one of {', '.join(fields)}"


def _parse_headers(headers: list[_JsonHeader] | dict[str, Raw] | None) -> tuple[RecordHeader, ...]:
    if isinstance(headers, dict):
        return tuple((name, _bytes_from_json("headers", value, None)) for name, value in headers.items())
    found = headers or ()
    return tuple((each.name, _bytes_from_json("headers: value", each.value, each.value_base64)) for each in found)


def _parse_timestamp(given: int | str | None) -> int | None:
    if not isinstance(given, str):
        return given
    found = parse_timestamp_ms(given)
    if found < 0:
        raise InvalidInput(f"timestamp: expected a time from 1970 on, got {given!r}")
    return found


def _bytes_to_json(name: str, value: bytes | None) -> dict[str, str | None]:
    if value is None:
        return {name: None}
    try:
        return {name: value.decode()}
    except UnicodeDecodeError:
        return {name + _BASE64: base64.b64encode(value).decode()}


def _bytes_from_json(name: str, given: Raw, encoded: str | None) -> bytes | None:
    if encoded is not None:
        if given is not _UNSET:
            raise InvalidInput(f"{name} and {name + _BASE64} are mutually exclusive")
        try:
            return base64.b64decode(encoded, validate=True)
        except ValueError:
            raise InvalidInput(f"{name + _BASE64}: expected Base64") from None
    text = bytes(given)
    if text == b"null":
        return None
    return _STRING_DECODER.decode(text).encode() if text.startswith(b'"') else text
