from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from functools import partial
from itertools import product
from types import ModuleType

import pytest

from chronik.errors import ChronikError
from tests.metadata import test_transactions_are_decided_once
from tests.replication.mutants import Mutant

from . import test_late_requests_touch_no_later_transaction, test_transactions_end_whatever_fails
from .mutants import MUTANTS
from .simulation.producer import AtItsEnd, MustAbort
from .simulation.world import TransactionWorld

pytestmark = pytest.mark.slow

SEEDS = range(1, 21)
"""Most are caught by a story, and nearly all others by one of the first seeds."""

NOTICED = (AssertionError, ChronikError, ExceptionGroup, LookupError, MustAbort, AtItsEnd, pytest.fail.Exception)

STORIES = (
    test_late_requests_touch_no_later_transaction,
    test_transactions_end_whatever_fails,
    test_transactions_are_decided_once,
)


def stories(module: ModuleType) -> Iterator[tuple[str, Callable[[], None]]]:
    """The tests of a module, with each of their parameters."""
    for name, test in inspect.getmembers(module, inspect.isfunction):
        if not name.startswith("test_") or inspect.getmodule(test) is not module:
            continue
        marks = [mark for mark in getattr(test, "pytestmark", ()) if mark.name == "parametrize"]
        names = [mark.args[0] for mark in marks]
        for values in product(*(mark.args[1] for mark in marks)):
            yield name, partial(test, **dict(zip(names, values, strict=True)))


def story_that_notices() -> str | None:
    for module in STORIES:
        for name, story in stories(module):
            try:
                story()
            except NOTICED:
                return name
    return None


def seed_that_notices() -> int | None:
    for seed in SEEDS:
        try:
            TransactionWorld(seed).run()
        except NOTICED:
            return seed
    return None


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_every_broken_rule_is_noticed(mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    mutant.apply(monkeypatch)
    assert story_that_notices() or seed_that_notices(), f"a cluster that {mutant.name} goes unnoticed"


def test_unbroken_rules_are_not_complained_about() -> None:
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS) >= 20
    assert story_that_notices() is None
