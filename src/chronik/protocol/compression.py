"""The five compression codecs of Kafka's record batches, with bounded decompression.

Neither the output nor the memory used by `decompress` exceeds the caller's limit, so a decompression bomb causes an
error and does not exhaust the node's memory.
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

# The initial output size: usual batches fit, and a larger output is decompressed again with four times the size, so
# that at most a third of the work is wasted.
_OUTPUT_BYTES_MIN = 64 * 1024
_OUTPUT_GROWTH = 4

# The message of Rust's `Write::write_all` when the output buffer is full; cramjam has no exception type for it.
_OUTPUT_FULL = "failed to write whole buffer"

_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL_MAGIC + struct.pack(">ii", 1, 1)  # version and minimum compatible version
_XERIAL_BLOCK_BYTES = 32 * 1024  # the block size of Java's SnappyOutputStream
_INT32 = struct.Struct(">i")

# A `Compressor` compresses in chunks of at least this size.
COMPRESSION_CHUNK_BYTES = 256 * 1024

# Output up to this size is copied to bytes; larger output stays in the buffer it was decompressed to.
_HEAP_BYTES_MAX = 1024 * 1024

# Each snappy block costs as much time as a few hundred bytes. Java's blocks have 32 kB, and at least 1 kB, so the
# number of blocks is limited by the output size; a few more are always allowed.
_SNAPPY_BLOCK_BYTES_MIN = 256
_SNAPPY_BLOCKS_MIN = 64

_DecompressInto = Callable[[bytes | memoryview, memoryview], int]
_Prefix = tuple[bytes | memoryview, bool]  # output, and whether it is complete

_LZ4_MAGIC = b"\x04\x22\x4d\x18"
_LZ4_FLAGS_POSITION = len(_LZ4_MAGIC)
_LZ4_CONTENT_SIZE_FLAG, _LZ4_DICTIONARY_FLAG = 0x08, 0x01
_LZ4_DESCRIPTOR_BYTES_MIN = 2  # flags and block size

_UINT32 = 0xFFFFFFFF
_PRIME_1, _PRIME_2, _PRIME_3, _PRIME_4, _PRIME_5 = 2654435761, 2246822519, 3266489917, 668265263, 374761393
_XXH32_STRIPE_BYTES = 16  # longer inputs are hashed in stripes, which LZ4 headers never need


class Codec(IntEnum):
    """A compression codec of the Kafka protocol, whose number is in the lowest three bits of the batch attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


def parse_codec(number: int) -> Codec:
    """Return the compression codec with this number.

    Raises:
        KafkaError: UNSUPPORTED_COMPRESSION_TYPE for the undefined numbers 5, 6 and 7.
    """
    try:
        return Codec(number)
    except ValueError:
        raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"unknown compression codec {number}") from None


def compress(codec: int, data: bytes | bytearray | memoryview, level: int | None = None) -> bytes:
    """Compress data at Kafka's compression level `level`; None (or -1 for gzip) selects the codec's default level."""
    if codec == Codec.NONE:
        return bytes(data)
    if codec == Codec.SNAPPY:
        return _XERIAL_HEADER + _compress_xerial_blocks(data)
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
    """A streaming compressor, which accepts its input in parts."""

    def __init__(self, codec: Codec, level: int | None = None) -> None:
        self._codec = codec
        self._pending = bytearray()
        self._output = bytearray(_XERIAL_HEADER if codec is Codec.SNAPPY else b"")
        self._stream: Any = None
        if codec is Codec.LZ4:
            self._stream = _create_lz4_compressor(level)
        elif codec is Codec.GZIP:
            self._stream = cramjam.gzip.Compressor(level=None if level == -1 else level)
        elif codec is Codec.ZSTD:
            self._stream = cramjam.zstd.Compressor(level=level)

    def add(self, data: bytes | bytearray | memoryview) -> None:
        """Compress the next part of the input."""
        if self._codec is Codec.NONE:
            self._output += data
            return
        view = memoryview(data)
        for start in range(0, len(view), COMPRESSION_CHUNK_BYTES):
            self._pending += view[start : start + COMPRESSION_CHUNK_BYTES]
            if len(self._pending) >= COMPRESSION_CHUNK_BYTES:
                whole = len(self._pending) - len(self._pending) % _XERIAL_BLOCK_BYTES
                self._compress(self._pending[:whole])
                del self._pending[:whole]

    def finish(self) -> bytes | bytearray:
        """Compress the rest of the input, and return the complete compressed data."""
        self._compress(self._pending)
        return self._output if self._stream is None else bytes(self._stream.finish())

    def _compress(self, data: bytearray) -> None:
        if self._stream is not None:
            self._stream.compress(bytes(data))
        else:
            self._output += _compress_xerial_blocks(data)


