"""Descriptors that are held back, so that a file can be opened when nothing else can.

Connections take descriptors faster than they can be refused. A write that finds none left would be a failed write, and
the node would have to stop; so a few are kept open on nothing, and released when they are needed.
"""

from __future__ import annotations

import contextlib
import errno
import os
import threading
from collections.abc import Callable
from typing import Final, TypeVar

T = TypeVar("T")

SPARE_DESCRIPTORS: Final = 32
"""More files than are opened in the time that it takes to close others."""

EXHAUSTED: Final = (errno.EMFILE, errno.ENFILE)
"""The errors that say that the process, or the system, has no descriptors left."""


class SpareDescriptors:
    """All threads may use it."""

    def __init__(self, count: int = SPARE_DESCRIPTORS) -> None:
        self._count = count
        self._held: list[int] = []
        self._lock = threading.Lock()
        self.replenish()

    @property
    def is_short(self) -> bool:
        return len(self._held) < self._count

    def opening(self, opens: Callable[[], T]) -> T:
        """Returns what `opens` returns, trying again as long as there is a descriptor to spare. Raises OSError."""
        while True:
            try:
                return opens()
            except OSError as error:
                if error.errno not in EXHAUSTED or not self._give():
                    raise

    def replenish(self) -> None:
        """Holds back descriptors again, as many as can be had now."""
        with self._lock, contextlib.suppress(OSError):
            while len(self._held) < self._count:
                self._held.append(os.open(os.devnull, os.O_RDONLY))

    def close(self) -> None:
        while self._give():
            pass

    def _give(self) -> bool:
        with self._lock:
            if not self._held:
                return False
            os.close(self._held.pop())
            return True
