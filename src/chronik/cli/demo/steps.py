"""Progress output of the demo, with the duration of each step."""

from __future__ import annotations

import textwrap
import time
from collections.abc import Iterator
from contextlib import contextmanager

INDENT = "    "


@contextmanager
def print_step(what: str) -> Iterator[None]:
    print(f"… {what}", end="", flush=True)
    began = time.perf_counter()
    yield
    seconds = time.perf_counter() - began
    print(f": {seconds:.1f} s" if seconds >= 1 else f": {seconds * 1000:.0f} ms", flush=True)


def print_note(text: str) -> None:
    print(textwrap.indent(text, INDENT), flush=True)
