from __future__ import annotations

import inspect
from collections.abc import Callable
from types import ModuleType

import pytest

from chronik.errors import InvariantError
from tests.raft import test_raft_paper, test_raft_thesis
from tests.raft.mutants import MUTANTS, Mutant
from tests.raft.simulation import RaftSimulation

pytestmark = pytest.mark.slow

SEEDS = range(1, 13)
"""Seeds of the simulation. Most mutants fail with the first; the others are detected only by the paper tests."""


def find_failing_seed() -> int | None:
    for seed in SEEDS:
        try:
            RaftSimulation(seed).run()
        except (AssertionError, InvariantError):
            return seed
    return None


def find_failing_paper_test() -> str | None:
    for module in (test_raft_paper, test_raft_thesis):
        for name, test in collect_plain_tests(module):
            try:
                test()
            except (AssertionError, InvariantError, pytest.fail.Exception, ValueError):
                return name
    return None


def collect_plain_tests(module: ModuleType) -> list[tuple[str, Callable[[], None]]]:
    found = inspect.getmembers(module, inspect.isfunction)
    return [(name, test) for name, test in found if name.startswith("test_") and not inspect.signature(test).parameters]


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_every_mutant_is_detected(mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    mutant.apply(monkeypatch)
    assert find_failing_paper_test() or find_failing_seed(), f"mutant is not detected: {mutant.name}"


def test_unmodified_rules_pass_all_paper_tests() -> None:
    assert len(MUTANTS) >= 20
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS)
    assert find_failing_paper_test() is None
