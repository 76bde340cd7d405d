"""The five codecs of Kafka's record batches, with bounded decompression.

What comes out of `decompress` is never larger than the caller's limit, nor is what it holds on the way: a few
kilobytes that stand for gigabytes cost an error, not the node.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Callable, Iterator
from enum import IntEnum
from functools import partial
from typing import Any

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

# What is added to a `Compressor` is compressed in pieces of at least this size.
PIECE_BYTES = 256 * 1024

# What comes out is copied into bytes up to this size, and otherwise stays where it was decompressed to.
_HEAP_BYTES_MAX = 1024 * 1024

# To open a block of snappy takes as long as a few hundred bytes do, however little is in it. Java's have 32 kB, and
# 1 kB at least; a few more are always allowed.
_SNAPPY_BLOCK_BYTES_MIN = 256
_SNAPPY_BLOCKS_MIN = 64

_DecompressInto = Callable[[bytes | memoryview, memoryview], int]
_Prefix = tuple[bytes | memoryview, bool]  # and whether that is all


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


def compress(codec: int, data: bytes | bytearray | memoryview, level: int | None = None) -> bytes:
    """`level` is that of Kafka's compression.*.level; None, and gzip's -1, mean the codec's own default."""
    if codec == Codec.NONE:
        return bytes(data)
    if codec == Codec.SNAPPY:
        return _XERIAL_HEADER + _xerial_blocks(data)
    if codec == Codec.LZ4:
        compressor = Compressor(Codec.LZ4, level)
        compressor.add(data)
        return bytes(compressor.finish())
    if codec == Codec.GZIP:
        return bytes(cramjam.gzip.compress(data, level=None if level == -1 else level))
    if codec == Codec.ZSTD:
        return bytes(cramjam.zstd.compress(data, level=level))
    raise ValueError(f"unknown compression codec {codec}")


class Compressor:
    """Compresses what is added piece by piece: it need not be in memory all at once."""

    def __init__(self, codec: Codec, level: int | None = None) -> None:
        self._codec = codec
        self._pending = bytearray()
        self._output = bytearray(_XERIAL_HEADER if codec is Codec.SNAPPY else b"")
        self._stream: Any = None
        if codec is Codec.LZ4:
            self._stream = _lz4_compressor(level)
        elif codec is Codec.GZIP:
            self._stream = cramjam.gzip.Compressor(level=None if level == -1 else level)
        elif codec is Codec.ZSTD:
            self._stream = cramjam.zstd.Compressor(level=level)

    def add(self, data: bytes | bytearray | memoryview) -> None:
        if self._codec is Codec.NONE:
            self._output += data
            return
        view = memoryview(data)
        for start in range(0, len(view), PIECE_BYTES):
            self._pending += view[start : start + PIECE_BYTES]
            if len(self._pending) >= PIECE_BYTES:
                whole = len(self._pending) - len(self._pending) % _XERIAL_BLOCK_BYTES
                self._compress(self._pending[:whole])
                del self._pending[:whole]

    def finish(self) -> bytes | bytearray:
        self._compress(self._pending)
        return self._output if self._stream is None else bytes(self._stream.finish())

    def _compress(self, data: bytearray) -> None:
        if self._stream is not None:
            self._stream.compress(bytes(data))
        else:
            self._output += _xerial_blocks(data)


def decompress(codec: int, data: bytes | memoryview, limit: int = DECOMPRESSED_BYTES_MAX) -> bytes:
    """Raises CorruptRecords for bytes the codec cannot read, RecordsTooLarge when they stand for more than `limit`."""
    return bytes(inflate(codec, data, limit))


def inflate(codec: int, data: bytes | memoryview, limit: int) -> bytes | memoryview:
    """Does as `decompress`, but large output is never in memory twice."""
    for output, is_whole in prefixes(codec, data, limit):
        if is_whole:
            return output
        del output  # never two of them at a time
    raise AssertionError("the last one is whole")


def prefixes(codec: int, data: bytes | memoryview, limit: int) -> Iterator[_Prefix]:
    """Yields the output, each time four times as much of it, and whether it is whole: a caller that finds what it looks
    for near the start need not wait for the rest. Raises as `decompress` does."""
    known = codec_of(codec)
    if known is Codec.NONE:
        if len(data) > limit:
            raise RecordsTooLarge(f"{len(data)} bytes of records are more than {limit}")
        yield bytes(data), True
        return
    size = min(limit, max(_OUTPUT_BYTES_MIN, _OUTPUT_GROWTH * len(data)))
    while True:
        output, is_whole = _DECOMPRESS_UP_TO[known](data, size)
        if is_whole or size < limit:
            yield output, is_whole
        del output
        if is_whole:
            return
        if size >= limit:
            raise RecordsTooLarge(f"{known.name.lower()} data decompresses to more than {limit} bytes")
        size = min(limit, _OUTPUT_GROWTH * size)


