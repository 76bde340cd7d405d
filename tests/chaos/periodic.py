"""Periodic faults: a fault that is active and inactive in turns, on a thread."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager


@contextmanager
def alternating(state: Callable[[], AbstractContextManager[None]], on_s: float, off_s: float) -> Iterator[None]:
    """Enter `state` for `on_s` and leave it for `off_s` repeatedly until the block ends. Raises its errors."""
    ending = threading.Event()
    failures: list[BaseException] = []

    def alternate() -> None:
        try:
            while not ending.is_set():
                with state():
                    ending.wait(on_s)
                ending.wait(off_s)
        except BaseException as failure:  # raised again in the waiting thread
            failures.append(failure)

    thread = threading.Thread(target=alternate, name="chaos-turns", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ending.set()
        thread.join()
    if failures:
        raise failures[0]
