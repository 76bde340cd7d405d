from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import chain, product
from types import ModuleType

import pytest

from chronik.errors import ChronikError
from tests.metadata import test_transactions
from tests.replication.mutants import Mutant

from . import test_late_requests as late
from . import test_transaction_failures as ends
from .mutants import MUTANTS
from .simulation.producer import MustAbort, ProducerFailed
from .simulation.world import TransactionWorld

pytestmark = pytest.mark.slow

SEEDS = range(1, 61)
"""Most mutants are detected by a test, and nearly all others by one of the first seeds."""

NOTICED = (AssertionError, ChronikError, ExceptionGroup, LookupError, MustAbort, ProducerFailed, pytest.fail.Exception)

STORIES = (late, ends, test_transactions)

KNOWN_STORIES: dict[Callable[..., None], tuple[str, ...]] = {
    late.test_repeated_end_txn_returns_first_result: ("rejects a repeated v2 EndTxn",),
    late.test_v1_late_end_txn_ends_next_transaction: ("does not confirm an outdated image",),
    late.test_v1_late_add_partitions_starts_transaction_that_times_out: ("never times out",),
    late.test_v1_late_record_is_rejected_after_epoch_bump: (
        "gives a second instance the same epoch",
        "initializes a producer while markers are pending",
    ),
    ends.test_init_with_current_epoch_returns_next_epoch: ("lets an old instance fence a newer one",),
    ends.test_producer_with_exhausted_epochs_gets_new_producer_id: (
        "does not recognize the next producer id",
        "does not detect exhausted epochs",
        "accepts records of any epoch",
    ),
    ends.test_briefly_fenced_coordinator_writes_its_markers: ("waits for markers that it no longer sends",),
    ends.test_replaced_coordinator_cannot_decide: ("reports failed writes as stored",),
    ends.test_late_applied_command_is_completed: ("ignores commands that are applied late",),
    ends.test_late_applied_decision_does_not_end_next_instances_transaction: (
        "does not abort the transaction of a fenced instance",
        "applies commands based on an outdated state",
    ),
    ends.test_open_transaction_survives_leader_change: ("uses the high watermark as last stable offset",),
    ends.test_last_stable_offset_waits_for_committed_marker: (
        "advances the last stable offset on uncommitted markers",
    ),
    ends.test_recreated_topic_gets_no_records_or_markers_of_old_transaction: ("keeps deleted topics in transactions",),
    ends.test_transactional_offsets_become_visible_with_commit: ("publishes offsets of aborted transactions",),
    ends.test_offsets_applied_after_transaction_end_are_dropped: ("stages offsets for any transaction",),
    ends.test_group_coordinator_with_outdated_image_accepts_offsets: (
        "drops offsets of committed transactions",
        "never settles staged offsets",
    ),
}
"""Tests that detect mutants which other tests detect late or not at all. They run first."""

KNOWN_SEEDS = {
    "does not fence producers after a timeout": (12, 21),
    "sends markers only once": (24, 14),
    "acknowledges uncommitted markers": (1, 23),
    "omits aborted transactions that started earlier": (5, 21),
}
"""Seeds that detect mutants which no test detects. They run first."""


def stories(module: ModuleType) -> Iterator[Callable[..., None]]:
    for name, test in inspect.getmembers(module, inspect.isfunction):
        if name.startswith("test_") and inspect.getmodule(test) is module:
            yield test


def with_parameters(test: Callable[..., None]) -> Iterator[Callable[[], None]]:
    marks = [mark for mark in getattr(test, "pytestmark", ()) if mark.name == "parametrize"]
    names = [mark.args[0] for mark in marks]
    for values in product(*(mark.args[1] for mark in marks)):
        yield partial(test, **dict(zip(names, values, strict=True)))


def find_detecting_test(tests: Iterable[Callable[..., None]]) -> str | None:
    for test in tests:
        for story in with_parameters(test):
            try:
                story()
            except NOTICED:
                return test.__name__
    return None


def find_detecting_seed(seeds: Iterable[int]) -> int | None:
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
    is_detected = find_detecting_test(known) or find_detecting_seed(KNOWN_SEEDS.get(mutant.name, ()))
    is_detected = is_detected or find_detecting_test(all_stories()) or find_detecting_seed(SEEDS)
    assert is_detected, f"mutant not detected: {mutant.name}"


def test_unmodified_code_passes_all_checks() -> None:
    names = {mutant.name for mutant in MUTANTS}
    assert len(names) == len(MUTANTS) >= 20
    assert names >= {*chain(*KNOWN_STORIES.values()), *KNOWN_SEEDS}
    assert find_detecting_test(all_stories()) is None
