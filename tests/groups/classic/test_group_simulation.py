from __future__ import annotations

import pytest

from .simulation import GroupSimulation

SEEDS = range(1, 21)
STEPS = 800
REBALANCES_MIN = 500


@pytest.mark.slow
def test_random_crashes_and_store_failures_break_no_invariant() -> None:
    simulations = [GroupSimulation(seed) for seed in SEEDS]
    for simulation in simulations:
        simulation.run(STEPS)
    assert sum(simulation.rebalances for simulation in simulations) >= REBALANCES_MIN
    assert sum(simulation.commits for simulation in simulations) > 1_000
    assert sum(simulation.restarts_without_rebalance for simulation in simulations) > 10
    assert sum(simulation.coordinators for simulation in simulations) > len(simulations)


def test_same_seed_reproduces_same_run() -> None:
    first, second = GroupSimulation(7), GroupSimulation(7)
    first.run(200)
    second.run(200)
    assert first.trace == second.trace
    assert len(first.trace) > 200
