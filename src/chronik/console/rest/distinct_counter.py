"""An estimate of the number of distinct values in little memory."""

from __future__ import annotations

import math
from typing import Final

INDEX_BITS: Final = 11
REGISTERS: Final = 1 << INDEX_BITS
"""Number of registers of one byte each. The standard error is 1.04 / √2048 = 2.3 %."""
_REST_BITS: Final = 64 - INDEX_BITS
_ALPHA: Final = 0.7213 / (1 + 1.079 / REGISTERS)


class DistinctCounter:
    """A HyperLogLog sketch that estimates the number of distinct byte strings."""

    __slots__ = ("_registers",)

    def __init__(self) -> None:
        self._registers = bytearray(REGISTERS)

    def add(self, value: bytes) -> None:
        """Count a value."""
        hashed = hash(value) & 0xFFFF_FFFF_FFFF_FFFF  # SipHash with a random key: callers cannot choose collisions
        index = hashed >> _REST_BITS
        rank = _REST_BITS - (hashed & ((1 << _REST_BITS) - 1)).bit_length() + 1
        if rank > self._registers[index]:
            self._registers[index] = rank

    def merge(self, other: DistinctCounter) -> None:
        """Add all values of another counter."""
        self._registers = bytearray(map(max, self._registers, other._registers))

    def estimate(self) -> int:
        """Return the estimated number of distinct values."""
        zeros = self._registers.count(0)
        found = _ALPHA * REGISTERS**2 / sum(2.0**-each for each in self._registers)
        if found <= 2.5 * REGISTERS and zeros:
            found = REGISTERS * math.log(REGISTERS / zeros)  # linear counting is more precise for few values
        return round(found)
