"""Conversion of records to JSON: keys and values are shown as JSON, text or base64."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator
from typing import Final

import msgspec

from chronik.console.rest.models.messages import Message, Shown, ShownHeader
from chronik.console.rest.operations.batch_reader import FetchedBatch
from chronik.console.rest.operations.typed_messages import DecodedField, DecodedFields, MessageDecoder
from chronik.protocol.batch import TimestampType
from chronik.protocol.records import Record

RESPONSE_BYTES_MAX: Final = 800_000
"""Approximate maximum size in bytes of all keys and values in one response."""
VALUE_BYTES_MIN: Final = 400
VALUE_BYTES_MAX: Final = 300_000
HEADERS_SHOWN_MAX: Final = 50
HEADER_BYTES_MAX: Final = 1000

NULL: Final = Shown("null", None)
NOT_DECODED: Final = DecodedFields()


def value_bytes_max(count: int) -> int:
    """Return the maximum size in bytes of each key and value in a response with `count` messages."""
    return min(VALUE_BYTES_MAX, max(VALUE_BYTES_MIN, RESPONSE_BYTES_MAX // count // 2))


def format_messages(
    batch: FetchedBatch, first: int, end: int, how: str, bytes_max: int, decoder: MessageDecoder
) -> Iterator[Message]:
    """Yield the messages of a batch with offsets from `first` (inclusive) to `end` (exclusive)."""
    for record in batch.records():
        if first <= record.offset < end:
            decoded = decoder.decode(record) if how == "auto" and not batch.header.is_control else NOT_DECODED
            yield format_message(batch, record, how, bytes_max, decoded)


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
        len(record.key or b"") + len(record.value or b"") + sum(len(n) + len(v or b"") for n, v in record.headers),
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
    if text is None or "\0" in text:
        if how == "text":
            return Shown("text", truncated.decode("utf-8", "replace"), is_truncated)
        return Shown("bytes", b64encode(truncated).decode(), is_truncated)
    is_json = how == "auto" and not is_truncated and text.lstrip()[:1] in ("{", "[", '"') and _is_json(truncated)
    return Shown("json" if is_json else "text", text, is_truncated)


def _is_json(data: bytes) -> bool:
    try:
        msgspec.json.decode(data, type=msgspec.Raw)
    except (msgspec.DecodeError, RecursionError):
        return False
    return True
