"""The five codecs of Kafka's record batches, with bounded decompression.

What comes out of `decompress` is never larger than the caller's limit, nor is what it holds on the way: a few
kilobytes that stand for gigabytes cost an error, not the node.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from enum import IntEnum

import cramjam

from chronik.limits import DECOMPRESSED_BYTES_MAX
from chronik.protocol.errors import CorruptRecords, ErrorCode, KafkaError, RecordsTooLarge

# The first guess at the size of the output: usual batches fit at once, and a wrong guess is repeated four times larger,
# so that the work wasted is at most a third of the work done.
_OUTPUT_BYTES_MIN = 64 * 1024
_OUTPUT_GROWTH = 4

# What Rust's `Write::write_all` says when the output buffer ends first; cramjam gives it no type of its own.
_OUTPUT_FULL = "failed to write whole buffer"

_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL_MAGIC + struct.pack(">ii", 1, 1)  # version, and the oldest version that can read it
_XERIAL_BLOCK_BYTES = 32 * 1024  # what Java's SnappyOutputStream fills before it compresses
_INT32 = struct.Struct(">i")


class Codec(IntEnum):
    """The number in the lowest three bits of a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


def codec_of(number: int) -> Codec:
    """Raises KafkaError with UNSUPPORTED_COMPRESSION_TYPE for 5, 6 and 7, which nobody has defined yet."""
    try:
        return Codec(number)
    except ValueError:
        raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"unknown compression codec {number}") from None


def compress(codec: int, data: bytes, level: int | None = None) -> bytes:
    """`level` as in Kafka's compression.*.level; None, and gzip's -1, mean the codec's own default."""
    if codec == Codec.NONE:
        return data
    if codec == Codec.SNAPPY:
        return _compress_xerial(data)
    if codec == Codec.LZ4:
        return _compress_lz4(data, level)
    if codec == Codec.GZIP:
        return bytes(cramjam.gzip.compress(data, level=None if level == -1 else level))
    if codec == Codec.ZSTD:
        return bytes(cramjam.zstd.compress(data, level=level))
    raise ValueError(f"unknown compression codec {codec}")


def decompress(codec: int, data: bytes | memoryview, limit: int = DECOMPRESSED_BYTES_MAX) -> bytes:
    """Raises CorruptRecords for bytes the codec cannot read, RecordsTooLarge when they stand for more than `limit`."""
    known = codec_of(codec)
    if known is Codec.NONE:
        if len(data) > limit:
            raise RecordsTooLarge(f"{len(data)} bytes of records are more than {limit}")
        return bytes(data)
    if known is Codec.SNAPPY:
        return _decompress_snappy(data, limit)
    return _decompress_bounded(_DECOMPRESS_INTO[known], known, data, limit)


_DECOMPRESS_INTO: dict[Codec, Callable[[bytes | memoryview, bytearray], int]] = {
    Codec.GZIP: cramjam.gzip.decompress_into,
    Codec.LZ4: cramjam.lz4.decompress_into,
    Codec.ZSTD: cramjam.zstd.decompress_into,
}


def _decompress_bounded(
    decompress_into: Callable[[bytes | memoryview, bytearray], int], codec: Codec, data: bytes | memoryview, limit: int
) -> bytes:
    size = min(limit, max(_OUTPUT_BYTES_MIN, _OUTPUT_GROWTH * len(data)))
    while True:
        output = bytearray(size)
        try:
            written = decompress_into(data, output)
        except cramjam.DecompressionError as error:
            if _OUTPUT_FULL not in str(error):
                raise CorruptRecords(f"{codec.name.lower()} data: {error}") from None
        else:
            return bytes(memoryview(output)[:written])
        if size >= limit:
            raise _too_large(codec, limit)
        del output  # never two of them at a time
        size = min(limit, _OUTPUT_GROWTH * size)


def _compress_lz4(data: bytes, level: int | None) -> bytes:
    # Java's reader refuses frames whose blocks depend on each other, and never checks a checksum over the content.
    compressor = cramjam.lz4.Compressor(level=level, content_checksum=False, block_linked=False)
    compressor.compress(bytes(data))
    return bytes(compressor.finish())


def _compress_xerial(data: bytes) -> bytes:
    output = bytearray(_XERIAL_HEADER)
    view = memoryview(data)
    for start in range(0, len(data), _XERIAL_BLOCK_BYTES):
        block = cramjam.snappy.compress_raw(view[start : start + _XERIAL_BLOCK_BYTES])
        output += _INT32.pack(len(block))
        output += block
    return bytes(output)


def _decompress_snappy(data: bytes | memoryview, limit: int) -> bytes:
    if bytes(data[: len(_XERIAL_MAGIC)]) != _XERIAL_MAGIC:
        return _decompress_snappy_block(data, limit)
    # The two versions after the magic are not looked at: some writers have them in the wrong byte order.
    output = bytearray()
    view = memoryview(data)
    position, end = len(_XERIAL_HEADER), len(data)
    if end < position:
        raise CorruptRecords("snappy data: the header ends early")
    while position < end:
        if end - position < _INT32.size:
            raise CorruptRecords("snappy data: the length of a block ends early")
        (size,) = _INT32.unpack_from(view, position)
        position += _INT32.size
        if not 0 < size <= end - position:
            raise CorruptRecords(f"snappy data: a block of {size} bytes where {end - position} are left")
        output += _decompress_snappy_block(view[position : position + size], limit - len(output))
        position += size
    return bytes(output)


def _decompress_snappy_block(block: bytes | memoryview, limit: int) -> bytes:
    # A block starts with the size of its content, and the decoder writes exactly as much or fails.
    try:
        if cramjam.snappy.decompress_raw_len(block) > limit:
            raise _too_large(Codec.SNAPPY, limit)
        return bytes(cramjam.snappy.decompress_raw(block))
    except cramjam.DecompressionError as error:
        raise CorruptRecords(f"snappy data: {error}") from None


def _too_large(codec: Codec, limit: int) -> RecordsTooLarge:
    return RecordsTooLarge(f"{codec.name.lower()} data decompresses to more than {limit} bytes")
