"""The header of a record batch (magic 2): parsing, validating and patching it without decoding records.

This is the broker's hot path. Batches are stored as they arrive; only the first 21 bytes, which the checksum does not
cover, are rewritten to set the base offset and the leader epoch.

    base offset 8 | length 4 | leader epoch 4 | magic 1 | crc 4 | attributes 2 | last offset delta 4 | base timestamp 8
    | max timestamp 8 | producer id 8 | producer epoch 2 | base sequence 4 | record count 4 | records …
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from enum import IntEnum
from typing import NamedTuple

from chronik.crc import crc32c
from chronik.protocol.compression import parse_codec
from chronik.protocol.errors import CorruptRecords, ErrorCode, InvalidRecord, KafkaError
from chronik.protocol.varint import INT32_MAX

MAGIC = 2
LENGTH_END = 12  # the length field counts the bytes from here on
HEADER_BYTES = 61
MAGIC_POSITION = 16
CRC_POSITION = 17
CRC_START = 21  # the checksum covers the bytes from here on
_MAX_TIMESTAMP_POSITION = 35
_PRODUCER_ID_POSITION = 43

NO_TIMESTAMP = -1
NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
NO_SEQUENCE = -1
NO_LEADER_EPOCH = -1

CODEC_MASK = 0x07
LOG_APPEND_TIME_FLAG = 0x08
TRANSACTIONAL_FLAG = 0x10
CONTROL_FLAG = 0x20
DELETE_HORIZON_FLAG = 0x40

_HEADER = struct.Struct(">qiibIhiqqqhii")
_INT32 = struct.Struct(">i")
_UINT32 = struct.Struct(">I")
_INT16 = struct.Struct(">h")
_INT64 = struct.Struct(">q")

Bytes = bytes | bytearray | memoryview
WritableBytes = bytearray | memoryview


class TimestampType(IntEnum):
    """The type of a batch's timestamps: set by the producer (create time) or by the broker (log append time)."""

    CREATE_TIME = 0
    LOG_APPEND_TIME = 1


class BatchHeader(NamedTuple):
    """The header fields of a record batch in the order of the binary format."""

    base_offset: int
    batch_length: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size(self) -> int:
        """The size of the batch in bytes, including the base offset and the batch length fields."""
        return self.batch_length + LENGTH_END

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def codec(self) -> int:
        """The number of the compression codec in the batch attributes, which may be unknown."""
        return self.attributes & CODEC_MASK

    @property
    def timestamp_type(self) -> TimestampType:
        return TimestampType.LOG_APPEND_TIME if self.attributes & LOG_APPEND_TIME_FLAG else TimestampType.CREATE_TIME

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL_FLAG)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL_FLAG)

    @property
    def delete_horizon_ms(self) -> int | None:
        """The time from which compaction may remove the batch's tombstones (KIP-534), or None if it is not set."""
        return self.base_timestamp if self.attributes & DELETE_HORIZON_FLAG else None

    @property
    def has_producer_id(self) -> bool:
        return self.producer_id > NO_PRODUCER_ID

    @property
    def last_sequence(self) -> int:
        if self.base_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return next_sequence(self.base_sequence, self.last_offset_delta)


def next_sequence(sequence: int, increment: int = 1) -> int:
    """Return the producer sequence number `increment` after `sequence`, wrapping around to 0 after 2^31 - 1."""
    return sequence + increment & INT32_MAX


def parse_header(buffer: Bytes, position: int = 0) -> BatchHeader:
    """Parse the header of the batch at `position` and validate the batch length.

    Raises:
        CorruptRecords: There is no complete batch of magic 2.
    """
    available = len(buffer) - position
    if available < HEADER_BYTES:
        raise CorruptRecords(f"{available} bytes are too short for a batch")
    header = BatchHeader._make(_HEADER.unpack_from(buffer, position))
    if header.magic != MAGIC:
        raise CorruptRecords(f"a batch has magic {header.magic}, expected {MAGIC}")
    if not HEADER_BYTES <= header.batch_length + LENGTH_END <= available:
        raise CorruptRecords(f"a batch claims {header.batch_length + LENGTH_END} bytes, but {available} are left")
    return header


def verify_crc(buffer: Bytes, position: int, size: int) -> bool:
    """Return whether the checksum of the batch at `position` is correct."""
    (expected,) = _UINT32.unpack_from(buffer, position + CRC_POSITION)
    return bool(crc32c(memoryview(buffer)[position + CRC_START : position + size]) == expected)


def iter_batches(buffer: Bytes, *, partial_tail: bool = False) -> Iterator[tuple[int, BatchHeader]]:
    """Yield the position and the header of each batch in the buffer, without verifying checksums.

    With `partial_tail`, an incomplete last batch is skipped, as a consumer must do with a fetch response that ended at
    its byte limit. Otherwise it raises CorruptRecords, as any malformed batch does.
    """
    position, end = 0, len(buffer)
    while position < end:
        if partial_tail and _is_incomplete_batch(buffer, position):
            return
        header = parse_header(buffer, position)
        yield position, header
        position += header.size


