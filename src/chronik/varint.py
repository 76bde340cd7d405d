"""Varints: numbers in groups of seven bits, the least significant first. The last byte has no top bit."""

from __future__ import annotations


class VarintTooLongError(ValueError):
    """A varint has more bytes than its type allows."""


def read_varint(data: bytes | bytearray | memoryview, position: int, bytes_max: int) -> tuple[int, int]:
    """Return the unsigned number at `position`, and the position after it.

    Raises:
        VarintTooLongError: It has more than `bytes_max` bytes.
        IndexError: The data is incomplete.
    """
    value = 0
    for shift in range(0, 7 * bytes_max, 7):
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
    raise VarintTooLongError(f"a varint has more than {bytes_max} bytes")


def write_varint(out: bytearray, value: int) -> None:
    """Append an unsigned number to `out`."""
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def encode_zigzag(value: int) -> int:
    """Return the unsigned number that stands for a signed 64-bit number: small ones of either sign are small."""
    return value << 1 ^ value >> 63


def decode_zigzag(value: int) -> int:
    """Return the signed number for which an unsigned number stands."""
    return value >> 1 ^ -(value & 1)
