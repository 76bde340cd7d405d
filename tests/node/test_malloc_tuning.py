"""malloc tuning: large requests reuse memory that the process has freed before."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

pytestmark = pytest.mark.slow

PROGRAM = """
import resource, sys
from chronik.node.malloc_tuning import retain_freed_memory
if sys.argv[1] == "kept":
    retain_freed_memory()

def requests_come_and_go():
    for _ in range(20):
        held = [bytearray(1_000_000) for _ in range(8)]
        del held

requests_come_and_go()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
requests_come_and_go()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def _page_faults(how: str) -> int:
    ran = subprocess.run([sys.executable, "-c", PROGRAM, how], capture_output=True, text=True, check=True)
    return int(ran.stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc has these malloc options")
def test_freed_memory_is_reused_without_page_faults() -> None:
    kept, given_back = _page_faults("kept"), _page_faults("given back")
    assert kept < given_back / 10, (kept, given_back)
