"""Zigzag varints, the encoding of numbers in records: small numbers of either sign take one byte."""

from __future__ import annotations

from chronik import varint
from chronik.protocol.errors import CorruptRecords

INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1

_VARINT32_BYTES_MAX = 5
_VARINT64_BYTES_MAX = 10

# Encodings of the values that take one byte, by value: list[-64] … list[63]. Most record fields are among them.
_ONE_BYTE = [bytes([value << 1]) for value in range(64)] + [bytes([(-value << 1) - 1]) for value in range(-64, 0)]

# Values of single-byte varints (below 0x80), by byte.
SINGLE_BYTE_VALUES = [byte >> 1 ^ -(byte & 1) for byte in range(0x80)]


def wrap_int64(value: int) -> int:
    """Return the value wrapped around to a signed 64-bit integer, as in Java."""
    return (value + INT64_MAX + 1 & 2**64 - 1) - INT64_MAX - 1


def encode_varint(value: int) -> bytes:
    """Encode an integer as a zigzag varint.

    Raises:
        ValueError: The value does not fit into 64 bits.
    """
    if -64 <= value <= 63:
        return _ONE_BYTE[value]
    if not -INT64_MAX - 1 <= value <= INT64_MAX:
        raise ValueError(f"{value} does not fit into 64 bits")
    output = bytearray()
    varint.write_varint(output, varint.encode_zigzag(value))
    return bytes(output)


def read_varint(data: bytes | bytearray | memoryview, position: int) -> tuple[int, int]:
    """Return the 32-bit zigzag varint at `position`, and the position after it.

    Raises:
        CorruptRecords: The value has more than 32 bits.
        IndexError: The data is incomplete.
    """
    return _read(data, position, _VARINT32_BYTES_MAX, 32)


def read_varlong(data: bytes | bytearray | memoryview, position: int) -> tuple[int, int]:
    """Return the 64-bit zigzag varint at `position`, and the position after it."""
    return _read(data, position, _VARINT64_BYTES_MAX, 64)


def _read(data: bytes | bytearray | memoryview, position: int, bytes_max: int, bits: int) -> tuple[int, int]:
    try:
        value, position = varint.read_varint(data, position, bytes_max)
    except varint.VarintTooLongError:
        value = 1 << bits
    if value >> bits:
        raise CorruptRecords(f"a varint has more than {bits} bits")
    return varint.decode_zigzag(value), position
