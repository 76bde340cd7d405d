"""Records as JSON lines: what `consume --json` prints, `produce --json` reads.

Bytes that are text are written as text, others in Base64, under a name that ends in `_base64`.
"""

from __future__ import annotations

import base64
import json
from typing import Any

from chronik.cli.arguments import WrongInput
from chronik.client.records import ConsumedRecord, OutgoingRecord
from chronik.protocol.records import RecordHeader
from chronik.shown import json_text

_BASE64 = "_base64"


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
    """Ignores topic and offset: a record goes where the command says. Raises WrongInput."""
    try:
        fields = json.loads(line)
    except ValueError as error:
        raise WrongInput(f"not JSON: {error}") from None
    if not isinstance(fields, dict):
        raise WrongInput('expected an object such as {"key": "k", "value": "v"}')
    return OutgoingRecord(
        value=_bytes_from_json(fields, "value"),
        key=_bytes_from_json(fields, "key"),
        headers=tuple(_header_from_json(each) for each in _typed(fields, "headers", list, [])),
        timestamp=_typed(fields, "timestamp", int, None),
        partition=_typed(fields, "partition", int, None),
    )


def _header_from_json(fields: Any) -> RecordHeader:
    if not isinstance(fields, dict) or not isinstance(fields.get("name"), str):
        raise WrongInput('headers: expected objects such as {"name": "n", "value": "v"}')
    return fields["name"], _bytes_from_json(fields, "value")


def _bytes_to_json(name: str, value: bytes | None) -> dict[str, str | None]:
    if value is None:
        return {name: None}
    try:
        return {name: value.decode()}
    except UnicodeDecodeError:
        return {name + _BASE64: base64.b64encode(value).decode()}


def _bytes_from_json(fields: dict[str, Any], name: str) -> bytes | None:
    encoded = _typed(fields, name + _BASE64, str, None)
    if encoded is not None:
        try:
            return base64.b64decode(encoded, validate=True)
        except ValueError:
            raise WrongInput(f"{name + _BASE64}: expected Base64") from None
    text = _typed(fields, name, str, None)
    return None if text is None else str(text).encode()


def _typed(fields: dict[str, Any], name: str, kind: type, default: Any) -> Any:
    value = fields.get(name)
    if value is None:
        return default
    if not isinstance(value, kind) or isinstance(value, bool):
        raise WrongInput(f"{name}: expected {kind.__name__}, not {value!r}")
    return value
