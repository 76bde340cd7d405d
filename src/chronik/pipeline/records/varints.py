"""Zigzag varints, many at once.

Reading is forgiving about where it reads: positions after the data are read as its last byte, and the caller, who
checks where the last field of every record ends, finds out.
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
"""Stands after the data, so that a position there reads zeros and not a field that belongs to somebody else."""


# Of the last byte only the bits that complete 32 or 64 may be set.
_LAST_BYTE_MAX: Final = {BYTES_MAX_32: 0x0F, BYTES_MAX_64: 0x01}

# The first byte of a varint to its value, where it is below 0x80 and so the only one.
_ONE_BYTE: Final = np.array([byte >> 1 ^ -(byte & 1) for byte in range(0x100)], np.int64)


class Unreadable(Exception):
    """Something that the vectorised way does not read; the way record by record says what it is."""


def read_varints(data: ByteArray, at: IntArray) -> tuple[IntArray, IntArray]:
    """Returns the 32-bit values at these positions, and the positions after them. Raises Unreadable."""
    return _read(data, at, BYTES_MAX_32)


def read_varlongs(data: ByteArray, at: IntArray) -> tuple[IntArray, IntArray]:
    """Returns the 64-bit values at these positions, and the positions after them. Raises Unreadable."""
    return _read(data, at, BYTES_MAX_64)


def _read(data: ByteArray, at: IntArray, bytes_max: int) -> tuple[IntArray, IntArray]:
    first = data.take(at, mode="clip")
    values = _ONE_BYTE.take(first)
    after = at + 1
    longer = np.flatnonzero(first & 0x80)
    if longer.size == at.size:  # then nothing has to be picked out and put back
        return _read_longer(data, at, first, bytes_max)
    if longer.size:
        values[longer], after[longer] = _read_longer(data, at[longer], first[longer], bytes_max)
    return values, after


def _read_longer(data: ByteArray, at: IntArray, first: ByteArray, bytes_max: int) -> tuple[IntArray, IntArray]:
    """Does as `_read`, where every value takes two bytes or more."""
    raw = (first & 0x7F).astype(np.uint64)
    after = at + 2
    rest: Any = slice(None)
    for index in range(1, bytes_max):
        byte = data.take(at[rest] + index, mode="clip")
        if index == bytes_max - 1 and byte.max(initial=0) > _LAST_BYTE_MAX[bytes_max]:
            break
        raw[rest] |= (byte & 0x7F).astype(np.uint64) << np.uint64(7 * index)
        longer = np.flatnonzero(byte & 0x80)
        if not longer.size:
            signs = (raw & np.uint64(1)).view(np.int64)
            return (raw >> np.uint64(1)).view(np.int64) ^ -signs, after
        rest = longer if isinstance(rest, slice) else rest[longer]
        after[rest] += 1
    raise Unreadable(f"a varint that does not fit into {bytes_max} bytes")


def encode_varints(values: IntArray) -> pa.BinaryArray:
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
