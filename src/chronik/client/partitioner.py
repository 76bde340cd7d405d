"""Kafka's default partitioner, so that all clients write a key to the same partition."""

from __future__ import annotations

_SEED = 0x9747B28C
_M = 0x5BD1E995
_MASK = 0xFFFF_FFFF


def choose_partition(key: bytes, partition_count: int) -> int:
    return (murmur2(key) & 0x7FFF_FFFF) % partition_count


def murmur2(data: bytes) -> int:
    """Return the unsigned 32-bit MurmurHash2 of the data, with the seed of Kafka's Java client."""
    length = len(data)
    state = (_SEED ^ length) & _MASK
    aligned_length = length & ~3
    for position in range(0, aligned_length, 4):
        word = int.from_bytes(data[position : position + 4], "little") * _M & _MASK
        word = (word ^ word >> 24) * _M & _MASK
        state = state * _M & _MASK ^ word
    if aligned_length < length:
        state = (state ^ int.from_bytes(data[aligned_length:], "little")) * _M & _MASK
    state = (state ^ state >> 13) * _M & _MASK
    return state ^ state >> 15
