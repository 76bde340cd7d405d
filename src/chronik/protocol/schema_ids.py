"""The schema ids that serializers of Confluent's schema registry write into record keys, values and headers.

A key or value starts with a zero byte and the schema's id in four bytes. Newer serializers write the schema's GUID into
a header instead; the header takes precedence. A GUID may also be in front of the key or value.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final, NamedTuple
from uuid import UUID

from chronik.protocol.batch import BatchHeader
from chronik.protocol.budget import DecompressionBudget
from chronik.protocol.errors import CorruptRecords, InvalidRecord
from chronik.protocol.record_scan import NO_KEY, NO_VALUE, RecordsBody, scan_records
from chronik.protocol.varint import read_varint

KEY_HEADER: Final = b"__key_schema_id"
VALUE_HEADER: Final = b"__value_schema_id"

_HEADER_LENGTHS: Final = (len(KEY_HEADER), len(VALUE_HEADER))
_HEADER_SUFFIX: Final = b"_schema_id"

ID_MAGIC, GUID_MAGIC = 0, 1
"""The first byte in front of a schema's id and of its GUID."""

ID_BYTES: Final = 5
GUID_BYTES: Final = 17

NO_HEADERS_BYTES: Final = 1
"""The size of the headers of a record that has none: their number takes a byte."""

HEADER_BYTES_MIN: Final = 2
"""The minimum size of a record header: the lengths of its name and its value."""

RECORD_ERRORS_MAX: Final = 100
"""Maximum number of records without a schema id that are reported for a batch."""

SCHEMAS_PER_BATCH_MAX: Final = 1000
"""Maximum number of different schemas that a batch may name. Checking one takes about 2 µs on the event loop."""

SchemaKey = int | UUID
"""A schema's id, or its GUID."""

_NO_HEADERS: Final[dict[bytes, bytes]] = {}

_unpack_id = struct.Struct(">BI").unpack_from


class SchemaUsage(NamedTuple):
    """The schemas of a batch's keys and values, each with the index of the first record that uses it."""

    keys: dict[SchemaKey, int]
    values: dict[SchemaKey, int]
    unframed: dict[int, str]
    """Reasons why records have no schema, by the index of the record; at most RECORD_ERRORS_MAX."""


def collect_schema_usage(
    header: BatchHeader, body: RecordsBody, budget: DecompressionBudget, *, keys: bool, values: bool
) -> SchemaUsage:
    """Return the schemas that the records of a decompressed batch name. Null keys and values need no schema.

    Raises:
        CorruptRecords: The records are malformed.
        InvalidRecord: The records name too many schemas.
        RecordsTooLarge: The records have more headers than `budget` allows. A header counts as a record.
    """
    usage = SchemaUsage({}, {}, {})
    used_keys, used_values, _ = usage
    for index, (_, _, key_start, key_length, value_start, value_length, end) in enumerate(scan_records(header, body)):
        headers_start = value_start + value_length if value_length > 0 else value_start
        found: dict[bytes, bytes] = _NO_HEADERS
        if end - headers_start > NO_HEADERS_BYTES:
            found = _find_schema_headers(body, headers_start, end, budget)
        try:
            # Ids in front of keys and values are decoded inline, because calls would take half of the run time.
            if keys and key_length != NO_KEY:
                if key_length >= ID_BYTES and body[key_start] == ID_MAGIC and not found:
                    key: SchemaKey = _unpack_id(body, key_start)[1]
                else:
                    key = _read_schema_key("key", body, key_start, key_length, found.get(KEY_HEADER))
                if key not in used_keys:
                    used_keys[key] = index
            if values and value_length != NO_VALUE:
                if value_length >= ID_BYTES and body[value_start] == ID_MAGIC and not found:
                    key = _unpack_id(body, value_start)[1]
                else:
                    key = _read_schema_key("value", body, value_start, value_length, found.get(VALUE_HEADER))
                if key not in used_values:
                    used_values[key] = index
        except ValueError as error:
            usage.unframed[index] = str(error)
            if len(usage.unframed) == RECORD_ERRORS_MAX:
                break
        if len(used_keys) + len(used_values) > SCHEMAS_PER_BATCH_MAX:
            raise InvalidRecord(f"the batch names more than {SCHEMAS_PER_BATCH_MAX} schemas", (index,))
    return usage


def parse_schema_header(value: bytes) -> SchemaKey:
    """Return the schema id or GUID in the value of a record header.

    Raises:
        ValueError: The header has neither.
    """
    if len(value) == GUID_BYTES and value[0] == GUID_MAGIC:
        return UUID(bytes=value[1:])
    if len(value) == ID_BYTES and value[0] == ID_MAGIC:
        return int(_unpack_id(value)[1])
    raise ValueError("its schema header has neither an id nor a GUID")


def _read_schema_key(part: str, body: RecordsBody, start: int, length: int, header: bytes | None) -> SchemaKey:
    if header is not None:
        try:
            return parse_schema_header(header)
        except ValueError:
            raise ValueError(f"the header __{part}_schema_id has neither an id nor a GUID") from None
    if length >= ID_BYTES and body[start] == ID_MAGIC:
        return int(_unpack_id(body, start)[1])
    if length >= GUID_BYTES and body[start] == GUID_MAGIC:
        return UUID(bytes=bytes(body[start + 1 : start + GUID_BYTES]))
    raise ValueError(f"the {part} does not start with a schema id")


def _find_schema_headers(body: RecordsBody, position: int, end: int, budget: DecompressionBudget) -> dict[bytes, bytes]:
    """Return the headers of a record that carry schema ids, by name. `position` is the end of the record's value."""
    if _HEADER_SUFFIX not in bytes(body[position:end]):  # most records: parsing headers takes much longer
        return {}
    try:
        count, position = read_varint(body, position)
        if not 0 <= count * HEADER_BYTES_MIN <= end - position:
            raise CorruptRecords(f"{count} headers do not fit into {end - position} bytes")
        budget.charge_records(count)
        return dict(_iter_schema_headers(body, position, end, count))
    except IndexError:
        raise CorruptRecords("the headers of a record are incomplete") from None


def _iter_schema_headers(body: RecordsBody, position: int, end: int, count: int) -> Iterator[tuple[bytes, bytes]]:
    for _ in range(count):
        name_length, position = read_varint(body, position)
        name_end = position + name_length
        if name_length < 0 or name_end >= end:
            raise CorruptRecords(f"a header name claims {name_length} bytes, but {end - position} are left")
        name = bytes(body[position:name_end]) if name_length in _HEADER_LENGTHS else b""
        value_length, position = read_varint(body, name_end)
        value_end = position + max(value_length, 0)
        if value_end > end:
            raise CorruptRecords(f"a header value claims {value_length} bytes, but {end - position} are left")
        if name in (KEY_HEADER, VALUE_HEADER):
            yield name, bytes(body[position:value_end])
        position = value_end
