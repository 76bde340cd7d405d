"""The wrong LZ4 header checksum in messages of magic 0.

The first Kafka brokers computed the checksum over the frame's magic number too (KAFKA-3160), and clients of that time
verify it. So frames for them get the legacy checksum, and frames from them the correct one before decompression.
"""

from __future__ import annotations

from chronik.protocol.errors import CorruptRecords

_MAGIC = b"\x04\x22\x4d\x18"
_FLAGS_POSITION = len(_MAGIC)
_CONTENT_SIZE_FLAG, _DICTIONARY_FLAG = 0x08, 0x01
_DESCRIPTOR_BYTES_MIN = 2  # flags and block size

_UINT32 = 0xFFFFFFFF
_PRIME_1, _PRIME_2, _PRIME_3, _PRIME_4, _PRIME_5 = 2654435761, 2246822519, 3266489917, 668265263, 374761393
_XXH32_STRIPE_BYTES = 16  # longer inputs are hashed in stripes, which LZ4 headers never need


def with_legacy_checksum(frame: bytes) -> bytes:
    """Return the LZ4 frame with the legacy header checksum that clients of magic 0 expect."""
    end = _descriptor_end(frame)
    return frame[:end] + _checksum(frame[:end]) + frame[end + 1 :]


def with_correct_checksum(frame: bytes) -> bytes:
    """Return the LZ4 frame with the correct header checksum, whichever checksum it has.

    Raises:
        CorruptRecords: The data has no LZ4 frame header.
    """
    end = _descriptor_end(frame)
    return frame[:end] + _checksum(frame[_FLAGS_POSITION:end]) + frame[end + 1 :]


def _descriptor_end(frame: bytes) -> int:
    if frame[:_FLAGS_POSITION] != _MAGIC or len(frame) < _FLAGS_POSITION + _DESCRIPTOR_BYTES_MIN + 1:
        raise CorruptRecords("lz4 data: no frame header")
    flags = frame[_FLAGS_POSITION]
    if flags & _DICTIONARY_FLAG:
        raise CorruptRecords("lz4 data: the frame requires a dictionary")
    end = _FLAGS_POSITION + _DESCRIPTOR_BYTES_MIN + (8 if flags & _CONTENT_SIZE_FLAG else 0)
    if len(frame) <= end:
        raise CorruptRecords("lz4 data: the frame header is incomplete")
    return end


def _checksum(header: bytes) -> bytes:
    return bytes([_xxh32_short(header) >> 8 & 0xFF])


def _xxh32_short(data: bytes) -> int:
    """Return xxHash32 with seed 0 of data that is shorter than a stripe."""
    if len(data) >= _XXH32_STRIPE_BYTES:
        raise ValueError(f"{len(data)} bytes are too long for an LZ4 header")
    value = _PRIME_5 + len(data)
    words_end = len(data) & ~3
    for start in range(0, words_end, 4):
        value += int.from_bytes(data[start : start + 4], "little") * _PRIME_3
        value = _rotated_left(value, 17) * _PRIME_4
    for byte in data[words_end:]:
        value = _rotated_left(value + byte * _PRIME_5, 11) * _PRIME_1
    value &= _UINT32
    value = (value ^ value >> 15) * _PRIME_2 & _UINT32
    value = (value ^ value >> 13) * _PRIME_3 & _UINT32
    return value ^ value >> 16


def _rotated_left(value: int, bits: int) -> int:
    value &= _UINT32
    return (value << bits | value >> 32 - bits) & _UINT32
