from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from functools import partial
from types import ModuleType

import pytest

from chronik.errors import ChronikError
from tests.log import test_producers_write_each_batch_once
from tests.metadata import test_leaders_never_repeat_an_epoch

from . import (
    test_followers_plan_their_fetches,
    test_isr_changes_are_seen_through,
    test_leaders_know_who_is_in_sync,
    test_leaders_serve_their_followers,
)
from .mutants import MUTANTS, Mutant
from .world import World

pytestmark = pytest.mark.slow

SEEDS = range(1, 41)
"""The first catch most. Those that need several rare faults at once are caught by plain tests, and these are asked
before the seeds: they take no time."""

NOTICED = (AssertionError, ChronikError, ExceptionGroup, pytest.fail.Exception)


PLAIN = (
    test_leaders_know_who_is_in_sync,
    test_followers_plan_their_fetches,
    test_isr_changes_are_seen_through,
    test_leaders_serve_their_followers,
    test_leaders_never_repeat_an_epoch,
    test_producers_write_each_batch_once,
)


def plain_tests(module: ModuleType) -> Iterator[tuple[str, Callable[[], None]]]:
    """The tests of a module that need no fixture, with each of their parameters."""
    for name, test in inspect.getmembers(module, inspect.isfunction):
        names = [*inspect.signature(test).parameters]
        if name.startswith("test_") and not names:
            yield name, test
        for mark in getattr(test, "pytestmark", ()):
            if mark.name == "parametrize" and [mark.args[0]] == names:
                for value in mark.args[1]:
                    yield f"{name}[{value}]", partial(test, value)


def plain_test_that_notices() -> str | None:
    for module in PLAIN:
        for name, test in plain_tests(module):
            try:
                test()
            except NOTICED:
                return name
    return None


def seed_that_notices(seeds: range) -> int | None:
    for seed in seeds:
        try:
            World(seed).run()
        except NOTICED:
            return seed
    return None


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_every_broken_rule_is_noticed(mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    mutant.apply(monkeypatch)
    noticed = plain_test_that_notices() or seed_that_notices(SEEDS)
    assert noticed, f"a cluster that {mutant.name} goes unnoticed"


def test_unbroken_rules_are_not_complained_about() -> None:
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS) >= 10
    assert plain_test_that_notices() is None
