from __future__ import annotations

import pytest

from .mutants import MUTANTS, Mutant
from .world import World

SEEDS = range(1, 101)
"""Most are caught by one of the first five; the last of them need two rare faults at once."""


def seed_that_notices() -> int | None:
    for seed in SEEDS:
        try:
            World(seed).run()
        except Exception:
            return seed
    return None


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_every_broken_rule_is_noticed(mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    mutant.apply(monkeypatch)
    assert seed_that_notices(), f"a cluster that {mutant.name} goes unnoticed"


def test_every_mutant_has_a_name_of_its_own() -> None:
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS) >= 10
