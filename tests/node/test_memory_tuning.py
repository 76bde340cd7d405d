"""Garbage collections examine new objects instead of all objects, and malloc reuses freed memory."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

pytestmark = pytest.mark.slow

GC_PROGRAM = """
import gc, sys, weakref
from chronik.node.memory_tuning import limit_gc_duration

class Thing:
    def __init__(self):
        self.itself = None

def things(count):
    return [Thing() for _ in range(count)]

def examined():
    return sum(isinstance(each, Thing) for each in gc.get_objects())  # without frozen objects

gc.disable()
at_start = things(1000)
limit_gc_duration(float(sys.argv[1]))
print("at the start", examined())
later = things(1000)
gc.collect(1)
print("after a partial collection", examined())
gc.collect()
print("after a full collection", examined())
ring = Thing()
ring.itself = ring
known = weakref.ref(ring), weakref.ref(later[0])
del ring, later[0]
gc.collect()
print("gone", [each() is None for each in known])
"""

GROWTH = """
import gc
from chronik.node.memory_tuning import limit_gc_duration

examined = []
gc.callbacks.append(
    lambda phase, info: phase == "start" and info["generation"] == 2 and examined.append(len(gc.get_objects()))
)
limit_gc_duration(0.0)
kept = [[] for _ in range(500_000)]
print(len(examined), max(examined))
"""

MALLOC_PROGRAM = """
import resource, sys
from chronik.node.memory_tuning import retain_freed_memory
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


def _run_program(seconds_max: float) -> list[str]:
    ran = subprocess.run(
        [sys.executable, "-c", GC_PROGRAM, str(seconds_max)], capture_output=True, text=True, check=True
    )
    return ran.stdout.splitlines()


def test_survivors_of_long_collection_are_frozen() -> None:
    assert _run_program(0.0)[:3] == ["at the start 0", "after a partial collection 1000", "after a full collection 0"]


def test_survivors_of_short_collection_are_not_frozen() -> None:
    assert _run_program(1000.0)[:3] == [
        "at the start 0",
        "after a partial collection 1000",
        "after a full collection 1000",
    ]


def test_new_garbage_is_collected_and_frozen_objects_are_freed() -> None:
    assert _run_program(0.0)[3] == "gone [True, True]"


def test_each_full_collection_examines_only_new_objects() -> None:
    ran = subprocess.run([sys.executable, "-c", GROWTH], capture_output=True, text=True, check=True)
    count, most = map(int, ran.stdout.split())
    assert count > 5
    assert most < 50_000, "of half a million"


def _page_faults(how: str) -> int:
    ran = subprocess.run([sys.executable, "-c", MALLOC_PROGRAM, how], capture_output=True, text=True, check=True)
    return int(ran.stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc has these malloc options")
def test_freed_memory_is_reused_without_page_faults() -> None:
    kept, given_back = _page_faults("kept"), _page_faults("given back")
    assert kept < given_back / 10, (kept, given_back)
