"""Tuning of glibc's malloc: keep freed memory instead of returning it to the system.

A replicating node allocates and frees megabytes continuously. By default, glibc returns them to the system when they
are at the end of its heap, and the kernel must clear and map pages again for the next request. That took 5 % of the CPU
time of three nodes with three replicas, and more on a busy machine.
"""

from __future__ import annotations

import contextlib
from typing import Final

from chronik.limits import MIB

TRIM_THRESHOLD_BYTES: Final = 16 * MIB
"""Freed bytes kept at the end of the heap; more is returned to the system (M_TRIM_THRESHOLD)."""

MMAP_THRESHOLD_BYTES: Final = 8 * MIB
"""Allocations from this size, larger than usual requests, use mmap and are returned when freed (M_MMAP_THRESHOLD)."""

_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3  # both from glibc's malloc.h


def retain_freed_memory() -> None:
    """Set the thresholds if the C library is glibc; do nothing on other systems."""
    import ctypes  # 3 ms and 1 MB, which a standalone node does not need

    # TypeError: Windows has no handle for the running program.
    with contextlib.suppress(OSError, AttributeError, TypeError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_M_MMAP_THRESHOLD, MMAP_THRESHOLD_BYTES)
        mallopt(_M_TRIM_THRESHOLD, TRIM_THRESHOLD_BYTES)
