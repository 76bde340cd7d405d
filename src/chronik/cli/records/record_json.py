"""Records as JSON lines, as `consume --format json` prints and `produce --format json` reads them.

Bytes are written as text if they are valid UTF-8, otherwise in Base64 under a name that ends in `_base64`. On input,
keys and values may be any JSON value; its text is taken verbatim, which preserves number formats and key order.
"""

from __future__ import annotations

import base64
import re
from typing import Annotated, Any

from msgspec import DecodeError, Meta, Raw, Struct, ValidationError
from msgspec.json import Decoder

from chronik.cli.arguments import INT64_MAX, InvalidInput, parse_timestamp_ms
from chronik.client.records import ConsumedRecord, OutgoingRecord
from chronik.escaping import to_json_text
from chronik.protocol.records import RecordHeader
from chronik.wording import format_spelling_suggestion

_BASE64 = "_base64"
_UNSET = Raw(b"null")
_UNKNOWN_FIELD = re.compile(r"Object contains unknown field `(.*)`", re.DOTALL)
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
    value: Raw = _UNSET
    value_base64: str | None = None
    headers: list[_JsonHeader] | dict[str, Raw] | None = None
    timestamp: Annotated[int, Meta(ge=NO_TIMESTAMP, le=INT64_MAX)] | str | None = None
    partition: Annotated[int, Meta(ge=0, le=2**31 - 1)] | None = None
    topic: Raw = _UNSET
    """The topic in the output of `consume`. It is accepted but ignored, because the topic is a command-line
    argument."""
    offset: Raw = _UNSET


_LINE_DECODER = Decoder(_JsonRecord)
_STRING_DECODER = Decoder(str)


def record_to_json(record: ConsumedRecord) -> bytes:
    fields: dict[str, Any] = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        **_bytes_to_json("key", record.key),
        **_bytes_to_json("value", record.value),
        "headers": [{"name": name, **_bytes_to_json("value", value)} for name, value in record.headers],
    }
    return to_json_text(fields).encode()


def record_from_json(line: bytes) -> OutgoingRecord:
    """Parse a JSON line; raise InvalidInput if it is not a valid record."""
    fields = _decode_line(line)
    return OutgoingRecord(
        value=_bytes_from_json("value", fields.value, fields.value_base64),
        key=_bytes_from_json("key", fields.key, fields.key_base64),
        headers=_parse_headers(fields.headers),
        timestamp=_parse_timestamp(fields.timestamp),
        partition=fields.partition,
    )


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