def decompress(codec: int, data: bytes | memoryview, limit: int = DECOMPRESSED_BYTES_MAX) -> bytes:
    """Decompress data that was compressed with the given codec.

    Raises:
        CorruptRecords: The data is damaged.
        RecordsTooLarge: The output would exceed `limit` bytes.
    """
    return bytes(decompress_view(codec, data, limit))


def decompress_view(codec: int, data: bytes | memoryview, limit: int) -> bytes | memoryview:
    """Decompress data like `decompress`, but return large output as a view, without copying it."""
    for output, is_whole in iter_decompressed_prefixes(codec, data, limit):
        if is_whole:
            return output
        del output  # at most one output buffer is in memory
    raise AssertionError("the last prefix is complete")


def iter_decompressed_prefixes(codec: int, data: bytes | memoryview, limit: int) -> Iterator[_Prefix]:
    """Yield growing prefixes of the decompressed data, each with a flag that tells whether it is complete.

    A caller that needs only the start of the output can stop early. Raises as `decompress` does.
    """
    known = parse_codec(codec)
    if known is Codec.NONE:
        if len(data) > limit:
            raise RecordsTooLarge(f"{len(data)} bytes of records exceed the limit of {limit} bytes")
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


def _decompress_up_to(codec: Codec, decompress_into: _DecompressInto, data: bytes | memoryview, size: int) -> _Prefix:
    output = _allocate_buffer(size)
    try:
        written = decompress_into(data, output)
    except cramjam.DecompressionError as error:
        if _OUTPUT_FULL not in str(error):
            raise CorruptRecords(f"{codec.name.lower()} data: {error}") from None
        return _convert_output(output), False
    return _convert_output(output[:written]), True


def _allocate_buffer(size: int) -> memoryview:
    """Allocate an output buffer. Large buffers use mmap, whose memory is returned to the system when it is freed."""
    return memoryview(bytearray(size) if size <= _HEAP_BYTES_MAX else mmap.mmap(-1, size))


def _convert_output(output: memoryview) -> bytes | memoryview:
    """Return small output as bytes, which are faster to read, and large output as a view."""
    return bytes(output) if len(output) <= _HEAP_BYTES_MAX else output


def _create_lz4_compressor(level: int | None) -> Any:
    # Java's reader rejects frames with linked blocks, and does not verify content checksums.
    return cramjam.lz4.Compressor(level=level, content_checksum=False, block_linked=False)


def _compress_xerial_blocks(data: bytes | bytearray | memoryview) -> bytes:
    output = bytearray()
    view = memoryview(data)
    for start in range(0, len(data), _XERIAL_BLOCK_BYTES):
        block = cramjam.snappy.compress_raw(view[start : start + _XERIAL_BLOCK_BYTES])
        output += _INT32.pack(len(block))
        output += block
    return bytes(output)


def _decompress_snappy_up_to(data: bytes | memoryview, size: int) -> _Prefix:
    """Decompress as many complete snappy blocks as fit into `size` bytes.

    A block starts with the size of its content, and the decoder writes exactly that many bytes or fails.
    """
    total, is_whole, blocks_max = 0, True, _SNAPPY_BLOCKS_MIN + size // _SNAPPY_BLOCK_BYTES_MIN
    for number, (_, content_bytes) in enumerate(_iter_snappy_blocks(memoryview(data))):
        if total + content_bytes > size or number == blocks_max:
            is_whole = False
            break
        total += content_bytes
    output, position = _allocate_buffer(total), 0
    for block, content_bytes in _iter_snappy_blocks(memoryview(data)):
        if position + content_bytes > total:
            break
        _decompress_snappy_block(block, output[position : position + content_bytes])
        position += content_bytes
    return _convert_output(output), is_whole


