"""Short garbage collections despite many live objects.

A full collection examines all objects while the event loop waits. A partition has forty objects, so 12,000 topics
blocked the loop for 120 ms, usually to find no garbage, because reference cycles are rare. Objects that survive a long
collection are therefore moved to the permanent generation (`gc.freeze`), which later collections skip. Reference
counting still frees them.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

COLLECTION_SECONDS_MAX: Final = 0.005
"""CPU seconds of a full collection after which the surviving objects are frozen. After a shorter one they stay, because
some may become garbage."""

FULL_COLLECTION_THRESHOLD: Final = 2
"""Collections of the middle generation before a full one; Python's default is 10. While many topics are created, full
collections are frequent and short. Python skips them while few new objects survive."""

_FULL: Final = 2  # number of the oldest generation


@contextmanager
def gc_disabled() -> Iterator[None]:
    """Disable garbage collection while modules are imported, and freeze what they have created.

    Collections during the imports took 5 % of a node's start-up time.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def limit_collection_time(seconds_max: float = COLLECTION_SECONDS_MAX) -> None:
    """Keep future full collections short; freeze the objects that exist now."""
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
