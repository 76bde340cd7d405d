"""Records as JSON lines: what `consume --format json` prints, `produce --format json` reads.

Bytes that are text are written as text, others in Base64, under a name that ends in `_base64`. Who writes such lines by
hand or by program may give other JSON than a string for a key or a value: it is taken as it stands there, so that no
digit of a number and no order of names is lost.
"""

from __future__ import annotations

import base64
import re
from typing import Annotated, Any

from msgspec import DecodeError, Meta, Raw, Struct, ValidationError
from msgspec.json import Decoder

from chronik.cli.arguments import WrongInput
from chronik.cli.records.moments import INT64_MAX, milliseconds
from chronik.client.records import ConsumedRecord, OutgoingRecord
from chronik.protocol.records import RecordHeader
from chronik.shown import json_text
from chronik.wording import suggestion

_BASE64 = "_base64"
_UNSET = Raw(b"null")
_UNKNOWN_FIELD = re.compile(r"Object contains unknown field `(.*)`", re.DOTALL)
NO_TIMESTAMP = -1
"""What records have that come from the time before timestamps."""


class _Header(Struct, forbid_unknown_fields=True):
    name: str
    value: Raw = _UNSET
    value_base64: str | None = None


class _Line(Struct, forbid_unknown_fields=True):
    """A record as `consume --format json` prints it. An unknown field is an error: a misspelled `value` would otherwise
    write a tombstone."""

    key: Raw = _UNSET
    key_base64: str | None = None
    value: Raw = _UNSET
    value_base64: str | None = None
    headers: list[_Header] | dict[str, Raw] | None = None
    timestamp: Annotated[int, Meta(ge=NO_TIMESTAMP, le=INT64_MAX)] | str | None = None
    partition: Annotated[int, Meta(ge=0, le=2**31 - 1)] | None = None
    topic: Raw = _UNSET
    """Accepted and ignored, like the offset: the command's arguments choose the topic."""
    offset: Raw = _UNSET


_LINES = Decoder(_Line)
_TEXTS = Decoder(str)


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
    return json_text(fields).encode()


def record_from_json(line: bytes) -> OutgoingRecord:
    """Raises WrongInput."""
    fields = _decoded(line)
    return OutgoingRecord(
        value=_bytes_from_json("value", fields.value, fields.value_base64),
        key=_bytes_from_json("key", fields.key, fields.key_base64),
        headers=_headers(fields.headers),
        timestamp=_timestamp(fields.timestamp),
        partition=fields.partition,
    )


def _decoded(line: bytes) -> _Line:
    try:
        line.decode()  # what is taken as it stands there is not looked at otherwise
        return _LINES.decode(line)
    except ValidationError as error:
        raise WrongInput(_explained(str(error))) from None
    except (DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise WrongInput(f"not JSON: {error}") from None


def _explained(error: str) -> str:
    """Return msgspec's message with the field's path first: `partition: expected int, got str`."""
    what, _, path = error.partition(" - at `$")
    path = path.rstrip("`").lstrip(".")
    if unknown := _UNKNOWN_FIELD.fullmatch(what):
        fields = (_Header if path.startswith("headers[") else _Line).__struct_fields__
        where = f"{path}: " if path else ""
        return f"{where}unknown field {unknown[1]!r}{suggestion(unknown[1], fields) or _listed(fields)}"
    if not path:
        return 'expected an object such as {"key": "k", "value": "v"}'
    what = what.replace("`", "")
    return f"{path}: {what[:1].lower()}{what[1:]}"


def _listed(fields: tuple[str, ...]) -> str:
    return f"; expected one of {', '.join(fields)}"


def _headers(headers: list[_Header] | dict[str, Raw] | None) -> tuple[RecordHeader, ...]:
    if isinstance(headers, dict):
        return tuple((name, _bytes_from_json("headers", value, None)) for name, value in headers.items())
    found = headers or ()
    return tuple((each.name, _bytes_from_json("headers: value", each.value, each.value_base64)) for each in found)


def _timestamp(given: int | str | None) -> int | None:
    if not isinstance(given, str):
        return given
    found = milliseconds(given)
    if found < 0:
        raise WrongInput(f"timestamp: expected no time before 1970, not {given!r}")
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
            raise WrongInput(f"{name} and {name + _BASE64} exclude each other")
        try:
            return base64.b64decode(encoded, validate=True)
        except ValueError:
            raise WrongInput(f"{name + _BASE64}: expected Base64") from None
    text = bytes(given)
    if text == b"null":
        return None
    return _TEXTS.decode(text).encode() if text.startswith(b'"') else text
