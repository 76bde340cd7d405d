"""Coordinators that die, are cut off or lose their term in the middle of everything, with members that go on."""

from __future__ import annotations

import pytest

from tests.long import SEED, count

from .failover.story import Story

pytestmark = pytest.mark.slow

SHARES = 4
SEEDS = range(SEED, SEED + count(50, 4000))


@pytest.mark.parametrize("share", range(SHARES))
def test_groups_survive_coordinator_failovers(share: int) -> None:
    told = [Story(seed).tell() for seed in SEEDS[share::SHARES]]
    assert sum(world.failovers for world in told) > 3 * len(told)
    assert sum(world.generations for world in told) > 5 * len(told)
    assert sum(world.commits for world in told) > 50 * len(told)
    assert sum(world.refused for world in told) > 0, "nothing came too late"


def seed_that_notices(seeds: range) -> int | None:
    for seed in seeds:
        try:
            Story(seed, without_epochs=True).tell()
        except AssertionError:
            return seed
    return None


def test_simulation_detects_missing_coordinator_epochs() -> None:
    assert seed_that_notices(range(1, 21))


def test_same_seed_reproduces_same_run() -> None:
    first, second = Story(7).tell(), Story(7).tell()
    assert len(first.log) == len(second.log) > 100
    assert [type(each.command) for each in first.log] == [type(each.command) for each in second.log]
