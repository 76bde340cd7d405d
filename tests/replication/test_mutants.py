from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from functools import partial
from types import ModuleType

import pytest

from chronik.errors import ChronikError
from tests.log import test_producer_state
from tests.metadata import test_brokers
from tests.replication import (
    test_fetch_server,
    test_fetch_session,
    test_in_sync,
    test_isr_manager,
)
from tests.replication.mutants import MUTANTS, Mutant
from tests.replication.simulation import ReplicationSimulation

pytestmark = pytest.mark.slow

SEEDS = range(1, 41)
"""Seeds of the simulation. The first detect most mutants; those that need several rare faults are detected by the plain
tests, which run first because they are fast."""

DETECTED = (AssertionError, ChronikError, ExceptionGroup, pytest.fail.Exception)


PLAIN_TEST_MODULES = (
    test_in_sync,
    test_fetch_session,
    test_isr_manager,
    test_fetch_server,
    test_brokers,
    test_producer_state,
)


def plain_tests(module: ModuleType) -> Iterator[tuple[str, Callable[[], None]]]:
    """Yield the tests of a module without fixtures, with each of their parameters."""
    for name, test in inspect.getmembers(module, inspect.isfunction):
        names = [*inspect.signature(test).parameters]
        if name.startswith("test_") and not names:
            yield name, test
        for mark in getattr(test, "pytestmark", ()):
            if mark.name == "parametrize" and [mark.args[0]] == names:
                for value in mark.args[1]:
                    yield f"{name}[{value}]", partial(test, value)


def find_failing_plain_test() -> str | None:
    for module in PLAIN_TEST_MODULES:
        for name, test in plain_tests(module):
            try:
                test()
            except DETECTED:
                return name
    return None


def find_failing_seed(seeds: range) -> int | None:
    for seed in seeds:
        try:
            ReplicationSimulation(seed).run()
        except DETECTED:
            return seed
    return None


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_every_mutant_is_detected(mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    mutant.apply(monkeypatch)
    is_detected = find_failing_plain_test() or find_failing_seed(SEEDS)
    assert is_detected, f"mutant is not detected: {mutant.name}"


def test_unmodified_rules_pass_all_tests() -> None:
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS) >= 10
    assert find_failing_plain_test() is None
