"""Replication simulated while nodes are added, drained and removed, seed by seed: see `growing`."""

from __future__ import annotations

import pytest

from tests.long import SEED, count

from .growing import GrowingWorld

pytestmark = pytest.mark.slow

SEEDS = count(40, 10_000)
PART = 10
"""Seeds per test, so that they are spread over the workers."""
FIRST = (SEED - 1) * SEEDS + 1


def run(seed: int) -> GrowingWorld:
    world = GrowingWorld(seed)
    try:
        world.run()
    except Exception as error:
        replay = f".venv/bin/python -m tests.replication.simulate --growing --seed {seed}"
        raise AssertionError(f"seed {seed} breaks a promise: {error!r} (to replay it: {replay})") from error
    return world


@pytest.mark.parametrize("first", range(FIRST, FIRST + SEEDS, PART))
def test_no_record_is_lost_and_who_was_removed_stays_outside(first: int) -> None:
    worlds = [run(seed) for seed in range(first, first + PART)]
    for done in ("added", "removed", "drained", "refusals"):
        assert sum(getattr(world, done) for world in worlds) > PART / 2, f"too few {done}"
    assert sum(world.checker.acknowledged for world in worlds) > 20 * PART


def test_the_same_seed_tells_the_same_story() -> None:
    assert run(FIRST).trace_hash() == run(FIRST).trace_hash() != run(FIRST + 1).trace_hash()
