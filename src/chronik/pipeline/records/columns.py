"""Records as Arrow columns, and the way there record by record: slow, complete, and the one that says what is wrong."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

import pyarrow as pa

from chronik.pipeline.records.batches import StoredBatch
from chronik.protocol.batch import MAGIC_POSITION, BatchHeader, Bytes, TimestampType
from chronik.protocol.message_set import iter_messages
from chronik.protocol.records import Record, walk

HEADER_TYPE: Final = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
HEADERS_TYPE: Final = pa.list_(pa.field("element", HEADER_TYPE))  # Spark's own name of the field

NO_TIMESTAMP_TYPE: Final = -1
"""The type for messages of magic 0, which have no time. Kafka's Java client gives it the same number."""

_APPEND_TIME_BIT: Final = 0x08
_ATTRIBUTES_POSITION: Final = MAGIC_POSITION + 1


class Wanted(NamedTuple):
    """Which of the columns that cost something are asked for; the others come as None."""

    key: bool = True
    value: bool = True
    headers: bool = True


class Columns(NamedTuple):
    offset: pa.Int64Array
    timestamp_ms: pa.Int64Array
    """As the record has it: any 64-bit number."""
    timestamp_type: pa.Int32Array
    key: pa.BinaryArray | None
    value: pa.BinaryArray | None
    headers: pa.ListArray | None
    """Null for a record without headers."""

    def __len__(self) -> int:
        return len(self.offset)


class TypedRecord(NamedTuple):
    record: Record
    timestamp_type: int


def columns_of(typed: Iterable[TypedRecord], wanted: Wanted) -> Columns:
    rows = list(typed)
    records = [row.record for row in rows]
    return Columns(
        offset=pa.array([each.offset for each in records], pa.int64()),
        timestamp_ms=pa.array([each.timestamp for each in records], pa.int64()),
        timestamp_type=pa.array([row.timestamp_type for row in rows], pa.int32()),
        key=pa.array([each.key for each in records], pa.binary()) if wanted.key else None,
        value=pa.array([each.value for each in records], pa.binary()) if wanted.value else None,
        headers=_headers(records) if wanted.headers else None,
    )


def records_of(opened: Sequence[tuple[BatchHeader, Any]]) -> Iterator[TypedRecord]:
    """Yields those of batches that are decompressed already. Raises CorruptRecords."""
    for header, body in opened:
        for record, _ in walk(header, bytes(body)):
            yield TypedRecord(record, header.timestamp_type)


def messages_of(buffer: Bytes, message: StoredBatch) -> Iterator[TypedRecord]:
    """Yields a message of magic 0 or 1 itself, or those that it wraps. Raises CorruptRecords, RecordsTooLarge."""
    data = memoryview(buffer)[message.position : message.position + message.size]
    if data[MAGIC_POSITION] == 0:
        timestamp_type = NO_TIMESTAMP_TYPE
    elif data[_ATTRIBUTES_POSITION] & _APPEND_TIME_BIT:
        timestamp_type = TimestampType.LOG_APPEND_TIME
    else:
        timestamp_type = TimestampType.CREATE_TIME
    for record in iter_messages(data):
        yield TypedRecord(record, timestamp_type)


def _headers(records: Sequence[Record]) -> pa.ListArray:
    lists = [
        [{"key": name, "value": value} for name, value in record.headers] if record.headers else None
        for record in records
    ]
    return pa.array(lists, HEADERS_TYPE)
