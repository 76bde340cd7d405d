"""Encoding and decoding of the records in a batch of magic 2.

The broker forwards batches without decoding them; this module is for compaction, validation of compacted topics, old
message formats, the command line and tests. Decoding is strict: it validates every length, count, offset and varint,
and rejects trailing bytes.

    length | attributes 1 | timestamp delta | offset delta | key | value | headers       (numbers are varints)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import NamedTuple

from chronik.limits import DECOMPRESSED_BYTES_MAX
from chronik.protocol.batch import (
    CONTROL_FLAG,
    HEADER_BYTES,
    LOG_APPEND_TIME_FLAG,
    MAGIC,
    NO_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    TRANSACTIONAL_FLAG,
    BatchHeader,
    Bytes,
    TimestampType,
    build_batch,
    iter_batches,
    parse_header,
    verify_crc,
)
from chronik.protocol.compression import COMPRESSION_CHUNK_BYTES, Codec, Compressor, decompress, parse_codec
from chronik.protocol.errors import CorruptRecords
from chronik.protocol.varint import (
    INT32_MAX,
    INT64_MAX,
    SINGLE_BYTE_VALUES,
    encode_varint,
    read_varint,
    read_varlong,
    wrap_int64,
)

# The fields of an empty record take a byte each, and its length takes one more.
_FIELDS_BYTES_MIN = 6
RECORD_BYTES_MIN = 1 + _FIELDS_BYTES_MIN

# A header of two bytes on the wire takes about 150 bytes in memory. Kafka has no limit, but clients use few headers.
RECORD_HEADERS_MAX = 100_000
_RECORD_HEADER_BYTES_MIN = 2

RecordHeader = tuple[str, bytes | None]


class Record(NamedTuple):
    """A decoded record with its offset and timestamp."""

    offset: int
    timestamp: int
    key: bytes | None = None
    value: bytes | None = None
    headers: tuple[RecordHeader, ...] = ()


def encode_batch(
    records: Iterable[Record],
    *,
    base_offset: int | None = None,
    codec: int = Codec.NONE,
    level: int | None = None,
    leader_epoch: int = NO_LEADER_EPOCH,
    timestamp_type: TimestampType = TimestampType.CREATE_TIME,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    transactional: bool = False,
    control: bool = False,
) -> bytes:
    """Encode records, sorted by offset, as one record batch.

    With LOG_APPEND_TIME all records get the largest of their timestamps.

    Raises:
        ValueError: There are no records, or their offsets do not ascend or exceed the range of a batch.
    """
    compressor = Compressor(parse_codec(codec), level)
    encoded = _encode_records(records, base_offset, compressor)
    flags = LOG_APPEND_TIME_FLAG * timestamp_type | TRANSACTIONAL_FLAG * transactional | CONTROL_FLAG * control
    header = BatchHeader(
        base_offset=encoded.base_offset,
        batch_length=0,
        partition_leader_epoch=leader_epoch,
        magic=MAGIC,
        crc=0,
        attributes=codec | flags,
        last_offset_delta=encoded.last_offset - encoded.base_offset,
        base_timestamp=encoded.base_timestamp,
        max_timestamp=encoded.max_timestamp,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        record_count=encoded.record_count,
    )
    return build_batch(header, compressor.finish())


class _EncodedRecords(NamedTuple):
    """The record count, offsets and timestamps of a batch, which are known after its records are encoded."""

    record_count: int
    base_offset: int
    last_offset: int
    base_timestamp: int
    max_timestamp: int


def _encode_records(records: Iterable[Record], base_offset: int | None, compressor: Compressor) -> _EncodedRecords:
    remaining = iter(records)
    first = next(remaining, None)
    if first is None:
        raise ValueError("a batch must have at least one record")
    if base_offset is None:
        base_offset = first.offset
    last_offset, base_timestamp, max_timestamp = base_offset - 1, first.timestamp, first.timestamp
    count = 0
    body = bytearray()
    for record in chain((first,), remaining):
        if not last_offset < record.offset <= base_offset + INT32_MAX:
            raise ValueError(f"offset {record.offset} cannot follow {last_offset} in a batch with base {base_offset}")
        timestamp_delta = wrap_int64(record.timestamp - base_timestamp)
        body += encode_record(record, record.offset - base_offset, timestamp_delta)
        if len(body) >= COMPRESSION_CHUNK_BYTES:
            compressor.add(body)
            body.clear()
        last_offset = record.offset
        max_timestamp = max(max_timestamp, record.timestamp)
        count += 1
    compressor.add(body)
    return _EncodedRecords(count, base_offset, last_offset, base_timestamp, max_timestamp)


def encode_record(record: Record, offset_delta: int, timestamp_delta: int) -> bytes:
    """Encode a record, preceded by its length."""
    parts = [b"\x00", encode_varint(timestamp_delta), encode_varint(offset_delta)]
    for field in (record.key, record.value):
        if field is None:
            parts.append(b"\x01")
        else:
            parts += (encode_varint(len(field)), field)
    parts.append(encode_varint(len(record.headers)))
    for name, value in record.headers:
        encoded_name = name.encode()
        parts += (encode_varint(len(encoded_name)), encoded_name)
        if value is None:
            parts.append(b"\x01")
        else:
            parts += (encode_varint(len(value)), value)
    fields = b"".join(parts)
    return encode_varint(len(fields)) + fields


def decode_batch(buffer: Bytes, position: int = 0, limit: int = DECOMPRESSED_BYTES_MAX) -> list[Record]:
    """Decode all records of the batch at `position`, including control records.

    Raises:
        CorruptRecords: The batch is malformed.
        RecordsTooLarge: The records exceed `limit` bytes.
    """
    header, body = decompress_batch(buffer, position, limit)
    return [record for record, _ in iter_decompressed_records(header, body)]


def iter_records(buffer: Bytes, limit: int = DECOMPRESSED_BYTES_MAX, *, partial_tail: bool = False) -> Iterator[Record]:
    """Yield the records of all batches that consumers see, that is, of all except control batches.

    `limit` applies to each batch. Raises as `decode_batch` does. For `partial_tail` see `iter_batches`.
    """
    for position, header in iter_batches(buffer, partial_tail=partial_tail):
        if not header.is_control:
            for record, _ in iter_decompressed_records(*decompress_batch(buffer, position, limit)):
                yield record


def decompress_batch(
    buffer: Bytes, position: int = 0, limit: int = DECOMPRESSED_BYTES_MAX
) -> tuple[BatchHeader, bytes]:
    """Verify the checksum of a batch, and return its header and its decompressed records."""
    header = parse_header(buffer, position)
    if not verify_crc(buffer, position, header.size):
        raise CorruptRecords(f"the checksum of the batch at offset {header.base_offset} does not match")
    if header.size == HEADER_BYTES:  # an empty batch left by compaction, which no codec could decompress
        return header, b""
    body = memoryview(buffer)[position + HEADER_BYTES : position + header.size]
    return header, decompress(header.codec, body, limit)


def iter_decompressed_records(header: BatchHeader, body: bytes) -> Iterator[tuple[Record, int]]:
    """Yield each record of a decompressed batch with the position at which it ends."""
    count, last_offset, base_offset = header.record_count, header.last_offset, header.base_offset
    if not 0 <= count * RECORD_BYTES_MIN <= len(body):
        raise CorruptRecords(f"{count} records do not fit into {len(body)} bytes")
    if base_offset < 0 or last_offset > INT64_MAX:
        raise CorruptRecords(f"a batch has invalid offsets {base_offset} to {last_offset}")
    append_time = header.max_timestamp if header.timestamp_type is TimestampType.LOG_APPEND_TIME else None
    position, previous_offset = 0, base_offset - 1
    try:
        for _ in range(count):
            record, position = _read_record(body, position, base_offset, header.base_timestamp)
            if not previous_offset < record.offset <= last_offset:
                raise CorruptRecords(f"offset {record.offset} is not between {previous_offset} and {last_offset}")
            previous_offset = record.offset
            yield (record if append_time is None else record._replace(timestamp=append_time)), position
    except IndexError:
        raise CorruptRecords("a record is incomplete") from None
    if position != len(body):
        raise CorruptRecords(f"{len(body) - position} trailing bytes after the last record")


def _read_record(body: bytes, position: int, base_offset: int, base_timestamp: int) -> tuple[Record, int]:
    # Single-byte varints are decoded inline, because calls would dominate the run time.
    if (byte := body[position]) < 0x80:
        length, position = SINGLE_BYTE_VALUES[byte], position + 1
    else:
        length, position = read_varint(body, position)
    end = position + length
    if length < _FIELDS_BYTES_MIN or end > len(body):
        raise CorruptRecords(f"a record claims {length} bytes, but {len(body) - position} are left")
    position += 1  # the attributes, which are unused
    if (byte := body[position]) < 0x80:
        timestamp_delta, position = SINGLE_BYTE_VALUES[byte], position + 1
    else:
        timestamp_delta, position = read_varlong(body, position)
    timestamp = base_timestamp + timestamp_delta
    if not -INT64_MAX <= timestamp <= INT64_MAX:
        timestamp = wrap_int64(timestamp)
    if (byte := body[position]) < 0x80:
        offset_delta, position = SINGLE_BYTE_VALUES[byte], position + 1
    else:
        offset_delta, position = read_varint(body, position)
    key, position = _read_bytes(body, position, end)
    value, position = _read_bytes(body, position, end)
    if body[position] == 0:
        headers: tuple[RecordHeader, ...] = ()
        position += 1
    else:
        headers, position = _read_headers(body, position, end)
    if position != end:
        raise CorruptRecords(f"the fields of a record end {end - position} bytes before the record")
    return Record(base_offset + offset_delta, timestamp, key, value, headers), end


def _read_bytes(body: bytes, position: int, end: int) -> tuple[bytes | None, int]:
    if (byte := body[position]) < 0x80:
        length, position = SINGLE_BYTE_VALUES[byte], position + 1
    else:
        length, position = read_varint(body, position)
    if length == -1:
        return None, position
    field_end = position + length
    if length < 0 or field_end > end:
        raise CorruptRecords(f"a field claims {length} bytes, but {end - position} are left")
    return body[position:field_end], field_end


def _read_headers(body: bytes, position: int, end: int) -> tuple[tuple[RecordHeader, ...], int]:
    count, position = read_varint(body, position)
    if not 0 <= count * _RECORD_HEADER_BYTES_MIN <= end - position:
        raise CorruptRecords(f"{count} headers do not fit into {end - position} bytes")
    if count > RECORD_HEADERS_MAX:
        raise CorruptRecords(f"{count} headers exceed the limit of {RECORD_HEADERS_MAX}")
    headers = []
    for _ in range(count):
        name, position = _read_bytes(body, position, end)
        if name is None:
            raise CorruptRecords("a header has no name")
        value, position = _read_bytes(body, position, end)
        # Names should be UTF-8, but some clients send other bytes; like Java, replace those.
        headers.append((name.decode(errors="replace"), value))
    return tuple(headers), position
