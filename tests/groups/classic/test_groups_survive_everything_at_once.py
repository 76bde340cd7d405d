from __future__ import annotations

import pytest

from .simulation import Simulation

SEEDS = range(1, 21)
STEPS = 800
REBALANCES_MIN = 500


@pytest.mark.slow
def test_hundreds_of_rebalances_under_crashes_restarts_and_failing_stores_keep_every_promise() -> None:
    simulations = [Simulation(seed) for seed in SEEDS]
    for simulation in simulations:
        simulation.run(STEPS)
    assert sum(simulation.rebalances for simulation in simulations) >= REBALANCES_MIN
    assert sum(simulation.commits for simulation in simulations) > 1_000
    assert sum(simulation.restarts_without_rebalance for simulation in simulations) > 10
    assert sum(simulation.coordinators for simulation in simulations) > len(simulations)


def test_the_same_seed_tells_the_same_story() -> None:
    first, second = Simulation(7), Simulation(7)
    first.run(200)
    second.run(200)
    assert first.trace == second.trace
    assert len(first.trace) > 200
