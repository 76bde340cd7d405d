"""What the C library does with memory that was freed.

A node that replicates takes in and lets go of megabytes all the time. Left to itself, glibc gives them back to the
system as soon as they lie at the end of its heap, and the system has to clear and map them again for the next request:
that was a twentieth of the processor time of three nodes with three replicas, and more on a busy machine.
"""

from __future__ import annotations

import contextlib
from typing import Final

from chronik.limits import MIB

FREED_BYTES_KEPT: Final = 16 * MIB
"""Kept at the end of the heap: more is given back to the system."""

ALLOCATED_APART_BYTES_MIN: Final = 8 * MIB
"""Pieces larger than requests usually are: each is taken from the system, and given back when it is freed."""

_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3  # both from glibc's malloc.h


def keep_freed_memory() -> None:
    """Tells the C library so where it can be told; elsewhere nothing changes."""
    import ctypes  # 3 ms and a megabyte, which a node that stands alone can do without

    # TypeError: Windows knows no name for "this program".
    with contextlib.suppress(OSError, AttributeError, TypeError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_M_MMAP_THRESHOLD, ALLOCATED_APART_BYTES_MIN)
        mallopt(_M_TRIM_THRESHOLD, FREED_BYTES_KEPT)