def _up_to(codec: Codec, decompress_into: _DecompressInto, data: bytes | memoryview, size: int) -> _Prefix:
    output = _room(size)
    try:
        written = decompress_into(data, output)
    except cramjam.DecompressionError as error:
        if _OUTPUT_FULL not in str(error):
            raise CorruptRecords(f"{codec.name.lower()} data: {error}") from None
        return _filled(output), False
    return _filled(output[:written]), True


def _room(size: int) -> memoryview:
    """Takes large buffers from the system: it fills them with zeros while others run, and soon gets them back."""
    return memoryview(bytearray(size) if size <= _HEAP_BYTES_MAX else mmap.mmap(-1, size))


def _filled(output: memoryview) -> bytes | memoryview:
    """Returns small output as bytes, which are the quickest to read."""
    return bytes(output) if len(output) <= _HEAP_BYTES_MAX else output


def _lz4_compressor(level: int | None) -> Any:
    # Java's reader refuses frames whose blocks depend on each other, and never checks a checksum over the content.
    return cramjam.lz4.Compressor(level=level, content_checksum=False, block_linked=False)


def _xerial_blocks(data: bytes | bytearray | memoryview) -> bytes:
    output = bytearray()
    view = memoryview(data)
    for start in range(0, len(data), _XERIAL_BLOCK_BYTES):
        block = cramjam.snappy.compress_raw(view[start : start + _XERIAL_BLOCK_BYTES])
        output += _INT32.pack(len(block))
        output += block
    return bytes(output)


def _snappy_up_to(data: bytes | memoryview, size: int) -> _Prefix:
    """Decompresses as many whole blocks as fit: a block starts with the size of its content, and the decoder writes
    exactly as much or fails."""
    total, is_whole, blocks_max = 0, True, _SNAPPY_BLOCKS_MIN + size // _SNAPPY_BLOCK_BYTES_MIN
    for number, (_, content_bytes) in enumerate(_snappy_blocks(memoryview(data))):
        if total + content_bytes > size or number == blocks_max:
            is_whole = False
            break
        total += content_bytes
    output, position = _room(total), 0
    for block, content_bytes in _snappy_blocks(memoryview(data)):
        if position + content_bytes > total:
            break
        _decompress_snappy_block(block, output[position : position + content_bytes])
        position += content_bytes
    return _filled(output), is_whole


def _snappy_blocks(data: memoryview) -> Iterator[tuple[memoryview, int]]:
    """Yields each block with the size of its content."""
    if data[: len(_XERIAL_MAGIC)] != _XERIAL_MAGIC:
        yield data, _snappy_content_bytes(data)
        return
    position, end = 0, len(data)
    while position < end:
        # Several streams in a row are one, as for Java. The two versions after the magic are not looked at: some
        # writers have them in the wrong byte order.
        if data[position : position + len(_XERIAL_MAGIC)] == _XERIAL_MAGIC:
            position += len(_XERIAL_HEADER)
            if position > end:
                raise CorruptRecords("snappy data: the header ends early")
            if position == end:
                return
        if end - position < _INT32.size:
            raise CorruptRecords("snappy data: the length of a block ends early")
        (size,) = _INT32.unpack_from(data, position)
        position += _INT32.size
        if not 0 < size <= end - position:
            raise CorruptRecords(f"snappy data: a block of {size} bytes where {end - position} are left")
        block = data[position : position + size]
        yield block, _snappy_content_bytes(block)
        position += size


def _snappy_content_bytes(block: memoryview) -> int:
    try:
        return int(cramjam.snappy.decompress_raw_len(block))
    except cramjam.DecompressionError as error:
        raise CorruptRecords(f"snappy data: {error}") from None


def _decompress_snappy_block(block: memoryview, output: memoryview) -> None:
    try:
        cramjam.snappy.decompress_raw_into(block, output)
    except cramjam.DecompressionError as error:
        raise CorruptRecords(f"snappy data: {error}") from None


_DECOMPRESS_UP_TO: dict[Codec, Callable[[bytes | memoryview, int], _Prefix]] = {
    Codec.GZIP: partial(_up_to, Codec.GZIP, cramjam.gzip.decompress_into),
    Codec.SNAPPY: _snappy_up_to,
    Codec.LZ4: partial(_up_to, Codec.LZ4, cramjam.lz4.decompress_into),
    Codec.ZSTD: partial(_up_to, Codec.ZSTD, cramjam.zstd.decompress_into),
}
