"""Conversion of message sets of magic 0 and 1, which Produce 0-2 and Fetch 0-3 use, to and from record batches.

The log contains only batches of magic 2. A message set is a sequence of messages; a compressed one is a wrapper message
whose value is the compressed set. Magic 1 added timestamps, and offsets relative to the wrapper.

    offset 8 | size 4 | crc 4 | magic 1 | attributes 1 | timestamp 8 (magic 1) | key | value      (length 4, bytes)
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from itertools import count, groupby
from typing import NamedTuple

from chronik.limits import CONVERTED_BYTES_MAX, CONVERTED_PER_FETCH_BYTES_MAX, DECOMPRESSED_BYTES_MAX, FRAME_BYTES_MAX
from chronik.protocol.batch import (
    CODEC_MASK,
    LOG_APPEND_TIME_FLAG,
    NO_TIMESTAMP,
    BatchHeader,
    Bytes,
    iter_batches,
)
from chronik.protocol.budget import DecompressionBudget
from chronik.protocol.compression import (
    Codec,
    compress,
    decompress_view,
    parse_codec,
    with_correct_lz4_checksum,
    with_legacy_lz4_checksum,
)
from chronik.protocol.errors import CorruptRecords, ErrorCode, InvalidRecord, KafkaError, RecordsTooLarge
from chronik.protocol.record_scan import RecordsBody, decompress_within_budget, scan_records
from chronik.protocol.records import Record, encode_batch

_PREFIX = struct.Struct(">qiIbb")
_SIZE_END = 12  # the size field counts the bytes from here on
_CRC_END = 16
_HEAD = struct.Struct(">qiI")
_MAGIC_AND_ATTRIBUTES = struct.Struct(">bb")
_INT32 = struct.Struct(">i")
_INT64 = struct.Struct(">q")
_MESSAGE_BYTES_MIN = {0: 26, 1: 34}
_NULL = b"\xff\xff\xff\xff"


class _Message(NamedTuple):
    """A message of a message set, the record format that preceded record batches."""

    position: int
    offset: int
    magic: int
    attributes: int
    timestamp: int
    key: bytes | None
    value: bytes | None

    @property
    def codec(self) -> int:
        return self.attributes & CODEC_MASK

    @property
    def has_append_time(self) -> bool:
        return self.magic > 0 and bool(self.attributes & LOG_APPEND_TIME_FLAG)


def convert_to_batches(
    buffer: Bytes, budget: DecompressionBudget | None = None, *, size_max: int = FRAME_BYTES_MAX
) -> list[bytes]:
    """Convert a message set (magic 0 or 1) from a produce request to record batches with offsets from 0.

    Consecutive plain messages become one batch, and each wrapper becomes a batch with its codec. Timestamps are kept;
    messages of magic 0 have none.

    Raises:
        CorruptRecords: A message is damaged.
        RecordsTooLarge: The messages exceed `budget`, or plain messages exceed `size_max` bytes.
        InvalidRecord: A producer may not send such a message. Some violations raise a KafkaError with another code.
    """
    budget = budget or DecompressionBudget.for_request(len(buffer))
    _check_message_count(buffer, budget)
    batches = []
    offsets = count()
    for wrapper_position, messages in groupby(
        _iter_messages(buffer), lambda each: each.position if each.codec else None
    ):
        if wrapper_position is None:
            codec, members = Codec.NONE, _limit_total_size(messages, size_max)
        else:
            wrapper = _check_produced_message(next(messages))
            limit = budget.max_output_bytes(len(wrapper.value or b""))
            codec, content = parse_codec(wrapper.codec), _decompress_message(wrapper, min(limit, CONVERTED_BYTES_MAX))
            budget.charge_bytes(len(content))
            _check_message_count(content, budget)
            members = _iter_inner_messages(wrapper, content)
        batches.append(encode_batch(_assign_offsets(members, offsets, budget), codec=codec))
    if not batches:
        raise InvalidRecord("the message set is empty")
    return batches


def _check_message_count(content: Bytes, budget: DecompressionBudget) -> None:
    """Raise RecordsTooLarge if data of this size may contain more messages than the budget allows."""
    if len(content) > budget.records_left * _MESSAGE_BYTES_MIN[1]:
        raise RecordsTooLarge(f"{len(content)} bytes of messages exceed the budget for conversion")


def convert_to_message_set(
    buffer: Bytes,
    magic: int,
    budget: DecompressionBudget | None = None,
    *,
    first_offset: int = 0,
    size_max: int = CONVERTED_PER_FETCH_BYTES_MAX,
) -> bytes:
    """Convert stored batches to a message set for a client that does not support batches.

    The result starts at `first_offset` and contains as much as `budget` and `size_max` allow, but at least one message;
    it may end within a batch. Offsets and their gaps are kept; headers and control batches are dropped.
    Compressed batches become wrappers of the same codec, but zstd, which the format does not support, becomes gzip.

    Raises:
        CorruptRecords: A batch is damaged.
        RecordsTooLarge: The first non-empty batch exceeds the budget.
    """
    budget = budget or DecompressionBudget.for_request(len(buffer))
    output = bytearray()
    capacity = size_max
    for position, header in iter_batches(buffer):
        if header.is_control or not header.record_count:
            continue
        try:
            header, body = decompress_within_budget(buffer, position, budget)
            records, is_truncated = _take_records_up_to_capacity(header, body, first_offset, capacity)
        except RecordsTooLarge:
            if output:
                break
            raise
        if not records:
            continue
        capacity -= sum(map(_count_content_bytes, records))
        if header.codec == Codec.NONE:
            for record in records:
                output += _encode_message(magic, header, record.offset, record)
        else:
            output += _encode_wrapper_message(magic, header, records)
        if is_truncated or capacity <= 0:
            break
    return bytes(output)


def _take_records_up_to_capacity(
    header: BatchHeader, body: RecordsBody, first_offset: int, capacity: int
) -> tuple[list[Record], bool]:
    """Return the records from `first_offset` on that fit into `capacity`, at least one, and whether more follow."""
    records: list[Record] = []
    view = memoryview(body)
    for offset, timestamp, key_start, key_length, value_start, value_length, _ in scan_records(header, body):
        if offset < first_offset:
            continue
        if capacity <= 0 and records:
            return records, True
        if max(key_length, 0) + max(value_length, 0) > CONVERTED_BYTES_MAX:
            if records:
                return records, True
            raise RecordsTooLarge(f"a record exceeds {CONVERTED_BYTES_MAX} bytes")
        key = None if key_length < 0 else bytes(view[key_start : key_start + key_length])
        value = None if value_length < 0 else bytes(view[value_start : value_start + value_length])
        records.append(Record(offset, timestamp, key, value))
        capacity -= _count_content_bytes(records[-1])
    return records, False


def _count_content_bytes(record: Record) -> int:
    return _MESSAGE_BYTES_MIN[1] + len(record.key or b"") + len(record.value or b"")


def iter_message_set(buffer: Bytes, limit: int = DECOMPRESSED_BYTES_MAX) -> Iterator[Record]:
    """Yield the records of a fetched message set (magic 0 or 1) with absolute offsets.

    Wrappers are decompressed, offsets are absolute, and the log append time is applied. `limit` applies to each
    wrapper.

    Raises:
        CorruptRecords: A message is damaged.
        RecordsTooLarge: A wrapper exceeds `limit`.
        InvalidRecord: A message is not valid in a message set.
    """
    for message in _iter_messages(buffer):
        if not message.codec:
            yield Record(message.offset, message.timestamp, message.key, message.value)
            continue
        content = _decompress_message(message, limit)
        # Producers leave the wrapper's offset at 0, so inner offsets are absolute until a broker has set it.
        base_offset = max(0, message.offset - _find_last_offset(content)) if message.magic > 0 else 0
        for inner in _iter_inner_messages(message, content):
            timestamp = message.timestamp if message.has_append_time else inner.timestamp
            yield Record(base_offset + inner.offset, timestamp, inner.key, inner.value)


def _limit_total_size(messages: Iterator[_Message], size_max: int) -> Iterator[_Message]:
    for message in messages:
        size_max -= len(message.key or b"") + len(message.value or b"")
        if size_max < 0:
            raise RecordsTooLarge("plain messages exceed the size of one batch of the topic")
        yield message


def _assign_offsets(
    messages: Iterator[_Message], offsets: Iterator[int], budget: DecompressionBudget
) -> Iterator[Record]:
    for message in messages:
        budget.charge_records(1)
        yield Record(next(offsets), _check_produced_message(message).timestamp, message.key, message.value)


def _check_produced_message(message: _Message) -> _Message:
    if message.has_append_time:
        raise KafkaError(ErrorCode.INVALID_TIMESTAMP, "only the broker sets log append time")
    return message


def _iter_messages(buffer: Bytes) -> Iterator[_Message]:
    position, end = 0, len(buffer)
    view = memoryview(buffer)
    while position < end:
        message, position = _read_message(view, position)
        yield message


def _iter_inner_messages(wrapper: _Message, content: RecordsBody) -> Iterator[_Message]:
    if not content:
        raise InvalidRecord("a compressed message contains no messages")
    for message in _iter_messages(content):
        if message.magic != wrapper.magic:
            raise InvalidRecord(f"a message of magic {message.magic} is inside one of magic {wrapper.magic}")
        if message.codec:
            raise InvalidRecord("a compressed message is inside a compressed message")
        yield message


def _find_last_offset(content: RecordsBody) -> int:
    offset = 0
    for message in _iter_messages(content):
        offset = message.offset
    return offset


def _read_message(view: memoryview, position: int) -> tuple[_Message, int]:
    available = len(view) - position
    if available < _PREFIX.size:
        raise CorruptRecords(f"{available} bytes are too short for a message")
    offset, size, crc, magic, attributes = _PREFIX.unpack_from(view, position)
    if magic not in _MESSAGE_BYTES_MIN:
        raise InvalidRecord(f"a message of magic {magic} is not allowed in a message set")
    if not _MESSAGE_BYTES_MIN[magic] <= size + _SIZE_END <= available:
        raise CorruptRecords(f"a message claims {size + _SIZE_END} bytes, but {available} are left")
    end = position + _SIZE_END + size
    if zlib.crc32(view[position + _CRC_END : end]) != crc:
        raise CorruptRecords(f"the checksum of the message at offset {offset} does not match")
    field_position = position + _PREFIX.size
    timestamp = NO_TIMESTAMP
    if magic > 0:
        (timestamp,) = _INT64.unpack_from(view, field_position)
        field_position += _INT64.size
    key, field_position = _read_bytes(view, field_position, end)
    value, field_position = _read_bytes(view, field_position, end)
    if field_position != end:
        raise CorruptRecords(f"{end - field_position} trailing bytes after the value of a message")
    return _Message(position, offset, magic, attributes, timestamp, key, value), end


def _read_bytes(view: memoryview, position: int, end: int) -> tuple[bytes | None, int]:
    if end - position < _INT32.size:
        raise CorruptRecords("the length of a field is incomplete")
    (length,) = _INT32.unpack_from(view, position)
    position += _INT32.size
    if length == -1:
        return None, position
    if not 0 <= length <= end - position:
        raise CorruptRecords(f"a field claims {length} bytes, but {end - position} are left")
    return bytes(view[position : position + length]), position + length


def _decompress_message(wrapper: _Message, limit: int) -> RecordsBody:
    if wrapper.value is None:
        raise InvalidRecord("a compressed message has no value")
    if wrapper.codec == Codec.ZSTD:
        raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"zstd is not supported in magic {wrapper.magic}")
    data = wrapper.value
    if wrapper.codec == Codec.LZ4 and wrapper.magic == 0:
        data = with_correct_lz4_checksum(data)
    return decompress_view(wrapper.codec, data, limit)


def _encode_wrapper_message(magic: int, header: BatchHeader, records: list[Record]) -> bytes:
    """Return a compressed wrapper message that contains the given records."""
    content = bytearray()
    last_offset = header.last_offset
    for record in records:
        inner_offset = record.offset - header.base_offset if magic > 0 else record.offset
        content += _encode_message(magic, header, inner_offset, record)
        last_offset = record.offset
    codec = Codec.GZIP if header.codec == Codec.ZSTD else header.codec
    data = compress(codec, content)
    if codec == Codec.LZ4 and magic == 0:
        data = with_legacy_lz4_checksum(data)
    wrapper = Record(last_offset, header.max_timestamp, None, data)
    return _encode_message(magic, header, last_offset, wrapper, codec)


def _encode_message(magic: int, header: BatchHeader, offset: int, record: Record, codec: int = Codec.NONE) -> bytes:
    parts: list[bytes] = []
    if magic > 0:
        attributes = codec | header.attributes & LOG_APPEND_TIME_FLAG
        parts += (_MAGIC_AND_ATTRIBUTES.pack(magic, attributes), _INT64.pack(record.timestamp))
    else:
        parts.append(_MAGIC_AND_ATTRIBUTES.pack(magic, codec))
    for field in (record.key, record.value):
        parts += (_NULL,) if field is None else (_INT32.pack(len(field)), field)
    message = b"".join(parts)
    return _HEAD.pack(offset, len(message) + _CRC_END - _SIZE_END, zlib.crc32(message)) + message
