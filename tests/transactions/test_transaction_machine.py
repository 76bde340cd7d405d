"""AddPartitionsToTxn and EndTxn of producers that keep their epoch (v1) and that change it per transaction (v2)."""

from __future__ import annotations

import pytest

from chronik.coordination.machine import CoordinatorChanged, DeadlineCheckDue, StateStored
from chronik.metadata.commands.topics import DeleteTopic
from chronik.metadata.commands.transactions import InitTransaction
from chronik.metadata.records import TransactionState
from chronik.protocol.errors import ErrorCode
from chronik.transactions.config import COMPLETION_DELAY_MS, GROUPS_PER_TRANSACTION_MAX
from chronik.transactions.decisions import TransactionResult
from tests.transactions.transaction_harness import ID, TIMEOUT_MS, TransactionHarness

OK = ErrorCode.NONE
INVALID = TransactionResult(ErrorCode.INVALID_TXN_STATE)


def harness_with_transaction() -> TransactionHarness:
    lab = TransactionHarness()
    lab.init()
    assert lab.add(0, 0, 1) is OK
    return lab


def test_repeated_add_partitions_changes_nothing() -> None:
    lab = harness_with_transaction()
    index = lab.transaction.index
    assert lab.add(0, 1, 0) is OK
    assert lab.transaction.index == index, "a repeated request stores nothing"
    assert lab.add(0, 1, 2) is OK
    assert lab.transaction.partitions == lab.partitions(0, 1, 2)


