"""Tuning of Python's garbage collector and of glibc's malloc.

Garbage collections are short despite many live objects. A full collection examines all objects while the event loop
waits. A partition has forty objects, so 12,000 topics blocked the loop for 120 ms, usually to find no garbage, because
reference cycles are rare. Objects that survive a long collection are therefore moved to the permanent generation
(`gc.freeze`), which later collections skip. Reference counting still frees them.

malloc keeps freed memory instead of returning it to the system. A replicating node allocates and frees megabytes
continuously. By default, glibc returns them to the system when they are at the end of its heap, and the kernel must
clear and map pages again for the next request. That took 5 % of the CPU time of three nodes with three replicas, and
more on a busy machine.
"""

from __future__ import annotations

import contextlib
import gc
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from chronik.limits import MIB

COLLECTION_SECONDS_MAX: Final = 0.005
"""The CPU time in seconds of a full garbage collection above which the surviving objects are frozen.

Frozen objects are exempt from later collections. After a faster collection, no object is frozen, because some may still
become garbage.
"""

FULL_COLLECTION_THRESHOLD: Final = 2
"""The number of middle-generation garbage collections before a full collection (10 by default in Python).

While many topics are created, full collections are thus frequent and short. Python skips them while few new objects
survive.
"""

_FULL: Final = 2  # number of the oldest generation

TRIM_THRESHOLD_BYTES: Final = 16 * MIB
"""The free memory at the end of malloc's heap above which it is returned to the system, in bytes (M_TRIM_THRESHOLD)."""

MMAP_THRESHOLD_BYTES: Final = 8 * MIB
"""The size in bytes from which malloc allocates with mmap and returns freed memory to the system (M_MMAP_THRESHOLD)."""

_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3  # both from glibc's malloc.h


@contextmanager
def disable_gc() -> Iterator[None]:
    """Disable garbage collection inside the `with` block, then exempt the objects created so far from it.

    Collections during the imports took 5 % of a node's start-up time.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def limit_gc_duration(seconds_max: float = COLLECTION_SECONDS_MAX) -> None:
    """Limit the duration of full garbage collections by freezing the objects that survive a slow collection."""
    began = 0.0

    def on_collection(phase: str, info: dict[str, Any]) -> None:
        nonlocal began
        if info["generation"] != _FULL:
            return
        if phase == "start":
            began = time.thread_time()
        elif time.thread_time() - began > seconds_max:
            gc.freeze()

    gc.callbacks.append(on_collection)
    gc.set_threshold(*gc.get_threshold()[:_FULL], FULL_COLLECTION_THRESHOLD)
    gc.freeze()


def retain_freed_memory() -> None:
    """Configure glibc's malloc to retain freed memory; do nothing with other C libraries."""
    import ctypes  # 3 ms and 1 MB, which a standalone node does not need

    # TypeError: Windows has no handle for the running program.
    with contextlib.suppress(OSError, AttributeError, TypeError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_M_MMAP_THRESHOLD, MMAP_THRESHOLD_BYTES)
        mallopt(_M_TRIM_THRESHOLD, TRIM_THRESHOLD_BYTES)
