"""The replication simulation with membership changes, for many seeds: see `growing`."""

from __future__ import annotations

import pytest

from tests.replication.membership_simulation import ReplicationMembershipSimulation
from tests.run_size import SEED, sized

pytestmark = pytest.mark.slow

SEEDS = sized(40, 10_000)
PART = 10
"""Seeds per test, so that pytest-xdist can distribute them."""
FIRST = (SEED - 1) * SEEDS + 1


def run(seed: int) -> ReplicationMembershipSimulation:
    world = ReplicationMembershipSimulation(seed)
    try:
        world.run()
    except Exception as error:
        replay = f".venv/bin/python -m tests.replication.simulate --growing --seed {seed}"
        raise AssertionError(f"seed {seed} violates a guarantee: {error!r} (to replay it: {replay})") from error
    return world


@pytest.mark.parametrize("first", range(FIRST, FIRST + SEEDS, PART))
def test_membership_changes_lose_no_records(first: int) -> None:
    worlds = [run(seed) for seed in range(first, first + PART)]
    for done in ("added", "removed", "drained", "refusals"):
        assert sum(getattr(world, done) for world in worlds) > PART / 2, f"too few {done}"
    assert sum(world.checker.acknowledged for world in worlds) > 20 * PART


def test_same_seed_produces_same_trace() -> None:
    assert run(FIRST).trace_hash() == run(FIRST).trace_hash() != run(FIRST + 1).trace_hash()
