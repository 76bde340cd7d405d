"""Vectorised zigzag varints of records.

Reads beyond the end of the data return any number instead of failing. Callers detect this when they check where the
last field of each record ends.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from chronik.formats import varint_arrays
from chronik.formats.varint_arrays import (
    INVALID_LENGTH,
    ONE_BYTE_VALUES,
    ByteArray,
    Int64s,
    decode_zigzag,
    encode_zigzag_varints,
    view_words,
)

IntArray = Int64s

PADDING = bytes(varint_arrays.PADDING)
"""Zeros appended to the data, so that a read beyond its end does not return bytes of another buffer."""


class VectorizedDecodeError(Exception):
    """The vectorised decoder does not support the input; the record-by-record decoder must handle it."""


def read_varints(data: ByteArray, at: IntArray) -> tuple[IntArray, IntArray]:
    """Decode a 32-bit varint at each position; return the values, and the positions after the varints.

    Raises:
        VectorizedDecodeError: A varint is too long.
    """
    return _read(data, at, 32)


def read_varlongs(data: ByteArray, at: IntArray) -> tuple[IntArray, IntArray]:
    """Decode a 64-bit varint at each position; return the values, and the positions after the varints.

    Raises:
        VectorizedDecodeError: A varint is too long.
    """
    return _read(data, at, 64)


def _read(data: ByteArray, at: IntArray, bits: int) -> tuple[IntArray, IntArray]:
    first = data.take(at, mode="clip")
    continued = np.flatnonzero(first & 0x80)
    if continued.size == at.size:  # no need to select and merge
        values, lengths = _read_multi_byte_varints(data, at, bits)
        return values, at + lengths
    values, after = ONE_BYTE_VALUES.take(first), at + 1
    if continued.size:
        values[continued], lengths = _read_multi_byte_varints(data, at[continued], bits)
        after[continued] += lengths - 1
    return values, after


def _read_multi_byte_varints(data: ByteArray, at: IntArray, bits: int) -> tuple[IntArray, IntArray]:
    """Return the values and lengths of varints of two bytes or more."""
    words = view_words(data)
    raw, lengths = varint_arrays.read_varints(data, words, np.clip(at, 0, len(words) - 1))
    longest = lengths.max(initial=0)
    if longest == INVALID_LENGTH or (bits == 32 and (longest > 5 or (raw >> np.uint64(32)).any())):
        raise VectorizedDecodeError(f"a varint has more than {bits} bits")
    return decode_zigzag(raw), lengths


def encode_varints(values: IntArray) -> pa.BinaryArray:
    """Encode each value as a zigzag varint."""
    return encode_zigzag_varints(values.astype(np.int64))
