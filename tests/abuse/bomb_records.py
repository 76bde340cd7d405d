"""Decompression bombs: batches that are small when compressed and huge, or numerous, when decoded. Performs no I/O."""

from __future__ import annotations

import struct
import zlib
from typing import Final

from chronik.protocol.batch import MAGIC, BatchHeader, build_batch
from chronik.protocol.compression import Codec, compress
from chronik.protocol.varint import encode_varint

HEADERS: Final = 100_000
_EMPTY_HEADER: Final = b"\x00\x01"  # no name, no value

TIME_MS: Final = 1_700_000_000_000


def batch_with_many_headers(
    body_bytes: int, codec: Codec, *, key: bytes | None = b"k", headers: int = HEADERS
) -> bytes:
    """Return a batch whose records have 100,000 empty headers each (200 kB per record)."""
    tail = encode_field(key) + encode_field(None) + encode_varint(headers) + _EMPTY_HEADER * headers
    return encode_bomb_batch(
        [encode_bomb_record(delta, tail) for delta in range(max(1, body_bytes // len(tail)))], codec
    )


def batch_of_tiny_records(count: int, codec: Codec, *, key: bytes | None = b"") -> bytes:
    """Return a batch of many records of about seven bytes."""
    tail = encode_field(key) + encode_field(None) + b"\x00"
    return encode_bomb_batch([encode_bomb_record(delta, tail) for delta in range(count)], codec)


def batch_with_large_record(size: int, codec: Codec, *, key: bytes | None = b"k") -> bytes:
    """Return a batch with a single large record."""
    before = b"\x00\x00" + encode_varint(0) + encode_field(key) + encode_varint(size)
    return encode_bomb_batch([encode_varint(len(before) + size + 1), before, bytes(size), b"\x00"], codec, count=1)


def encode_bomb_record(offset_delta: int, tail: bytes) -> bytes:
    fields = b"\x00\x00" + encode_varint(offset_delta) + tail
    return encode_varint(len(fields)) + fields


def encode_field(content: bytes | None) -> bytes:
    return b"\x01" if content is None else encode_varint(len(content)) + content


def encode_bomb_batch(
    records: list[bytes], codec: Codec, *, max_timestamp: int = TIME_MS, count: int | None = None
) -> bytes:
    """Return a batch. `max_timestamp` and `count` are the values in the header, correct or not."""
    count = len(records) if count is None else count
    header = BatchHeader(
        base_offset=0,
        batch_length=0,
        partition_leader_epoch=-1,
        magic=MAGIC,
        crc=0,
        attributes=codec,
        last_offset_delta=count - 1,
        base_timestamp=TIME_MS,
        max_timestamp=max_timestamp,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        record_count=count,
    )
    return build_batch(header, compress(codec, b"".join(records)))


def magic_1_messages(body_bytes: int, codec: Codec) -> bytes:
    """Return a compressed message of magic 1 that contains empty messages of 34 bytes."""
    inner = magic_1_message(b"", 0, Codec.NONE)
    return magic_1_message(compress(codec, inner * (body_bytes // len(inner))), 0, codec)


def magic_1_message(value: bytes, offset: int, codec: Codec) -> bytes:
    fields = struct.pack(">bbqii", 1, codec, TIME_MS, -1, len(value)) + value
    return struct.pack(">qiI", offset, len(fields) + 4, zlib.crc32(fields)) + fields
