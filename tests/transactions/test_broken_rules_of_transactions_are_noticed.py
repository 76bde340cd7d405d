from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import chain, product
from types import ModuleType

import pytest

from chronik.errors import ChronikError
from tests.metadata import test_transactions_are_decided_once
from tests.replication.mutants import Mutant

from . import test_late_requests_touch_no_later_transaction as late
from . import test_transactions_end_whatever_fails as ends
from .mutants import MUTANTS
from .simulation.producer import AtItsEnd, MustAbort
from .simulation.world import TransactionWorld

pytestmark = pytest.mark.slow

SEEDS = range(1, 61)
"""Most are caught by a story, and nearly all others by one of the first seeds."""

NOTICED = (AssertionError, ChronikError, ExceptionGroup, LookupError, MustAbort, AtItsEnd, pytest.fail.Exception)

STORIES = (late, ends, test_transactions_are_decided_once)

KNOWN_STORIES: dict[Callable[..., None], tuple[str, ...]] = {
    late.test_an_end_that_comes_twice_is_answered_as_at_first: ("answers a repeated end of v2 as a stranger's",),
    late.test_of_v1_a_late_end_ends_the_next_transaction: ("trusts an image that is behind",),
    late.test_of_v1_a_late_addition_begins_a_transaction_that_ends_by_its_timeout: ("never times out",),
    late.test_of_v1_a_producer_that_has_failed_gets_another_epoch_and_its_late_record_is_refused: (
        "gives a second instance the same epoch",
        "lets an instance in before the markers are written",
    ),
    ends.test_a_producer_that_goes_on_with_its_epoch_gets_the_next: ("lets an old instance fence a newer one",),
    ends.test_a_producer_whose_epochs_are_used_up_goes_on_with_another_id: (
        "knows no producer by its next id",
        "uses up its epochs",
        "takes records of any epoch",
    ),
    ends.test_a_coordinator_that_fences_itself_for_a_moment_sees_to_its_markers: (
        "waits for markers that it has stopped sending",
    ),
    ends.test_a_coordinator_that_was_replaced_decides_nothing: ("says done what is not stored",),
    ends.test_a_command_that_comes_to_hold_late_is_seen_to: ("sees to nothing that came to hold late",),
    ends.test_a_decision_that_comes_to_hold_late_does_not_end_the_next_instances_transaction: (
        "leaves open what a fenced instance began",
        "applies what was decided upon something else",
    ),
    ends.test_a_leader_change_leaves_an_open_transaction_open: ("shows everything that is committed",),
    ends.test_the_last_stable_offset_waits_until_the_marker_is_committed: ("trusts markers that may be lost",),
    ends.test_a_topic_made_again_under_its_name_gets_no_record_and_no_marker: ("keeps deleted topics in transactions",),
    ends.test_offsets_count_from_the_decision_on: ("publishes offsets of aborted transactions",),
    ends.test_offsets_that_come_to_hold_after_the_end_are_dropped: ("stages offsets for any transaction",),
    ends.test_a_groups_coordinator_whose_image_shows_the_transaction_before_takes_offsets_of_the_next: (
        "drops offsets of committed transactions",
        "settles no offsets",
    ),
}
"""Which story notices what others notice late or not at all. It is asked first, and only if it notices nothing, all."""

KNOWN_SEEDS = {
    "fences nobody by a timeout": (12, 21),
    "tries only once to send a marker": (24, 14),
    "says a marker written that is not committed": (1, 23),
    "forgets what began before": (5, 21),
}
"""The same for what no story notices."""


def stories(module: ModuleType) -> Iterator[Callable[..., None]]:
    for name, test in inspect.getmembers(module, inspect.isfunction):
        if name.startswith("test_") and inspect.getmodule(test) is module:
            yield test


def with_parameters(test: Callable[..., None]) -> Iterator[Callable[[], None]]:
    marks = [mark for mark in getattr(test, "pytestmark", ()) if mark.name == "parametrize"]
    names = [mark.args[0] for mark in marks]
    for values in product(*(mark.args[1] for mark in marks)):
        yield partial(test, **dict(zip(names, values, strict=True)))


def story_that_notices(tests: Iterable[Callable[..., None]]) -> str | None:
    for test in tests:
        for story in with_parameters(test):
            try:
                story()
            except NOTICED:
                return test.__name__
    return None


def seed_that_notices(seeds: Iterable[int]) -> int | None:
    for seed in seeds:
        try:
            TransactionWorld(seed).run()
        except NOTICED:
            return seed
    return None


def all_stories() -> list[Callable[..., None]]:
    return [test for module in STORIES for test in stories(module)]


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_every_broken_rule_is_noticed(mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    mutant.apply(monkeypatch)
    known = [story for story, names in KNOWN_STORIES.items() if mutant.name in names]
    noticed = story_that_notices(known) or seed_that_notices(KNOWN_SEEDS.get(mutant.name, ()))
    noticed = noticed or story_that_notices(all_stories()) or seed_that_notices(SEEDS)
    assert noticed, f"a cluster that {mutant.name} goes unnoticed"


def test_unbroken_rules_are_not_complained_about() -> None:
    names = {mutant.name for mutant in MUTANTS}
    assert len(names) == len(MUTANTS) >= 20
    assert names >= {*chain(*KNOWN_STORIES.values()), *KNOWN_SEEDS}
    assert story_that_notices(all_stories()) is None