def _iter_snappy_blocks(data: memoryview) -> Iterator[tuple[memoryview, int]]:
    """Yield the snappy blocks of xerial-framed or raw data, each with its decompressed size."""
    if data[: len(_XERIAL_MAGIC)] != _XERIAL_MAGIC:
        yield data, _read_snappy_content_bytes(data)
        return
    position, end = 0, len(data)
    while position < end:
        # Concatenated streams are one stream, as in Java. The versions after the magic are ignored, because some
        # writers use the wrong byte order.
        if data[position : position + len(_XERIAL_MAGIC)] == _XERIAL_MAGIC:
            position += len(_XERIAL_HEADER)
            if position > end:
                raise CorruptRecords("snappy data: the header is incomplete")
            if position == end:
                return
        if end - position < _INT32.size:
            raise CorruptRecords("snappy data: the length of a block is incomplete")
        (size,) = _INT32.unpack_from(data, position)
        position += _INT32.size
        if not 0 < size <= end - position:
            raise CorruptRecords(f"snappy data: a block claims {size} bytes, but {end - position} are left")
        block = data[position : position + size]
        yield block, _read_snappy_content_bytes(block)
        position += size


def _read_snappy_content_bytes(block: memoryview) -> int:
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
    Codec.GZIP: partial(_decompress_up_to, Codec.GZIP, cramjam.gzip.decompress_into),
    Codec.SNAPPY: _decompress_snappy_up_to,
    Codec.LZ4: partial(_decompress_up_to, Codec.LZ4, cramjam.lz4.decompress_into),
    Codec.ZSTD: partial(_decompress_up_to, Codec.ZSTD, cramjam.zstd.decompress_into),
}


def with_legacy_lz4_checksum(frame: bytes) -> bytes:
    """Return the LZ4 frame with the incorrect header checksum that Kafka clients of message format 0 expect.

    The first Kafka brokers computed the checksum over the frame's magic number too (KAFKA-3160), and clients of that
    time verify it.
    """
    end = _find_lz4_descriptor_end(frame)
    return frame[:end] + _compute_lz4_checksum(frame[:end]) + frame[end + 1 :]


def with_correct_lz4_checksum(frame: bytes) -> bytes:
    """Return the LZ4 frame with a correct header checksum in place of the current one.

    Raises:
        CorruptRecords: The data has no LZ4 frame header.
    """
    end = _find_lz4_descriptor_end(frame)
    return frame[:end] + _compute_lz4_checksum(frame[_LZ4_FLAGS_POSITION:end]) + frame[end + 1 :]


def _find_lz4_descriptor_end(frame: bytes) -> int:
    if frame[:_LZ4_FLAGS_POSITION] != _LZ4_MAGIC or len(frame) < _LZ4_FLAGS_POSITION + _LZ4_DESCRIPTOR_BYTES_MIN + 1:
        raise CorruptRecords("lz4 data: no frame header")
    flags = frame[_LZ4_FLAGS_POSITION]
    if flags & _LZ4_DICTIONARY_FLAG:
        raise CorruptRecords("lz4 data: the frame requires a dictionary")
    end = _LZ4_FLAGS_POSITION + _LZ4_DESCRIPTOR_BYTES_MIN + (8 if flags & _LZ4_CONTENT_SIZE_FLAG else 0)
    if len(frame) <= end:
        raise CorruptRecords("lz4 data: the frame header is incomplete")
    return end


def _compute_lz4_checksum(header: bytes) -> bytes:
    return bytes([_xxh32_short(header) >> 8 & 0xFF])


def _xxh32_short(data: bytes) -> int:
    """Return the 32-bit xxHash of up to 15 bytes of data, with seed 0."""
    if len(data) >= _XXH32_STRIPE_BYTES:
        raise ValueError(f"{len(data)} bytes are too long for an LZ4 header")
    value = _PRIME_5 + len(data)
    words_end = len(data) & ~3
    for start in range(0, words_end, 4):
        value += int.from_bytes(data[start : start + 4], "little") * _PRIME_3
        value = _rotate_left(value, 17) * _PRIME_4
    for byte in data[words_end:]:
        value = _rotate_left(value + byte * _PRIME_5, 11) * _PRIME_1
    value &= _UINT32
    value = (value ^ value >> 15) * _PRIME_2 & _UINT32
    value = (value ^ value >> 13) * _PRIME_3 & _UINT32
    return value ^ value >> 16


def _rotate_left(value: int, bits: int) -> int:
    value &= _UINT32
    return (value << bits | value >> 32 - bits) & _UINT32
