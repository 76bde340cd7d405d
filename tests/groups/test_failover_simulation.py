"""Simulated coordinator crashes, isolation and term changes under load; see `failover.world` for the invariants."""

from __future__ import annotations

import pytest

from tests.long import SEED, count

from .failover.story import Story

pytestmark = pytest.mark.slow

SHARES = 4
SEEDS = range(SEED, SEED + count(50, 4000))


@pytest.mark.parametrize("share", range(SHARES))
def test_groups_survive_coordinator_failovers(share: int) -> None:
    worlds = [Story(seed).tell() for seed in SEEDS[share::SHARES]]
    assert sum(world.failovers for world in worlds) > 3 * len(worlds)
    assert sum(world.generations for world in worlds) > 5 * len(worlds)
    assert sum(world.commits for world in worlds) > 50 * len(worlds)
    assert sum(world.refused for world in worlds) > 0, "no late command was rejected"


def find_detecting_seed(seeds: range) -> int | None:
    for seed in seeds:
        try:
            Story(seed, without_epochs=True).tell()
        except AssertionError:
            return seed
    return None


def test_simulation_detects_missing_coordinator_epochs() -> None:
    assert find_detecting_seed(range(1, 21))


def test_same_seed_reproduces_same_run() -> None:
    first, second = Story(7).tell(), Story(7).tell()
    assert len(first.log) == len(second.log) > 100
    assert [type(each.command) for each in first.log] == [type(each.command) for each in second.log]
