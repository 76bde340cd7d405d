"""AddPartitionsToTxn and EndTxn, of producers that keep their epoch (v1), and of those that change it (v2)."""

from __future__ import annotations

import pytest

from chronik.coordination.machine import Stored, TakenOver, TimePassed
from chronik.metadata.commands.topics import DeleteTopic
from chronik.metadata.commands.transactions import InitTransaction
from chronik.metadata.records import TransactionState
from chronik.protocol.errors import ErrorCode
from chronik.transactions.config import COMPLETED_AFTER_MS, GROUPS_PER_TRANSACTION_MAX
from chronik.transactions.events import Given
from tests.transactions.lab import ID, TIMEOUT_MS, Lab

OK = ErrorCode.NONE
INVALID = Given(ErrorCode.INVALID_TXN_STATE)


def begun() -> Lab:
    lab = Lab()
    lab.init()
    assert lab.add(0, 0, 1) is OK
    return lab


def test_partitions_are_added_once() -> None:
    lab = begun()
    index = lab.transaction.index
    assert lab.add(0, 1, 0) is OK
    assert lab.transaction.index == index, "there was nothing to store"
    assert lab.add(0, 1, 2) is OK
    assert lab.transaction.partitions == lab.parts(0, 1, 2)


def test_only_its_producer_adds_and_ends() -> None:
    lab = begun()
    assert lab.add(0, 0, producer_id=5) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert lab.add(1, 0) is ErrorCode.PRODUCER_FENCED
    assert lab.end(0, producer_id=5) == Given(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    assert lab.end(1) == Given(ErrorCode.PRODUCER_FENCED)
    assert lab.transaction.state is TransactionState.ONGOING


def test_an_id_that_is_not_known_has_no_transaction() -> None:
    lab = Lab()
    assert lab.add(0, 0, producer_id=5) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert lab.end(0, producer_id=5) == Given(ErrorCode.INVALID_PRODUCER_ID_MAPPING)


@pytest.mark.parametrize("bump", [False, True], ids=["v1", "v2"])
@pytest.mark.parametrize("commit", [True, False])
def test_the_decision_is_answered_before_its_markers_are_written(commit: bool, bump: bool) -> None:
    lab = begun()
    producer_id = lab.transaction.producer_id
    waiter = lab.begin_end(0, commit=commit, bump=bump)
    assert waiter not in lab.answers, "it is not stored yet"
    lab.apply()
    given = Given(OK, producer_id, 1 if bump else 0)
    assert lab.answers[waiter] == given
    (decided,) = lab.markers
    assert (decided.state.commits, decided.producer_epoch) == (commit, given.producer_epoch)
    assert decided.partitions == lab.parts(0, 1)
    # The answer was lost, so it is asked for again: before the markers are written, and after.
    assert lab.answers[lab.begin_end(0, commit=commit, bump=bump)] == given
    lab.settle()
    assert lab.transaction.state is (TransactionState.COMPLETE_COMMIT if commit else TransactionState.COMPLETE_ABORT)
    assert lab.end(0, commit=commit, bump=bump) == given
    assert lab.end(0, commit=not commit, bump=bump) == INVALID
    assert not lab.markers


def test_the_next_transaction_waits_for_the_markers_of_the_last() -> None:
    lab = begun()
    lab.begin_end(0)
    lab.apply()
    waiter = lab.begin_add(0, 2)
    assert waiter not in lab.answers
    lab.mark()
    lab.apply()
    assert lab.answers[waiter].error is OK, "one command completes the last and begins the next"
    assert lab.transaction.partitions == lab.parts(2)
    assert lab.transaction.state is TransactionState.ONGOING


def test_one_that_comes_soon_completes_the_last_along_with_its_own_command() -> None:
    lab = begun()
    lab.begin_end(0)
    lab.apply()
    lab.mark()
    lab.pass_time(COMPLETED_AFTER_MS - 1)
    assert not lab.stores
    lab.begin_add(0, 2)
    lab.apply()
    assert lab.transaction.partitions == lab.parts(2)
    lab.pass_time(COMPLETED_AFTER_MS)
    assert not lab.stores
    assert lab.transaction.state is TransactionState.ONGOING


def test_one_that_nobody_follows_is_completed_by_itself() -> None:
    lab = begun()
    lab.begin_end(0)
    lab.apply()
    lab.mark()
    lab.pass_time(COMPLETED_AFTER_MS)
    lab.apply()
    assert lab.transaction.state is TransactionState.COMPLETE_COMMIT
    assert lab.is_forgotten


def test_nothing_that_was_begun_cannot_be_committed() -> None:
    lab = Lab()
    lab.init()
    assert lab.end(0) == INVALID
    assert lab.end(0, commit=False) == INVALID
    assert lab.end(0, bump=True) == INVALID


def test_of_v2_an_abort_of_nothing_changes_the_epoch() -> None:
    lab = Lab()
    producer_id = lab.init().producer_id
    assert lab.end(0, commit=False, bump=True) == Given(OK, producer_id, 1)
    assert lab.end(0, commit=False, bump=True) == Given(OK, producer_id, 1), "the answer was lost"
    assert lab.end(1, commit=False, bump=True) == Given(OK, producer_id, 2)
    assert lab.end(0, commit=False, bump=True) == Given(ErrorCode.PRODUCER_FENCED)


def test_of_v2_a_late_end_never_touches_the_next_transaction() -> None:
    lab = begun()
    lab.end(0, bump=True)
    assert lab.add(1, 2) is OK
    assert lab.end(0, bump=True) == Given(ErrorCode.PRODUCER_FENCED)
    assert lab.transaction.state is TransactionState.ONGOING


def test_of_v2_epochs_are_used_up_by_transactions() -> None:
    lab = Lab()
    old = lab.init().producer_id
    lab.world.accept(InitTransaction(ID, lab.transaction.index, old, 32766, TIMEOUT_MS, 1))
    lab.add(32766, 0)
    assert lab.end(32766, bump=True).needs_producer_id
    waiter = lab.begin_end(32766, bump=True, fresh=500)
    lab.apply()
    assert lab.answers[waiter] == Given(OK, 500, 0)
    assert (lab.markers[0].producer_id, lab.markers[0].producer_epoch) == (old, 32767)
    lab.settle()
    assert lab.end(32766, bump=True, producer_id=old) == Given(OK, 500, 0), "the answer was lost"
    assert lab.add(0, 1, producer_id=500) is OK


def test_of_v2_whoever_has_a_new_producer_id_waits_for_the_markers_of_the_old_one() -> None:
    """It was answered when the transaction was decided, and goes on at once."""
    lab = Lab()
    old = lab.init().producer_id
    lab.world.accept(InitTransaction(ID, lab.transaction.index, old, 32766, TIMEOUT_MS, 1))
    lab.add(32766, 0)
    lab.begin_end(32766, bump=True, fresh=500)
    lab.apply()
    assert lab.transaction.state is TransactionState.PREPARE_COMMIT
    early = [lab.begin_add(0, 1, producer_id=500), lab.begin_end(0, commit=False, bump=True, producer_id=500)]
    assert not lab.answers.keys() & set(early)
    lab.settle()
    assert [lab.answers[each] for each in early] == [Given(OK, 500, 0), Given(OK, 500, 1)]
    assert lab.transaction.state.label == "CompleteAbort"
    assert (lab.transaction.producer_id, lab.transaction.producer_epoch) == (500, 1)


def test_of_v2_a_producer_may_begin_anew_with_the_id_that_it_was_just_given() -> None:
    lab = Lab()
    old = lab.init().producer_id
    lab.world.accept(InitTransaction(ID, lab.transaction.index, old, 32766, TIMEOUT_MS, 1))
    lab.add(32766, 0)
    lab.begin_end(32766, bump=True, fresh=500)
    lab.apply()
    assert lab.init(500, 0) == Given(OK, 500, 1)


def test_a_transaction_that_takes_too_long_is_aborted_and_its_producer_fenced() -> None:
    lab = begun()
    lab.pass_time(TIMEOUT_MS - 1)
    assert not lab.stores
    lab.pass_time(1)
    lab.apply()
    assert lab.transaction.state is TransactionState.PREPARE_ABORT
    assert lab.markers[0].producer_epoch == 1
    lab.settle()
    assert lab.end(0) == Given(ErrorCode.PRODUCER_FENCED)
    assert lab.init(lab.transaction.producer_id, 0) == Given(ErrorCode.PRODUCER_FENCED)


def test_time_begins_anew_with_each_transaction() -> None:
    lab = begun()
    lab.pass_time(TIMEOUT_MS - 10)
    lab.begin_end(0)
    lab.apply()
    lab.begin_add(0, 1)
    lab.settle()
    lab.pass_time(TIMEOUT_MS - 10)
    assert not lab.stores
    assert lab.transaction.state is TransactionState.ONGOING


def test_what_could_not_be_stored_is_told_and_what_is_due_is_tried_again() -> None:
    lab = begun()
    waiter = lab.begin_end(0)
    lab.fail(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert lab.answers[waiter] == Given(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    lab.begin_end(0)
    lab.apply()
    lab.mark()
    lab.pass_time(COMPLETED_AFTER_MS)
    for _ in range(3):
        lab.fail(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        assert not lab.stores
        lab.pass_time(1_000)
    lab.apply()
    assert lab.transaction.state is TransactionState.COMPLETE_COMMIT


def test_a_change_that_came_between_is_looked_at() -> None:
    """A command of this very term whose outcome was not known, and which is applied late."""
    lab = begun()
    waiter = lab.begin_end(0, bump=True)
    lab.world.accept(lab.stores[0].what.as_command(-1, 5))
    lab.apply()
    assert lab.answers[waiter] == Given(OK, lab.transaction.producer_id, 1)


def test_one_that_begins_though_nobody_was_told_so_ends_by_its_timeout_too() -> None:
    """The outcome of the command was not known in time, and it was applied later."""
    lab = Lab()
    lab.init()
    lab.begin_add(0, 0)
    late = lab.stores[0].what.as_command(-1, 5)
    lab.fail(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    lab.world.accept(late)
    lab.feed(TimePassed(lab.now_ms))
    lab.pass_time(TIMEOUT_MS)
    lab.apply()
    assert lab.transaction.state is TransactionState.PREPARE_ABORT


def test_another_coordinator_goes_on_where_the_first_stopped() -> None:
    lab = begun()
    lab.begin_end(0)
    lab.apply()
    waiting = lab.begin_add(0, 1)
    lab.feed(TakenOver(lab.now_ms))
    assert lab.answers[waiting] == Given(ErrorCode.NOT_COORDINATOR)
    assert lab.is_forgotten
    lab.markers.clear()
    lab.taken_up()
    lab.pass_time(0)
    assert len(lab.markers) == 1, "nobody had to ask"
    lab.settle()
    assert lab.transaction.state is TransactionState.COMPLETE_COMMIT


def test_a_store_that_answers_a_machine_that_was_let_go_of_is_not_heard() -> None:
    lab = begun()
    lab.begin_end(0)
    machine, (store,) = lab.machine, lab.stores
    lab.feed(TakenOver(lab.now_ms))
    assert machine.handle(Stored(lab.now_ms, store.ticket)) == ()


def test_a_transaction_whose_topics_are_all_gone_needs_no_markers_but_ends() -> None:
    lab = begun()
    lab.begin_end(0)
    lab.apply()
    lab.world.accept(DeleteTopic(lab.world.image.topics["orders"].id))
    assert lab.transaction.partitions == ()
    lab.settle()
    assert lab.transaction.state is TransactionState.COMPLETE_COMMIT


def test_a_transaction_has_at_most_so_many_groups() -> None:
    lab = Lab()
    lab.init()
    groups = tuple(f"g{number}" for number in range(GROUPS_PER_TRANSACTION_MAX))
    assert lab.add(0, groups=(*groups, "one more")) is ErrorCode.INVALID_REQUEST
    assert lab.add(0, groups=groups) is OK
    assert lab.add(0, groups=("one more",)) is ErrorCode.INVALID_REQUEST
    assert lab.add(0, groups=groups[:1]) is OK
    assert lab.transaction.groups == groups
