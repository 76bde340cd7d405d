from __future__ import annotations

import inspect
from collections.abc import Callable
from types import ModuleType

import pytest

from chronik.errors import InvariantBroken

from . import test_the_raft_paper, test_the_raft_thesis
from .mutants import MUTANTS, Mutant
from .simulation import Simulation

pytestmark = pytest.mark.slow

SEEDS = range(1, 13)
"""Most are caught by the first; those that no seed catches break a promise that only the paper's tests look at."""


def seed_that_notices() -> int | None:
    for seed in SEEDS:
        try:
            Simulation(seed).run()
        except (AssertionError, InvariantBroken):
            return seed
    return None


def paper_test_that_notices() -> str | None:
    for module in (test_the_raft_paper, test_the_raft_thesis):
        for name, test in plain_tests(module):
            try:
                test()
            except (AssertionError, InvariantBroken, pytest.fail.Exception, ValueError):
                return name
    return None


def plain_tests(module: ModuleType) -> list[tuple[str, Callable[[], None]]]:
    found = inspect.getmembers(module, inspect.isfunction)
    return [(name, test) for name, test in found if name.startswith("test_") and not inspect.signature(test).parameters]


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_every_broken_rule_is_noticed(mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    mutant.apply(monkeypatch)
    assert paper_test_that_notices() or seed_that_notices(), f"a node that {mutant.name} goes unnoticed"


def test_unbroken_rules_are_not_complained_about() -> None:
    assert len(MUTANTS) >= 20
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS)
    assert paper_test_that_notices() is None
