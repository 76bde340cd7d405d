"""Vectorised varints: reads at many positions of a buffer, and encoding of arrays.

A read loads the eight bytes at each position as one number, finds the last byte of the varint in it, and joins the
groups of seven bits with three shifts. Only longer varints need their ninth and tenth byte.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

ByteArray = npt.NDArray[np.uint8]
Int64s = npt.NDArray[np.int64]
UInt64s = npt.NDArray[np.uint64]

PADDING: Final = 16
"""Number of bytes that must follow the last position that may be read."""

INVALID_LENGTH: Final = 2**40
"""The length of an invalid varint. It exceeds any buffer, so that the position after it is beyond the end."""

ONE_BYTE_VALUES: Final = np.array([byte >> 1 ^ -(byte & 1) for byte in range(0x100)], np.int64)
"""Values of zigzag varints of one byte, by byte."""

_ONE: Final = np.uint64(1)
_STOP_BITS: Final = np.uint64(0x8080808080808080)
_HIGH_7, _LOW_7 = np.uint64(0x7F007F007F007F00), np.uint64(0x007F007F007F007F)
_HIGH_14, _LOW_14 = np.uint64(0x3FFF00003FFF0000), np.uint64(0x00003FFF00003FFF)
_HIGH_28, _LOW_28 = np.uint64(0x0FFFFFFF00000000), np.uint64(0x000000000FFFFFFF)
"""Masks to join neighbouring groups of 7, 14 and 28 bits."""


def view_words(data: ByteArray) -> UInt64s:
    """Return the eight bytes at each position as a little-endian number, without a copy."""
    return np.ndarray(len(data) - 7, "<u8", data.data, strides=(1,))


def read_varints(
    data: ByteArray, words: UInt64s, positions: Int64s, *, ignores_excess_bits: bool = False
) -> tuple[UInt64s, Int64s]:
    """Return the unsigned varint at each position, and its length.

    The length is INVALID_LENGTH for more than ten bytes, and for more than 64 bits unless `ignores_excess_bits`.

    Args:
        data: The bytes, followed by PADDING.
        words: The result of `view_words(data)`.
        positions: The positions of the first bytes, within the words.
        ignores_excess_bits: Whether bits beyond 64 are dropped, as parsers of Protobuf do.
    """
    loaded = words[positions]  # `take` would copy the words, because they overlap
    stops = ~loaded & _STOP_BITS
    lowest = stops & (~stops + _ONE)
    raw = loaded & (lowest - _ONE | lowest) & ~_STOP_BITS
    raw = (raw & _HIGH_7) >> _ONE | raw & _LOW_7
    raw = (raw & _HIGH_14) >> np.uint64(2) | raw & _LOW_14
    raw = (raw & _HIGH_28) >> np.uint64(4) | raw & _LOW_28
    lengths = ((lowest >> np.uint64(7)) * np.uint64(0x0102030405060708) >> np.uint64(56)).view(np.int64)
    longest = np.flatnonzero(lowest == 0)
    if longest.size:
        ninth = data.take(positions[longest] + 8, mode="clip").astype(np.uint64)
        tenth = data.take(positions[longest] + 9, mode="clip").astype(np.uint64)
        has_tenth = ninth > 0x7F
        tenth[~has_tenth] = 0
        raw[longest] |= (ninth & np.uint64(0x7F)) << np.uint64(56) | tenth << np.uint64(63)
        lengths[longest] = np.where(tenth > (0x7F if ignores_excess_bits else 1), INVALID_LENGTH, 9 + has_tenth)
    return raw, lengths


def decode_zigzag(raw: UInt64s) -> Int64s:
    """Return the signed numbers that unsigned numbers stand for in zigzag encoding."""
    return (raw >> _ONE).view(np.int64) ^ -(raw & _ONE).view(np.int64)


def encode_zigzag_varints(numbers: Int64s) -> pa.BinaryArray:
    """Encode each number as a zigzag varint."""
    raw = (numbers << 1 ^ numbers >> 63).view(np.uint64)
    if raw.max(initial=0) <= 0x7F:
        return _build_binary(np.arange(len(raw) + 1), raw.astype(np.uint8))
    septets = [raw]
    while septets[-1].max() > 0x7F:
        septets.append(septets[-1] >> np.uint64(7))
    matrix = np.stack(septets, axis=1)
    has_more = matrix > 0x7F
    content = (matrix & np.uint64(0x7F)).astype(np.uint8) | has_more.astype(np.uint8) << np.uint8(7)
    is_present = np.ones(matrix.shape, np.bool_)
    is_present[:, 1:] = matrix[:, 1:] > 0
    bounds = np.zeros(len(raw) + 1, np.int64)
    np.cumsum(is_present.sum(axis=1), out=bounds[1:])
    return _build_binary(bounds, content[is_present])


def _build_binary(bounds: npt.NDArray[Any], content: ByteArray) -> pa.BinaryArray:
    buffers = [None, pa.py_buffer(bounds.astype(np.int32)), pa.py_buffer(np.ascontiguousarray(content))]
    return pa.BinaryArray.from_buffers(pa.binary(), len(bounds) - 1, buffers)
