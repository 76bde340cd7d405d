"""Something that comes and goes in quick turns, on a thread, while something else goes on."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager


@contextmanager
def taking_turns(state: Callable[[], AbstractContextManager[None]], on_s: float, off_s: float) -> Iterator[None]:
    """In `state` for `on_s`, out of it for `off_s`, until the block ends; then out of it. Raises what went wrong."""
    ending = threading.Event()
    failures: list[BaseException] = []

    def turn() -> None:
        try:
            while not ending.is_set():
                with state():
                    ending.wait(on_s)
                ending.wait(off_s)
        except BaseException as failure:  # for the thread that waits for this one
            failures.append(failure)

    thread = threading.Thread(target=turn, name="chaos-turns", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ending.set()
        thread.join()
    if failures:
        raise failures[0]
