"""Simulated coordinator crashes, isolation and term changes under load; see `failover.world` for the invariants."""

from __future__ import annotations

import pytest

from tests.run_size import SEED, sized

from .failover.scenario import FailoverScenario

pytestmark = pytest.mark.slow

SHARES = 4
SEEDS = range(SEED, SEED + sized(50, 4000))


@pytest.mark.parametrize("share", range(SHARES))
def test_groups_survive_coordinator_failovers(share: int) -> None:
    worlds = [FailoverScenario(seed).run() for seed in SEEDS[share::SHARES]]
    assert sum(world.failovers for world in worlds) > 3 * len(worlds)
    assert sum(world.generations for world in worlds) > 5 * len(worlds)
    assert sum(world.commits for world in worlds) > 50 * len(worlds)
    assert sum(world.rejected_count for world in worlds) > 0, "no late command was rejected"


def find_detecting_seed(seeds: range) -> int | None:
    for seed in seeds:
        try:
            FailoverScenario(seed, without_epochs=True).run()
        except AssertionError:
            return seed
    return None


def test_simulation_detects_missing_coordinator_epochs() -> None:
    assert find_detecting_seed(range(1, 21))


def test_same_seed_reproduces_same_run() -> None:
    first, second = FailoverScenario(7).run(), FailoverScenario(7).run()
    assert len(first.log) == len(second.log) > 100
    assert [type(each.command) for each in first.log] == [type(each.command) for each in second.log]
