"""The membership simulation under faults, for many seeds: Raft's guarantees hold, no forbidden step is taken, and the
membership converges to the intended one. See `growth`.
"""

from __future__ import annotations

import pytest

from tests.controller.membership_simulation import RaftMembershipSimulation
from tests.run_size import SEED, sized

pytestmark = pytest.mark.slow

SEEDS = sized(40, 10_000)
PART = 10
"""Seeds per test, so that pytest-xdist can distribute them."""
FIRST = (SEED - 1) * SEEDS + 1


def run(seed: int) -> RaftMembershipSimulation:
    simulation = RaftMembershipSimulation(seed)
    try:
        simulation.run()
    except Exception as error:
        replay = f".venv/bin/python -m tests.controller.simulate --seed {seed}"
        raise AssertionError(f"seed {seed} violates a property: {error} (to replay it: {replay})") from error
    return simulation


@pytest.mark.parametrize("first", range(FIRST, FIRST + SEEDS, PART))
def test_membership_converges_to_intended_one(first: int) -> None:
    simulations = [run(seed) for seed in range(first, first + PART)]
    for done in ("added", "promoted", "demoted", "removed", "handed_over"):
        assert sum(getattr(simulation, done) for simulation in simulations) > 0, f"no node was {done}"
    assert sum(simulation.checker.memberships_committed for simulation in simulations) > 3 * PART


def test_same_seed_produces_same_trace() -> None:
    first, second = run(FIRST), run(FIRST)
    assert first.trace_hash() == second.trace_hash()
    assert first.counts() == second.counts()
