"""A node whose wall clock a test can shift while it runs. The monotonic clock is not affected.

The program takes a file with eight bytes: nanoseconds that are added to the wall-clock time. Writing them shifts the
clock immediately, and a node that starts later starts with the shifted clock.
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
    """Write the shift in place, because the node has the file mapped into memory."""
    with file.open("r+b") as opened:
        opened.write(SHIFT.pack(int(seconds * 1e9)))


def create_clock_file(file: Path) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(SHIFT.pack(0))


def _shifted(file: Path, time_ns: Callable[[], int]) -> Callable[[], int]:
    with file.open("rb") as opened:
        shift = mmap.mmap(opened.fileno(), SHIFT.size, access=mmap.ACCESS_READ)
    return lambda: time_ns() + int(SHIFT.unpack_from(shift)[0])


def main() -> int:
    now_ns = time.time_ns = _shifted(Path(sys.argv[1]), time.time_ns)
    time.time = lambda: now_ns() / 1e9
    from chronik.testing import broker_process  # after the clock is replaced, for modules that read it on import

    return broker_process.main()


if __name__ == "__main__":
    sys.exit(main())
