"""A node whose wall clock a test can set wrong while it runs; time that only goes on stays as it is.

Run as a program with a file of eight bytes: nanoseconds that are added to whatever the process reads as the time of
day. Whoever writes them makes the clock jump at that moment, and a node that starts later starts with it.
"""

from __future__ import annotations

import mmap
import struct
import sys
import time
from collections.abc import Callable
from pathlib import Path

SHIFT = struct.Struct("<q")


def shift_clock(file: Path, seconds: float) -> None:
    """For the side of the test: in place, because the node has the file mapped."""
    with file.open("r+b") as opened:
        opened.write(SHIFT.pack(int(seconds * 1e9)))


def unshifted_clock(file: Path) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(SHIFT.pack(0))


def _shifted(file: Path, time_ns: Callable[[], int]) -> Callable[[], int]:
    with file.open("rb") as opened:
        shift = mmap.mmap(opened.fileno(), SHIFT.size, access=mmap.ACCESS_READ)
    return lambda: time_ns() + int(SHIFT.unpack_from(shift)[0])


def main() -> int:
    now_ns = time.time_ns = _shifted(Path(sys.argv[1]), time.time_ns)
    time.time = lambda: now_ns() / 1e9
    from chronik.testing import broker_process  # when all that it imports reads the clock that is set here

    return broker_process.main()


if __name__ == "__main__":
    sys.exit(main())