def test_add_and_end_require_current_producer() -> None:
    lab = harness_with_transaction()
    assert lab.add(0, 0, producer_id=5) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert lab.add(1, 0) is ErrorCode.PRODUCER_FENCED
    assert lab.end(0, producer_id=5) == TransactionResult(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    assert lab.end(1) == TransactionResult(ErrorCode.PRODUCER_FENCED)
    assert lab.transaction.state is TransactionState.ONGOING


def test_unknown_transactional_id_is_rejected() -> None:
    lab = TransactionHarness()
    assert lab.add(0, 0, producer_id=5) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert lab.end(0, producer_id=5) == TransactionResult(ErrorCode.INVALID_PRODUCER_ID_MAPPING)


@pytest.mark.parametrize("bump", [False, True], ids=["v1", "v2"])
@pytest.mark.parametrize("commit", [True, False])
def test_end_txn_returns_before_markers_are_written(commit: bool, bump: bool) -> None:
    lab = harness_with_transaction()
    producer_id = lab.transaction.producer_id
    waiter = lab.begin_end(0, commit=commit, bump=bump)
    assert waiter not in lab.answers, "the change is not stored yet"
    lab.apply()
    given = TransactionResult(OK, producer_id, 1 if bump else 0)
    assert lab.answers[waiter] == given
    (decided,) = lab.markers
    assert (decided.state.is_commit, decided.producer_epoch) == (commit, given.producer_epoch)
    assert decided.partitions == lab.partitions(0, 1)
    # The response was lost, and the producer retries: before the markers are written, and after.
    assert lab.answers[lab.begin_end(0, commit=commit, bump=bump)] == given
    lab.complete_all()
    assert lab.transaction.state is (TransactionState.COMPLETE_COMMIT if commit else TransactionState.COMPLETE_ABORT)
    assert lab.end(0, commit=commit, bump=bump) == given
    assert lab.end(0, commit=not commit, bump=bump) == INVALID
    assert not lab.markers


def test_next_transaction_waits_for_previous_markers() -> None:
    lab = harness_with_transaction()
    lab.begin_end(0)
    lab.apply()
    waiter = lab.begin_add(0, 2)
    assert waiter not in lab.answers
    lab.write_markers()
    lab.apply()
    assert lab.answers[waiter].error is OK, "one command completes the previous transaction and starts the next"
    assert lab.transaction.partitions == lab.partitions(2)
    assert lab.transaction.state is TransactionState.ONGOING


def test_prompt_next_transaction_completes_previous_one_in_same_command() -> None:
    lab = harness_with_transaction()
    lab.begin_end(0)
    lab.apply()
    lab.write_markers()
    lab.advance_time(COMPLETION_DELAY_MS - 1)
    assert not lab.stores
    lab.begin_add(0, 2)
    lab.apply()
    assert lab.transaction.partitions == lab.partitions(2)
    lab.advance_time(COMPLETION_DELAY_MS)
    assert not lab.stores
    assert lab.transaction.state is TransactionState.ONGOING


def test_transaction_without_successor_is_completed_by_own_command() -> None:
    lab = harness_with_transaction()
    lab.begin_end(0)
    lab.apply()
    lab.write_markers()
    lab.advance_time(COMPLETION_DELAY_MS)
    lab.apply()
    assert lab.transaction.state is TransactionState.COMPLETE_COMMIT
    assert lab.is_unloaded


def test_commit_without_open_transaction_is_rejected() -> None:
    lab = TransactionHarness()
    lab.init()
    assert lab.end(0) == INVALID
    assert lab.end(0, commit=False) == INVALID
    assert lab.end(0, bump=True) == INVALID


def test_v2_abort_without_transaction_bumps_epoch() -> None:
    lab = TransactionHarness()
    producer_id = lab.init().producer_id
    assert lab.end(0, commit=False, bump=True) == TransactionResult(OK, producer_id, 1)
    assert lab.end(0, commit=False, bump=True) == TransactionResult(OK, producer_id, 1), "a retry gets the same result"
    assert lab.end(1, commit=False, bump=True) == TransactionResult(OK, producer_id, 2)
    assert lab.end(0, commit=False, bump=True) == TransactionResult(ErrorCode.PRODUCER_FENCED)


def test_v2_late_end_txn_does_not_affect_next_transaction() -> None:
    lab = harness_with_transaction()
    lab.end(0, bump=True)
    assert lab.add(1, 2) is OK
    assert lab.end(0, bump=True) == TransactionResult(ErrorCode.PRODUCER_FENCED)
    assert lab.transaction.state is TransactionState.ONGOING


def test_v2_exhausted_epoch_returns_new_producer_id() -> None:
    lab = TransactionHarness()
    old = lab.init().producer_id
    lab.world.accept(InitTransaction(ID, lab.transaction.index, old, 32766, TIMEOUT_MS, 1))
    lab.add(32766, 0)
    assert lab.end(32766, bump=True).needs_producer_id
    waiter = lab.begin_end(32766, bump=True, fresh=500)
    lab.apply()
    assert lab.answers[waiter] == TransactionResult(OK, 500, 0)
    assert (lab.markers[0].producer_id, lab.markers[0].producer_epoch) == (old, 32767)
    lab.complete_all()
    assert lab.end(32766, bump=True, producer_id=old) == TransactionResult(OK, 500, 0), "a retry gets the same result"
    assert lab.add(0, 1, producer_id=500) is OK


def test_v2_request_with_new_producer_id_waits_for_old_markers() -> None:
    """The producer got its new id when the transaction was decided, and continues immediately."""
    lab = TransactionHarness()
    old = lab.init().producer_id
    lab.world.accept(InitTransaction(ID, lab.transaction.index, old, 32766, TIMEOUT_MS, 1))
    lab.add(32766, 0)
    lab.begin_end(32766, bump=True, fresh=500)
    lab.apply()
    assert lab.transaction.state is TransactionState.PREPARE_COMMIT
    early = [lab.begin_add(0, 1, producer_id=500), lab.begin_end(0, commit=False, bump=True, producer_id=500)]
    assert not lab.answers.keys() & set(early)
    lab.complete_all()
    assert [lab.answers[each] for each in early] == [TransactionResult(OK, 500, 0), TransactionResult(OK, 500, 1)]
    assert lab.transaction.state.kafka_name == "CompleteAbort"
    assert (lab.transaction.producer_id, lab.transaction.producer_epoch) == (500, 1)


def test_v2_producer_can_reinitialize_with_its_new_id() -> None:
    lab = TransactionHarness()
    old = lab.init().producer_id
    lab.world.accept(InitTransaction(ID, lab.transaction.index, old, 32766, TIMEOUT_MS, 1))
    lab.add(32766, 0)
    lab.begin_end(32766, bump=True, fresh=500)
    lab.apply()
    assert lab.init(500, 0) == TransactionResult(OK, 500, 1)


def test_timed_out_transaction_is_aborted_and_producer_fenced() -> None:
    lab = harness_with_transaction()
    lab.advance_time(TIMEOUT_MS - 1)
    assert not lab.stores
    lab.advance_time(1)
    lab.apply()
    assert lab.transaction.state is TransactionState.PREPARE_ABORT
    assert lab.markers[0].producer_epoch == 1
    lab.complete_all()
    assert lab.end(0) == TransactionResult(ErrorCode.PRODUCER_FENCED)
    assert lab.init(lab.transaction.producer_id, 0) == TransactionResult(ErrorCode.PRODUCER_FENCED)


def test_timeout_restarts_with_each_transaction() -> None:
    lab = harness_with_transaction()
    lab.advance_time(TIMEOUT_MS - 10)
    lab.begin_end(0)
    lab.apply()
    lab.begin_add(0, 1)
    lab.complete_all()
    lab.advance_time(TIMEOUT_MS - 10)
    assert not lab.stores
    assert lab.transaction.state is TransactionState.ONGOING


def test_failed_store_rejects_request_and_retries_own_work() -> None:
    lab = harness_with_transaction()
    waiter = lab.begin_end(0)
    lab.fail(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert lab.answers[waiter] == TransactionResult(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    lab.begin_end(0)
    lab.apply()
    lab.write_markers()
    lab.advance_time(COMPLETION_DELAY_MS)
    for _ in range(3):
        lab.fail(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        assert not lab.stores
        lab.advance_time(1_000)
    lab.apply()
    assert lab.transaction.state is TransactionState.COMPLETE_COMMIT


def test_conflicting_change_is_reread_before_retry() -> None:
    """A command of the same term with an unknown outcome is applied late."""
    lab = harness_with_transaction()
    waiter = lab.begin_end(0, bump=True)
    lab.world.accept(lab.stores[0].change.to_command(-1, 5))
    lab.apply()
    assert lab.answers[waiter] == TransactionResult(OK, lab.transaction.producer_id, 1)


def test_transaction_started_with_unknown_outcome_times_out() -> None:
    """The command's outcome was unknown, and it was applied later."""
    lab = TransactionHarness()
    lab.init()
    lab.begin_add(0, 0)
    late = lab.stores[0].change.to_command(-1, 5)
    lab.fail(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    lab.world.accept(late)
    lab.handle_event(DeadlineCheckDue(lab.now_ms))
    lab.advance_time(TIMEOUT_MS)
    lab.apply()
    assert lab.transaction.state is TransactionState.PREPARE_ABORT


def test_new_coordinator_continues_transaction() -> None:
    lab = harness_with_transaction()
    lab.begin_end(0)
    lab.apply()
    waiting = lab.begin_add(0, 1)
    lab.handle_event(CoordinatorChanged(lab.now_ms))
    assert lab.answers[waiting] == TransactionResult(ErrorCode.NOT_COORDINATOR)
    assert lab.is_unloaded
    lab.markers.clear()
    lab.load_machine()
    lab.advance_time(0)
    assert len(lab.markers) == 1, "markers are written without another request"
    lab.complete_all()
    assert lab.transaction.state is TransactionState.COMPLETE_COMMIT


def test_unloaded_machine_ignores_store_events() -> None:
    lab = harness_with_transaction()
    lab.begin_end(0)
    machine, (store,) = lab.machine, lab.stores
    lab.handle_event(CoordinatorChanged(lab.now_ms))
    assert machine.handle(StateStored(lab.now_ms, store.ticket)) == ()


def test_transaction_without_remaining_partitions_completes() -> None:
    lab = harness_with_transaction()
    lab.begin_end(0)
    lab.apply()
    lab.world.accept(DeleteTopic(lab.world.image.topics["orders"].id))
    assert lab.transaction.partitions == ()
    lab.complete_all()
    assert lab.transaction.state is TransactionState.COMPLETE_COMMIT


def test_groups_per_transaction_are_limited() -> None:
    lab = TransactionHarness()
    lab.init()
    groups = tuple(f"g{number}" for number in range(GROUPS_PER_TRANSACTION_MAX))
    assert lab.add(0, groups=(*groups, "one more")) is ErrorCode.INVALID_REQUEST
    assert lab.add(0, groups=groups) is OK
    assert lab.add(0, groups=("one more",)) is ErrorCode.INVALID_REQUEST
    assert lab.add(0, groups=groups[:1]) is OK
    assert lab.transaction.groups == groups
