"""A reserve of file descriptors, which allows the node to open files when the process has none left.

Connections can use up descriptors faster than the node rejects them. A write without a descriptor would be a failed
write, and the node would have to stop. So a few descriptors are opened on /dev/null and released when needed.
"""

from __future__ import annotations

import contextlib
import errno
import os
import threading
from collections.abc import Callable
from typing import Final, TypeVar

T = TypeVar("T")

RESERVED_DESCRIPTORS: Final = 32
"""Descriptors in the reserve: more than are opened in the time that it takes to close other files."""

DESCRIPTORS_EXHAUSTED_ERRNOS: Final = (errno.EMFILE, errno.ENFILE)
"""Errors that mean that the process or the system has no file descriptors left."""


class DescriptorReserve:
    """A thread-safe reserve of file descriptors."""

    def __init__(self, count: int = RESERVED_DESCRIPTORS) -> None:
        self._count = count
        self._held: list[int] = []
        self._lock = threading.Lock()
        self.replenish()

    @property
    def is_depleted(self) -> bool:
        """Whether some of the reserved descriptors are in use."""
        return len(self._held) < self._count

    def open_with_reserve(self, opens: Callable[[], T]) -> T:
        """Call `opens` and return its result. If no descriptors are left, release a reserved one and retry.

        Raises:
            OSError: `opens` failed for another reason, or the reserve is empty.
        """
        while True:
            try:
                return opens()
            except OSError as error:
                if error.errno not in DESCRIPTORS_EXHAUSTED_ERRNOS or not self._release_one():
                    raise

    def replenish(self) -> None:
        """Refill the reserve as far as possible."""
        with self._lock, contextlib.suppress(OSError):
            while len(self._held) < self._count:
                self._held.append(os.open(os.devnull, os.O_RDONLY))

    def close(self) -> None:
        """Release all reserved descriptors."""
        while self._release_one():
            pass

    def _release_one(self) -> bool:
        with self._lock:
            if not self._held:
                return False
            os.close(self._held.pop())
            return True
