from __future__ import annotations

import inspect
from collections.abc import Callable
from types import ModuleType

import pytest

from chronik.errors import ChronikError

from . import (
    test_followers_plan_their_fetches,
    test_isr_changes_are_seen_through,
    test_leaders_know_who_is_in_sync,
    test_leaders_serve_their_followers,
)
from .mutants import MUTANTS, Mutant
from .world import World

SEEDS = range(1, 41)
"""Most are caught by one of the first five; those that need several rare faults at once are caught by plain tests."""

NOTICED = (AssertionError, ChronikError, ExceptionGroup, pytest.fail.Exception)


def plain_tests(module: ModuleType) -> list[tuple[str, Callable[[], None]]]:
    found = inspect.getmembers(module, inspect.isfunction)
    return [(name, test) for name, test in found if name.startswith("test_") and not inspect.signature(test).parameters]


def plain_test_that_notices() -> str | None:
    for module in (
        test_leaders_know_who_is_in_sync,
        test_followers_plan_their_fetches,
        test_isr_changes_are_seen_through,
        test_leaders_serve_their_followers,
    ):
        for name, test in plain_tests(module):
            try:
                test()
            except NOTICED:
                return name
    return None


def seed_that_notices() -> int | None:
    for seed in SEEDS:
        try:
            World(seed).run()
        except NOTICED:
            return seed
    return None


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_every_broken_rule_is_noticed(mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    mutant.apply(monkeypatch)
    assert seed_that_notices() or plain_test_that_notices(), f"a cluster that {mutant.name} goes unnoticed"


def test_unbroken_rules_are_not_complained_about() -> None:
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS) >= 10
    assert plain_test_that_notices() is None
