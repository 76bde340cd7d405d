"""Message sets of magic 0 and 1: what Produce 0-2 sends and Fetch 0-3 expects, converted to and from batches.

The log holds batches of magic 2 only. A set is a row of messages; a compressed one is a wrapper message whose value is
the compressed set. Magic 1 brought timestamps and offsets that count from the start of the wrapper.

    offset 8 | size 4 | crc 4 | magic 1 | attributes 1 | timestamp 8 (magic 1) | key | value      (length 4, bytes)
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from itertools import count, groupby
from typing import NamedTuple

from chronik.limits import DECOMPRESSED_BYTES_MAX
from chronik.protocol.batch import (
    CODEC_MASK,
    LOG_APPEND_TIME_FLAG,
    NO_TIMESTAMP,
    BatchHeader,
    Bytes,
    iter_batches,
)
from chronik.protocol.compression import Codec, codec_of, compress, decompress
from chronik.protocol.errors import CorruptRecords, ErrorCode, InvalidRecord, KafkaError
from chronik.protocol.lz4_legacy import with_legacy_checksum, with_right_checksum
from chronik.protocol.records import Record, encode_batch, open_batch, walk

_PREFIX = struct.Struct(">qiIbb")
_SIZE_END = 12  # a message's size counts from here
_CRC_END = 16
_HEAD = struct.Struct(">qiI")
_MAGIC_AND_ATTRIBUTES = struct.Struct(">bb")
_INT32 = struct.Struct(">i")
_INT64 = struct.Struct(">q")
_MESSAGE_BYTES_MIN = {0: 26, 1: 34}
_NULL = b"\xff\xff\xff\xff"


class _Message(NamedTuple):
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


def convert_up(buffer: Bytes, limit: int = DECOMPRESSED_BYTES_MAX) -> list[bytes]:
    """A produced message set as batches that `validate_produced` accepts, numbered from 0 on.

    Plain messages in a row become one batch, each wrapper a batch of its own codec. Timestamps stay; messages of
    magic 0 have none. Raises CorruptRecords for damage, RecordsTooLarge when the wrappers hold more than `limit` bytes
    together, InvalidRecord (or a KafkaError with a more exact code) for what a producer may not send.
    """
    batches = []
    offsets = count()
    for wrapper_position, messages in groupby(_walk(buffer), lambda each: each.position if each.codec else None):
        if wrapper_position is None:
            codec, members = Codec.NONE, iter(messages)
        else:
            wrapper = _checked_produced(next(messages))
            codec, content = codec_of(wrapper.codec), _unwrap(wrapper, limit)
            limit -= len(content)
            members = _walk_inner(wrapper, content)
        batches.append(encode_batch(_numbered(members, offsets), codec=codec))
    if not batches:
        raise InvalidRecord("no messages")
    return batches


def convert_down(
    buffer: Bytes, magic: int, *, first_offset: int = 0, limit: int = DECOMPRESSED_BYTES_MAX
) -> bytes:
    """Stored batches as a message set for a client that knows no batches.

    Offsets stay, with their gaps; headers are dropped and control batches left out. Compressed batches become wrappers
    of the same codec, whole, except that zstd, which is younger than the format, becomes gzip; of plain ones only
    records from `first_offset` on are written. `limit` holds for each batch. Raises what `decode_batch` raises.
    """
    output = bytearray()
    for position, header in iter_batches(buffer):
        if header.is_control or not header.record_count:
            continue
        header, body = open_batch(buffer, position, limit)
        records = (record for record, _ in walk(header, body))
        if header.codec == Codec.NONE:
            for record in records:
                if record.offset >= first_offset:
                    output += _encode_message(magic, header, record.offset, record)
        else:
            output += _wrap(magic, header, records)
    return bytes(output)


def iter_messages(buffer: Bytes, limit: int = DECOMPRESSED_BYTES_MAX) -> Iterator[Record]:
    """What a consumer sees in a fetched message set: wrappers opened, offsets absolute, append time applied.

    `limit` holds for each wrapper. Raises CorruptRecords, RecordsTooLarge or InvalidRecord when it gets there.
    """
    for message in _walk(buffer):
        if not message.codec:
            yield Record(message.offset, message.timestamp, message.key, message.value)
            continue
        content = _unwrap(message, limit)
        # A producer leaves the wrapper's offset at 0: nothing to count back from until a broker has set it.
        base_offset = max(0, message.offset - _last_offset(content)) if message.magic > 0 else 0
        for inner in _walk_inner(message, content):
            timestamp = message.timestamp if message.has_append_time else inner.timestamp
            yield Record(base_offset + inner.offset, timestamp, inner.key, inner.value)


def _numbered(messages: Iterator[_Message], offsets: Iterator[int]) -> Iterator[Record]:
    for message in messages:
        yield Record(next(offsets), _checked_produced(message).timestamp, message.key, message.value)


def _checked_produced(message: _Message) -> _Message:
    if message.has_append_time:
        raise KafkaError(ErrorCode.INVALID_TIMESTAMP, "only the broker sets log append time")
    return message


def _walk(buffer: Bytes) -> Iterator[_Message]:
    position, end = 0, len(buffer)
    view = memoryview(buffer)
    while position < end:
        message, position = _read_message(view, position)
        yield message


def _walk_inner(wrapper: _Message, content: bytes) -> Iterator[_Message]:
    if not content:
        raise InvalidRecord("a compressed message with no messages inside")
    for message in _walk(content):
        if message.magic != wrapper.magic:
            raise InvalidRecord(f"a message of magic {message.magic} inside one of magic {wrapper.magic}")
        if message.codec:
            raise InvalidRecord("a compressed message inside a compressed message")
        yield message


def _last_offset(content: bytes) -> int:
    offset = 0
    for message in _walk(content):
        offset = message.offset
    return offset


def _read_message(view: memoryview, position: int) -> tuple[_Message, int]:
    available = len(view) - position
    if available < _PREFIX.size:
        raise CorruptRecords(f"{available} bytes are too few for a message")
    offset, size, crc, magic, attributes = _PREFIX.unpack_from(view, position)
    if magic not in _MESSAGE_BYTES_MIN:
        raise InvalidRecord(f"a message of magic {magic} in a message set")
    if not _MESSAGE_BYTES_MIN[magic] <= size + _SIZE_END <= available:
        raise CorruptRecords(f"a message of {size + _SIZE_END} bytes where {available} are left")
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
        raise CorruptRecords(f"{end - field_position} bytes after the value of a message")
    return _Message(position, offset, magic, attributes, timestamp, key, value), end


def _read_bytes(view: memoryview, position: int, end: int) -> tuple[bytes | None, int]:
    if end - position < _INT32.size:
        raise CorruptRecords("the length of a field ends early")
    (length,) = _INT32.unpack_from(view, position)
    position += _INT32.size
    if length == -1:
        return None, position
    if not 0 <= length <= end - position:
        raise CorruptRecords(f"a field of {length} bytes where {end - position} are left")
    return bytes(view[position : position + length]), position + length


def _unwrap(wrapper: _Message, limit: int) -> bytes:
    if wrapper.value is None:
        raise InvalidRecord("a compressed message without a value")
    if wrapper.codec == Codec.ZSTD:
        raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"messages of magic {wrapper.magic} have no zstd")
    data = wrapper.value
    if wrapper.codec == Codec.LZ4 and wrapper.magic == 0:
        data = with_right_checksum(data)
    return decompress(wrapper.codec, data, limit)


def _wrap(magic: int, header: BatchHeader, records: Iterator[Record]) -> bytes:
    """A wrapper's offset is that of the last message in it."""
    content = bytearray()
    last_offset = header.last_offset
    for record in records:
        inner_offset = record.offset - header.base_offset if magic > 0 else record.offset
        content += _encode_message(magic, header, inner_offset, record)
        last_offset = record.offset
    codec = Codec.GZIP if header.codec == Codec.ZSTD else header.codec
    data = compress(codec, bytes(content))
    if codec == Codec.LZ4 and magic == 0:
        data = with_legacy_checksum(data)
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