def end_offset(buffer: Bytes) -> int:
    """Return the offset after the last batch in the buffer, or 0 if the buffer contains no batch."""
    return max((header.next_offset for _, header in iter_batches(buffer)), default=0)


def _is_incomplete_batch(buffer: Bytes, position: int) -> bool:
    available = len(buffer) - position
    if available < HEADER_BYTES:
        return True
    (length,) = _INT32.unpack_from(buffer, position + 8)
    return bool(length + LENGTH_END > available)


def set_base_offset_and_epoch(buffer: WritableBytes, position: int, base_offset: int, leader_epoch: int) -> None:
    """Set the base offset and leader epoch of a batch in place. The checksum does not cover these fields."""
    _INT64.pack_into(buffer, position, base_offset)
    _INT32.pack_into(buffer, position + LENGTH_END, leader_epoch)


def set_log_append_time(buffer: WritableBytes, position: int, timestamp_ms: int) -> None:
    """Set the log append time of a batch in place, and update its checksum."""
    header = parse_header(buffer, position)
    _INT16.pack_into(buffer, position + CRC_START, header.attributes | LOG_APPEND_TIME_FLAG)
    _INT64.pack_into(buffer, position + _MAX_TIMESTAMP_POSITION, timestamp_ms)
    crc = crc32c(memoryview(buffer)[position + CRC_START : position + header.size])
    _UINT32.pack_into(buffer, position + CRC_POSITION, crc)


def set_producer_id(buffer: WritableBytes, position: int, size: int, producer_id: int) -> None:
    """Set the producer id of a batch in place, and update its checksum."""
    _INT64.pack_into(buffer, position + _PRODUCER_ID_POSITION, producer_id)
    crc = crc32c(memoryview(buffer)[position + CRC_START : position + size])
    _UINT32.pack_into(buffer, position + CRC_POSITION, crc)


def build_batch(header: BatchHeader, body: Bytes) -> bytes:
    """Return a batch with the given header and compressed records, computing its length and checksum."""
    batch = bytearray(HEADER_BYTES)
    batch += body
    fields = header._replace(batch_length=len(batch) - LENGTH_END, crc=0)
    _HEADER.pack_into(batch, 0, *fields)
    _UINT32.pack_into(batch, CRC_POSITION, crc32c(memoryview(batch)[CRC_START:]))
    return bytes(batch)


def is_transactional(buffer: Bytes) -> bool:
    """Return whether the first batch in the buffer has the transactional flag, without validating the batch."""
    return (
        len(buffer) >= HEADER_BYTES
        and buffer[MAGIC_POSITION] == MAGIC
        and bool(buffer[CRC_START + 1] & TRANSACTIONAL_FLAG)
    )


def validate_produced_batches(buffer: Bytes) -> list[BatchHeader]:
    """Validate the record batches of a produce request without decompressing them, and return their headers.

    The API checks the number of batches, and the topic's configs their size.

    Raises:
        CorruptRecords: A batch is damaged.
        InvalidRecord: A producer may not send such a batch. Some violations raise a KafkaError with another code.
    """
    if len(buffer) > MAGIC_POSITION and buffer[MAGIC_POSITION] < MAGIC:
        raise InvalidRecord(f"messages have magic {buffer[MAGIC_POSITION]}, expected a batch of magic {MAGIC}")
    headers, position, end = [], 0, len(buffer)
    while position < end:
        header = parse_header(buffer, position)
        size = header.size
        if not verify_crc(buffer, position, size):
            raise CorruptRecords("the checksum of a batch does not match")
        _check_produced_header(header)
        headers.append(header)
        position += size
    if not headers:
        raise InvalidRecord("the records contain no batch")
    return headers


def _check_produced_header(header: BatchHeader) -> None:
    attributes = header.attributes
    if attributes:
        parse_codec(header.codec)
    if attributes & CONTROL_FLAG:
        raise InvalidRecord("clients may not write control batches")
    if header.record_count <= 0 or header.record_count != header.last_offset_delta + 1:
        raise InvalidRecord(f"{header.record_count} records do not match last offset delta {header.last_offset_delta}")
    if attributes & LOG_APPEND_TIME_FLAG:
        raise KafkaError(ErrorCode.INVALID_TIMESTAMP, "only the broker sets log append time")
    if header.has_producer_id and (header.base_sequence < 0 or header.producer_epoch < 0):
        raise InvalidRecord(
            f"producer {header.producer_id} sent invalid epoch {header.producer_epoch} or sequence"
            f" {header.base_sequence}"
        )
    if attributes & TRANSACTIONAL_FLAG and not header.has_producer_id:
        raise InvalidRecord("a transactional batch has no producer id")
