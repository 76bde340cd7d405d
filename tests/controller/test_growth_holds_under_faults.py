"""Nodes are added, promoted, demoted, drained and removed under faults, seed by seed: no promise of Raft is broken, no
step is taken that the rules forbid, and in the end all is as it is meant to be. See `growth`."""

from __future__ import annotations

import pytest

from tests.long import SEED, count

from .growth import GrowingSimulation

pytestmark = pytest.mark.slow

SEEDS = count(40, 10_000)
PART = 10
"""Seeds per test, so that they are spread over the workers."""
FIRST = (SEED - 1) * SEEDS + 1


def run(seed: int) -> GrowingSimulation:
    simulation = GrowingSimulation(seed)
    try:
        simulation.run()
    except Exception as error:
        replay = f".venv/bin/python -m tests.controller.simulate --seed {seed}"
        raise AssertionError(f"seed {seed} breaks a promise: {error} (to replay it: {replay})") from error
    return simulation


@pytest.mark.parametrize("first", range(FIRST, FIRST + SEEDS, PART))
def test_in_the_end_all_is_as_it_is_meant_to_be(first: int) -> None:
    simulations = [run(seed) for seed in range(first, first + PART)]
    for done in ("added", "promoted", "demoted", "removed", "handed_over"):
        assert sum(getattr(simulation, done) for simulation in simulations) > 0, f"nobody was {done}"
    assert sum(simulation.checker.memberships_committed for simulation in simulations) > 3 * PART


def test_the_same_seed_tells_the_same_story() -> None:
    first, second = run(FIRST), run(FIRST)
    assert first.trace_hash() == second.trace_hash()
    assert first.counts() == second.counts()
