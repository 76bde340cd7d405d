"""Garbage collections that stay short, however much there is that is no garbage.

A full collection looks through all objects while the loop stands still. A partition is forty of them, so that 12,000
topics held the loop for 120 ms; to find nothing, since hardly anything here is kept alive by itself alone. What has
outlived a long collection stays, mostly as long as its topic does. It is set aside, where no later collection looks
through it again; it is still freed when the last reference to it goes.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

COLLECTION_SECONDS_MAX: Final = 0.005
"""Processor time: what outlives a longer full collection is set aside. What a shorter one looks through is left where
it is, for some of it may still become garbage."""

FULL_COLLECTIONS_AFTER: Final = 2
"""Collections of younger objects; Python's default is 10. While many topics are made, full ones come so often that none
has much to look through. As long as little that is new stays, Python leaves them out anyway."""

_FULL: Final = 2  # the generation of those that look through everything


@contextmanager
def nothing_is_garbage() -> Iterator[None]:
    """Collects nothing within. For the import of modules: all of it stays, and is set aside at the end. Looking through
    it as it grows was a twentieth of the time that a node takes to start."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def keep_collections_short(seconds_max: float = COLLECTION_SECONDS_MAX) -> None:
    """Keeps them short from now on. What is loaded by now is set aside at once."""
    began = 0.0

    def collecting(phase: str, info: dict[str, Any]) -> None:
        nonlocal began
        if info["generation"] != _FULL:
            return
        if phase == "start":
            began = time.thread_time()
        elif time.thread_time() - began > seconds_max:
            gc.freeze()

    gc.callbacks.append(collecting)
    gc.set_threshold(*gc.get_threshold()[:_FULL], FULL_COLLECTIONS_AFTER)
    gc.freeze()
