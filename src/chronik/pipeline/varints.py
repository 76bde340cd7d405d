"""Zigzag varints at many positions at once.

Reading is forgiving about where it reads: positions behind the data are read as its last byte, and the caller, who
checks where the last field of every record ends, finds out.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

ByteArray = npt.NDArray[np.uint8]
IntArray = npt.NDArray[np.int64]

BYTES_MAX_32: Final = 5
BYTES_MAX_64: Final = 10

PADDING: Final = bytes(16)
"""Behind the data, so that a position there reads zeros and not a field that belongs to somebody else."""


class Unreadable(Exception):
    """Something that the vectorised way does not read; the way record by record says what it is."""


def read_varints(data: ByteArray, at: IntArray) -> tuple[IntArray, IntArray]:
    """The 32-bit values at these positions, and the positions behind them. Raises Unreadable."""
    raw, after = _read(data, at, BYTES_MAX_32)
    if raw.size and int(raw.max()) >> 32:
        raise Unreadable("a varint of more than 32 bits")
    return _unzigzag(raw), after


def read_varlongs(data: ByteArray, at: IntArray) -> tuple[IntArray, IntArray]:
    """The 64-bit values at these positions, and the positions behind them. Raises Unreadable."""
    raw, after = _read(data, at, BYTES_MAX_64)
    return _unzigzag(raw), after


def _read(data: ByteArray, at: IntArray, bytes_max: int) -> tuple[npt.NDArray[np.uint64], IntArray]:
    first = data.take(at, mode="clip")
    raw = first.astype(np.uint64)
    after = at + 1
    lanes = np.flatnonzero(first & 0x80)
    if not lanes.size:
        return raw, after
    everywhere = lanes.size == at.size  # then nothing has to be picked out and put back
    rest: Any = slice(None) if everywhere else lanes
    raw[rest] &= np.uint64(0x7F)
    for index in range(1, bytes_max):
        byte = data.take(at[rest] + index, mode="clip")
        if index == BYTES_MAX_64 - 1 and byte.max() > 1:
            break
        raw[rest] |= (byte & 0x7F).astype(np.uint64) << np.uint64(7 * index)
        after[rest] += 1
        longer = np.flatnonzero(byte & 0x80)
        if not longer.size:
            return raw, after
        rest = longer if isinstance(rest, slice) else rest[longer]
    raise Unreadable(f"a varint of more than {bytes_max} bytes")


def _unzigzag(raw: npt.NDArray[np.uint64]) -> IntArray:
    signs = (raw & np.uint64(1)).view(np.int64)
    return (raw >> np.uint64(1)).view(np.int64) ^ -signs
