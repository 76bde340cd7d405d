"""Conversion of records to JSON: keys and values are shown as JSON, text or base64."""

from __future__ import annotations

import re
from base64 import b64encode
from typing import Final

import msgspec

from chronik.console.rest.models.messages import Message, Shown, ShownHeader
from chronik.console.rest.operations.batch_reader import FetchedBatch
from chronik.console.rest.operations.record_scan import Convert, measure_record
from chronik.console.rest.operations.typed_messages import NOT_DECODED, DecodedField, DecodedFields, MessageDecoder
from chronik.protocol.batch import TimestampType
from chronik.protocol.records import Record

RESPONSE_BYTES_MAX: Final = 800_000
"""Approximate maximum size in bytes of all keys and values in one response."""
VALUE_BYTES_MIN: Final = 400
VALUE_BYTES_MAX: Final = 300_000
HEADERS_SHOWN_MAX: Final = 50
HEADER_BYTES_MAX: Final = 1000

_CONTROL_CHARACTERS: Final = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")

NULL: Final = Shown("null", None)


def value_bytes_max(count: int) -> int:
    """Return the maximum size in bytes of each key and value in a response with `count` messages."""
    return min(VALUE_BYTES_MAX, max(VALUE_BYTES_MIN, RESPONSE_BYTES_MAX // count // 2))


def create_converter(how: str, bytes_max: int, decoder: MessageDecoder) -> Convert[Message]:
    """Return a function that converts records to messages with keys and values up to `bytes_max`."""

    def convert(batch: FetchedBatch, record: Record, decoded: DecodedFields) -> Message:
        if how == "auto" and decoded is NOT_DECODED and not batch.header.is_control:
            decoded = decoder.decode(record)
        return format_message(batch, record, how, bytes_max, decoded if how == "auto" else NOT_DECODED)

    return convert


def format_message(
    batch: FetchedBatch, record: Record, how: str, bytes_max: int, decoded: DecodedFields = NOT_DECODED
) -> Message:
    """Convert a record to a message."""
    header = batch.header
    return Message(
        batch.partition.partition,
        record.offset,
        record.timestamp,
        "append" if header.timestamp_type is TimestampType.LOG_APPEND_TIME else "create",
        _format_field(record.key, how, min(bytes_max, max(VALUE_BYTES_MIN, bytes_max // 4)), decoded.key),
        _format_field(record.value, how, bytes_max, decoded.value),
        [
            ShownHeader(name, format_value(value, how, HEADER_BYTES_MAX))
            for name, value in record.headers[:HEADERS_SHOWN_MAX]
        ],
        measure_record(record),
        header.is_transactional,
        header.is_control,
    )


def _format_field(data: bytes | None, how: str, bytes_max: int, decoded: DecodedField | None) -> Shown:
    if decoded is None:
        return format_value(data, how, bytes_max)
    if decoded.json is None:
        shown = format_value(data, how, bytes_max)
        return Shown(shown.kind, shown.text, shown.truncated, decoded.schema)
    if len(decoded.json) <= bytes_max:
        return Shown("json", decoded.json.decode(), False, decoded.schema)
    return Shown("text", decoded.json[:bytes_max].decode("utf-8", "ignore"), True, decoded.schema)


def format_value(data: bytes | memoryview | None, how: str, bytes_max: int) -> Shown:
    """Convert a key or value to a displayable form, truncated to `bytes_max`."""
    if data is None:
        return NULL
    truncated = bytes(data[:bytes_max])
    is_truncated = len(data) > bytes_max
    if how == "bytes":
        return Shown("bytes", b64encode(truncated).decode(), is_truncated)
    try:
        text = truncated.decode("utf-8", "ignore" if is_truncated else "strict")
    except UnicodeDecodeError:
        text = None
    if text is None or not _is_mostly_printable(text):
        if how == "text":
            return Shown("text", truncated.decode("utf-8", "replace"), is_truncated)
        return Shown("bytes", b64encode(truncated).decode(), is_truncated)
    is_json = how == "auto" and not is_truncated and text.lstrip()[:1] in ("{", "[", '"') and _is_json(truncated)
    return Shown("json" if is_json else "text", text, is_truncated)


def _is_mostly_printable(text: str) -> bool:
    """Return whether at most a third of the characters are control characters, as in text but not in binary numbers."""
    return len(_CONTROL_CHARACTERS.findall(text)) * 3 <= len(text)


def _is_json(data: bytes) -> bool:
    try:
        msgspec.json.decode(data, type=msgspec.Raw)
    except (msgspec.DecodeError, RecursionError):
        return False
    return True
