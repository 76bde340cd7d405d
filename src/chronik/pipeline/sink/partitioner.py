"""Kafka's default partitioner (murmur2), vectorised over a column of keys."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from chronik.client.partitioner import murmur2

KEY_BYTES_MAX: Final = 1024
"""Maximum length in bytes of keys that are hashed together, since each vectorised step hashes only four bytes."""

_SEED: Final = np.uint32(0x9747B28C)
_M: Final = np.uint32(0x5BD1E995)
_TOP_BIT_OFF: Final = np.uint32(0x7FFF_FFFF)

_Hashes = npt.NDArray[np.uint32]
_Lanes = npt.NDArray[np.int64]


def compute_partitions_for_keys(keys: pa.BinaryArray, partition_count: int) -> npt.NDArray[np.int64]:
    """Return each key's partition. Null keys are hashed like empty keys; callers must ignore their partition."""
    return ((compute_murmur2_hashes(keys) & _TOP_BIT_OFF) % np.uint32(partition_count)).astype(np.int64)


def compute_murmur2_hashes(keys: pa.BinaryArray) -> _Hashes:
    """Return the murmur2 hash of each key."""
    count = len(keys)
    _, bounds_buffer, data_buffer = keys.buffers()
    if not count or data_buffer is None:
        return np.full(count, murmur2(b""), np.uint32)
    bounds = np.frombuffer(bounds_buffer, np.int32)[keys.offset : keys.offset + count + 1].astype(np.int64)
    data = np.frombuffer(data_buffer, np.uint8)
    starts, lengths = bounds[:-1], np.diff(bounds)
    hashes = _SEED ^ lengths.astype(np.uint32)
    short = lengths <= KEY_BYTES_MAX
    with np.errstate(over="ignore"):
        _mix_words(hashes, data, starts, np.where(short, lengths // 4, 0))
        _mix_tails(hashes, data, starts, lengths)
        hashes ^= hashes >> np.uint32(13)
        hashes *= _M
        hashes ^= hashes >> np.uint32(15)
    for index in np.flatnonzero(~short):
        hashes[index] = murmur2(data[starts[index] : bounds[index + 1]].tobytes())
    return hashes


def _mix_words(hashes: _Hashes, data: npt.NDArray[np.uint8], starts: _Lanes, word_counts: _Lanes) -> None:
    for number in range(int(word_counts.max(initial=0))):
        lanes = np.flatnonzero(word_counts > number)
        word = _read_little_endian(data, starts[lanes] + 4 * number, 4) * _M
        word ^= word >> np.uint32(24)
        hashes[lanes] = hashes[lanes] * _M ^ word * _M


def _mix_tails(hashes: _Hashes, data: npt.NDArray[np.uint8], starts: _Lanes, lengths: _Lanes) -> None:
    for size in (1, 2, 3):
        lanes = np.flatnonzero(lengths % 4 == size)
        tail = _read_little_endian(data, starts[lanes] + lengths[lanes] - size, size)
        hashes[lanes] = (hashes[lanes] ^ tail) * _M


def _read_little_endian(data: npt.NDArray[np.uint8], at: _Lanes, size: int) -> _Hashes:
    value = np.zeros(len(at), np.uint32)
    for index in range(size):
        value |= data[at + index].astype(np.uint32) << np.uint32(8 * index)
    return value
