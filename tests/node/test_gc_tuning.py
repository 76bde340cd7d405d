"""Garbage collection tuning: full collections examine new objects instead of all objects."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = pytest.mark.slow

PROGRAM = """
import gc, sys, weakref
from chronik.node.gc_tuning import limit_collection_time

class Thing:
    def __init__(self):
        self.itself = None

def things(count):
    return [Thing() for _ in range(count)]

def examined():
    return sum(isinstance(each, Thing) for each in gc.get_objects())  # without frozen objects

gc.disable()
at_start = things(1000)
limit_collection_time(float(sys.argv[1]))
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
from chronik.node.gc_tuning import limit_collection_time

examined = []
gc.callbacks.append(
    lambda phase, info: phase == "start" and info["generation"] == 2 and examined.append(len(gc.get_objects()))
)
limit_collection_time(0.0)
kept = [[] for _ in range(500_000)]
print(len(examined), max(examined))
"""


def _run_program(seconds_max: float) -> list[str]:
    ran = subprocess.run([sys.executable, "-c", PROGRAM, str(seconds_max)], capture_output=True, text=True, check=True)
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
