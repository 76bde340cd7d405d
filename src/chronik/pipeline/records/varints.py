"""Vectorised zigzag varints.

Reads beyond the end of the data return its last byte instead of failing. Callers detect this when they check where the
last field of each record ends.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

ByteArray = npt.NDArray[np.uint8]
IntArray = npt.NDArray[np.int64]

BYTES_MAX_32: Final = 5
BYTES_MAX_64: Final = 10

PADDING: Final = bytes(16)
"""Zeros appended to the data, so that a read beyond its end does not return bytes of another buffer."""


# The last byte may only have the bits that complete 32 or 64 bits.
_LAST_BYTE_MAX: Final = {BYTES_MAX_32: 0x0F, BYTES_MAX_64: 0x01}

# Values of one-byte varints, indexed by their byte.
_ONE_BYTE: Final = np.array([byte >> 1 ^ -(byte & 1) for byte in range(0x100)], np.int64)


class VectorizedDecodeError(Exception):
    """The vectorised decoder does not support the input; the record-by-record decoder must handle it."""


def read_varints(data: ByteArray, at: IntArray) -> tuple[IntArray, IntArray]:
    """Decode a 32-bit varint at each position; return the values, and the positions after the varints.

    Raises:
        VectorizedDecodeError: A varint is too long.
    """
    return _read(data, at, BYTES_MAX_32)


def read_varlongs(data: ByteArray, at: IntArray) -> tuple[IntArray, IntArray]:
    """Decode a 64-bit varint at each position; return the values, and the positions after the varints.

    Raises:
        VectorizedDecodeError: A varint is too long.
    """
    return _read(data, at, BYTES_MAX_64)


def _read(data: ByteArray, at: IntArray, bytes_max: int) -> tuple[IntArray, IntArray]:
    first = data.take(at, mode="clip")
    values = _ONE_BYTE.take(first)
    after = at + 1
    continued = np.flatnonzero(first & 0x80)
    if continued.size == at.size:  # no need to select and merge
        return _read_multi_byte_varints(data, at, first, bytes_max)
    if continued.size:
        values[continued], after[continued] = _read_multi_byte_varints(data, at[continued], first[continued], bytes_max)
    return values, after


def _read_multi_byte_varints(
    data: ByteArray, at: IntArray, first: ByteArray, bytes_max: int
) -> tuple[IntArray, IntArray]:
    """Read varints of two bytes or more."""
    raw = (first & 0x7F).astype(np.uint64)
    after = at + 2
    rest: Any = slice(None)
    for index in range(1, bytes_max):
        byte = data.take(at[rest] + index, mode="clip")
        if index == bytes_max - 1 and byte.max(initial=0) > _LAST_BYTE_MAX[bytes_max]:
            break
        raw[rest] |= (byte & 0x7F).astype(np.uint64) << np.uint64(7 * index)
        continued = np.flatnonzero(byte & 0x80)
        if not continued.size:
            signs = (raw & np.uint64(1)).view(np.int64)
            return (raw >> np.uint64(1)).view(np.int64) ^ -signs, after
        rest = continued if isinstance(rest, slice) else rest[continued]
        after[rest] += 1
    raise VectorizedDecodeError(f"a varint exceeds {bytes_max} bytes")


def encode_varints(values: IntArray) -> pa.BinaryArray:
    """Encode each value as a zigzag varint."""
    raw = (values.astype(np.int64) << 1 ^ values.astype(np.int64) >> 63).view(np.uint64)
    septets = [raw]
    while septets[-1].max(initial=0) > 0x7F:
        septets.append(septets[-1] >> np.uint64(7))
    matrix = np.stack(septets, axis=1)
    present = np.ones(matrix.shape, np.bool_)
    present[:, 1:] = matrix[:, 1:] > 0
    more = np.zeros(matrix.shape, np.uint8)
    more[:, :-1] = present[:, 1:] * np.uint8(0x80)
    content = (matrix & np.uint64(0x7F)).astype(np.uint8) | more
    bounds = np.zeros(len(values) + 1, np.int32)
    np.cumsum(present.sum(axis=1), out=bounds[1:])
    buffers = [None, pa.py_buffer(bounds), pa.py_buffer(content[present])]
    return pa.BinaryArray.from_buffers(pa.binary(), len(values), buffers)
