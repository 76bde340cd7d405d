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

from . import test_late_requests as late
from . import test_transaction_failures as ends
from .mutants import MUTANTS
from .simulation.producer import AtItsEnd, MustAbort
from .simulation.world import TransactionWorld

pytestmark = pytest.mark.slow

SEEDS = range(1, 61)
"""Most are caught by a story, and nearly all others by one of the first seeds."""

NOTICED = (AssertionError, ChronikError, ExceptionGroup, LookupError, MustAbort, AtItsEnd, pytest.fail.Exception)

STORIES = (late, ends, test_transactions_are_decided_once)

KNOWN_STORIES: dict[Callable[..., None], tuple[str, ...]] = {
    late.test_repeated_end_txn_returns_first_result: ("answers a repeated end of v2 as a stranger's",),
    late.test_v1_late_end_txn_ends_next_transaction: ("trusts an image that is behind",),
    late.test_v1_late_add_partitions_starts_transaction_that_times_out: ("never times out",),
    late.test_v1_late_record_is_rejected_after_epoch_bump: (
        "gives a second instance the same epoch",
        "lets an instance in before the markers are written",
    ),
    ends.test_init_with_current_epoch_returns_next_epoch: ("lets an old instance fence a newer one",),
    ends.test_producer_with_exhausted_epochs_gets_new_producer_id: (
        "knows no producer by its next id",
        "uses up its epochs",
        "takes records of any epoch",
    ),
    ends.test_briefly_fenced_coordinator_writes_its_markers: ("waits for markers that it has stopped sending",),
    ends.test_replaced_coordinator_cannot_decide: ("says done what is not stored",),
    ends.test_late_applied_command_is_completed: ("sees to nothing that came to hold late",),
    ends.test_late_applied_decision_does_not_end_next_instances_transaction: (
        "leaves open what a fenced instance began",
        "applies what was decided upon something else",
    ),
    ends.test_open_transaction_survives_leader_change: ("shows everything that is committed",),
    ends.test_last_stable_offset_waits_for_committed_marker: ("trusts markers that may be lost",),
    ends.test_recreated_topic_gets_no_records_or_markers_of_old_transaction: ("keeps deleted topics in transactions",),
    ends.test_transactional_offsets_become_visible_with_commit: ("publishes offsets of aborted transactions",),
    ends.test_offsets_applied_after_transaction_end_are_dropped: ("stages offsets for any transaction",),
    ends.test_group_coordinator_with_outdated_image_accepts_offsets: (
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
def test_every_mutant_is_detected(mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    mutant.apply(monkeypatch)
    known = [story for story, names in KNOWN_STORIES.items() if mutant.name in names]
    noticed = story_that_notices(known) or seed_that_notices(KNOWN_SEEDS.get(mutant.name, ()))
    noticed = noticed or story_that_notices(all_stories()) or seed_that_notices(SEEDS)
    assert noticed, f"a cluster that {mutant.name} goes unnoticed"


def test_unmodified_code_passes_all_checks() -> None:
    names = {mutant.name for mutant in MUTANTS}
    assert len(names) == len(MUTANTS) >= 20
    assert names >= {*chain(*KNOWN_STORIES.values()), *KNOWN_SEEDS}
    assert story_that_notices(all_stories()) is None
