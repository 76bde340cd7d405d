"""Murmur3 hashes (x86, 32 bits) of a column, as Iceberg's bucket transform computes them."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

C1, C2, C3 = np.uint32(0xCC9E2D51), np.uint32(0x1B873593), np.uint32(0xE6546B64)
FIVE: Final = np.uint32(5)

Hashes = npt.NDArray[np.uint32]


def compute_murmur3_hashes(values: pa.Array) -> Hashes:
    """Return the hash of each integer, date, timestamp, string or binary value; that of null values is arbitrary."""
    if pa.types.is_string(values.type) or pa.types.is_binary(values.type):
        return _hash_bytes(values.cast(pa.binary()))
    if pa.types.is_date32(values.type):
        values = values.cast(pa.int32())
    numbers = values.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
    return _hash_longs(numbers.astype(np.int64))


def _hash_longs(numbers: npt.NDArray[np.int64]) -> Hashes:
    """Hash each number as eight bytes."""
    words = numbers.view(np.uint64)
    hashes: Hashes = np.zeros(len(numbers), np.uint32)
    with np.errstate(over="ignore"):
        for word in (words & np.uint64(0xFFFF_FFFF), words >> np.uint64(32)):
            hashes = _mix(hashes, word.astype(np.uint32))
        return _finish(hashes ^ np.uint32(8))


def _hash_bytes(values: pa.BinaryArray) -> Hashes:
    count = len(values)
    _, bounds_buffer, data_buffer = values.buffers()
    hashes: Hashes = np.zeros(count, np.uint32)
    if not count or data_buffer is None:
        return hashes
    bounds = np.frombuffer(bounds_buffer, np.int32)[values.offset : values.offset + count + 1].astype(np.int64)
    # Reading beyond the end of the last value must be possible.
    data = np.concatenate([np.frombuffer(data_buffer, np.uint8), np.zeros(4, np.uint8)])
    starts, lengths = bounds[:-1], np.diff(bounds)
    with np.errstate(over="ignore"):
        for number in range(int(lengths.max(initial=0)) // 4):
            lanes = np.flatnonzero(lengths // 4 > number)
            hashes[lanes] = _mix(hashes[lanes], _read_words(data, starts[lanes] + 4 * number, 4))
        for size in (1, 2, 3):
            lanes = np.flatnonzero(lengths % 4 == size)
            tails = _read_words(data, starts[lanes] + lengths[lanes] - size, size)
            hashes[lanes] ^= _rotate(tails * C1, 15) * C2
        return _finish(hashes ^ lengths.astype(np.uint32))


def _read_words(data: npt.NDArray[np.uint8], at: npt.NDArray[np.int64], size: int) -> Hashes:
    words: Hashes = np.zeros(len(at), np.uint32)
    for index in range(size):
        words |= data[at + index].astype(np.uint32) << np.uint32(8 * index)
    return words


def _mix(hashes: Hashes, words: Hashes) -> Hashes:
    mixed: Hashes = _rotate(hashes ^ (_rotate(words * C1, 15) * C2), 13) * FIVE + C3
    return mixed


def _rotate(words: Any, bits: int) -> Any:
    return (words << np.uint32(bits)) | (words >> np.uint32(32 - bits))


def _finish(hashes: Hashes) -> Hashes:
    hashes ^= hashes >> np.uint32(16)
    hashes *= np.uint32(0x85EBCA6B)
    hashes ^= hashes >> np.uint32(13)
    hashes *= np.uint32(0xC2B2AE35)
    hashes ^= hashes >> np.uint32(16)
    return hashes
