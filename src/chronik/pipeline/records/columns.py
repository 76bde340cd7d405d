"""Records as Arrow columns, and their construction record by record: the slow path that reports what is corrupt."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

import pyarrow as pa

from chronik.pipeline.records.batches import StoredBatch
from chronik.protocol.batch import MAGIC_POSITION, BatchHeader, Bytes, TimestampType
from chronik.protocol.message_set import iter_message_set
from chronik.protocol.records import Record, iter_decompressed_records

HEADER_TYPE: Final = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
HEADERS_TYPE: Final = pa.list_(pa.field("element", HEADER_TYPE))  # Spark's own name of the field

NO_TIMESTAMP_TYPE: Final = -1
"""Timestamp type of magic-0 messages, which have no timestamp. Kafka's Java client uses the same value."""

_APPEND_TIME_BIT: Final = 0x08
_ATTRIBUTES_POSITION: Final = MAGIC_POSITION + 1


class ColumnSelection(NamedTuple):
    """A selection of the optional record fields to decode. Fields that are not selected are None in the result."""

    key: bool = True
    value: bool = True
    headers: bool = True


class RecordColumns(NamedTuple):
    """A sequence of records as Arrow columns."""

    offset: pa.Int64Array
    timestamp_ms: pa.Int64Array
    """Timestamp as stored in the record: any 64-bit integer."""
    timestamp_type: pa.Int32Array
    key: pa.BinaryArray | None
    value: pa.BinaryArray | None
    headers: pa.ListArray | None
    """Headers of each record; null for a record without headers."""

    def __len__(self) -> int:
        return len(self.offset)

    def slice(self, start: int, count: int) -> RecordColumns:
        """Return some of the records without copying them."""
        return RecordColumns(*(None if each is None else each.slice(start, count) for each in self))


class RecordWithTimestampType(NamedTuple):
    """A record with the timestamp type of its batch."""

    record: Record
    timestamp_type: int


def convert_records_to_columns(typed: Iterable[RecordWithTimestampType], wanted: ColumnSelection) -> RecordColumns:
    """Convert records to Arrow columns, one record at a time."""
    rows = list(typed)
    records = [row.record for row in rows]
    return RecordColumns(
        offset=pa.array([each.offset for each in records], pa.int64()),
        timestamp_ms=pa.array([each.timestamp for each in records], pa.int64()),
        timestamp_type=pa.array([row.timestamp_type for row in rows], pa.int32()),
        key=pa.array([each.key for each in records], pa.binary()) if wanted.key else None,
        value=pa.array([each.value for each in records], pa.binary()) if wanted.value else None,
        headers=_build_headers_column(records) if wanted.headers else None,
    )


def iter_records_of_batches(opened: Sequence[tuple[BatchHeader, Any]]) -> Iterator[RecordWithTimestampType]:
    """Yield the records of decompressed batches.

    Raises:
        CorruptRecords: A record cannot be decoded.
    """
    for header, body in opened:
        for record, _ in iter_decompressed_records(header, bytes(body)):
            yield RecordWithTimestampType(record, header.timestamp_type)


def iter_legacy_messages(buffer: Bytes, message: StoredBatch) -> Iterator[RecordWithTimestampType]:
    """Yield the message of magic 0 or 1, or the messages that it wraps.

    Raises:
        CorruptRecords: A message cannot be decoded.
        RecordsTooLarge: The decompressed messages exceed the limit.
    """
    data = memoryview(buffer)[message.position : message.position + message.size]
    if data[MAGIC_POSITION] == 0:
        timestamp_type = NO_TIMESTAMP_TYPE
    elif data[_ATTRIBUTES_POSITION] & _APPEND_TIME_BIT:
        timestamp_type = TimestampType.LOG_APPEND_TIME
    else:
        timestamp_type = TimestampType.CREATE_TIME
    for record in iter_message_set(data):
        yield RecordWithTimestampType(record, timestamp_type)


def _build_headers_column(records: Sequence[Record]) -> pa.ListArray:
    lists = [
        [{"key": name, "value": value} for name, value in record.headers] if record.headers else None
        for record in records
    ]
    return pa.array(lists, HEADERS_TYPE)
