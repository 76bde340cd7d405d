"""Which partition a key belongs to: Kafka's default, so that all clients put the same key in the same place."""

from __future__ import annotations

_SEED = 0x9747B28C
_M = 0x5BD1E995
_MASK = 0xFFFF_FFFF


def partition_of(key: bytes, partition_count: int) -> int:
    return (murmur2(key) & 0x7FFF_FFFF) % partition_count


def murmur2(data: bytes) -> int:
    """MurmurHash2, 32 bits, with the seed that Kafka's Java client chose; unsigned."""
    length = len(data)
    hashed = (_SEED ^ length) & _MASK
    whole = length & ~3
    for position in range(0, whole, 4):
        part = int.from_bytes(data[position : position + 4], "little") * _M & _MASK
        part = (part ^ part >> 24) * _M & _MASK
        hashed = hashed * _M & _MASK ^ part
    if whole < length:
        hashed = (hashed ^ int.from_bytes(data[whole:], "little")) * _M & _MASK
    hashed = (hashed ^ hashed >> 13) * _M & _MASK
    return hashed ^ hashed >> 15
