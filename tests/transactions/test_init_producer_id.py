"""InitProducerId: assignment of producer ids and epochs, and fencing."""

from __future__ import annotations

import pytest

from chronik.metadata.commands.transactions import InitTransaction
from chronik.metadata.records import TransactionState
from chronik.protocol.errors import ErrorCode
from chronik.transactions.decisions import TransactionResult
from tests.transactions.transaction_harness import FRESH, TransactionHarness

OK = ErrorCode.NONE
FENCED = TransactionResult(ErrorCode.PRODUCER_FENCED)


def at_epoch(epoch: int) -> TransactionHarness:
    lab = TransactionHarness()
    lab.init()
    index = lab.transaction.index
    lab.world.accept(InitTransaction("pay", index, lab.transaction.producer_id, epoch, 60_000, 1))
    return lab


def test_new_transactional_id_gets_new_producer_id() -> None:
    lab = TransactionHarness()
    assert lab.init(fresh=False).needs_producer_id
    assert lab.current_transaction is None
    assert lab.init() == TransactionResult(OK, FRESH + 2, 0)
    assert lab.is_unloaded, "an idle machine is unloaded"


def test_each_init_bumps_epoch() -> None:
    lab = TransactionHarness()
    first = lab.init()
    assert lab.init(fresh=False) == TransactionResult(OK, first.producer_id, 1)
    assert lab.init(fresh=False) == TransactionResult(OK, first.producer_id, 2)
    assert lab.add(1, 0) is ErrorCode.PRODUCER_FENCED
    assert lab.end(1) == FENCED


def test_init_with_current_epoch_is_idempotent() -> None:
    lab = TransactionHarness()
    producer_id = lab.init().producer_id
    assert lab.init(producer_id, 0) == TransactionResult(OK, producer_id, 1)
    assert lab.init(producer_id, 0) == TransactionResult(OK, producer_id, 1), "a retry gets the same result"
    assert lab.init(producer_id, 1) == TransactionResult(OK, producer_id, 2)
    assert lab.init(producer_id, 0) == FENCED
    assert lab.init(producer_id + 50, 0) == FENCED


def test_init_with_old_epoch_is_fenced() -> None:
    lab = TransactionHarness()
    producer_id = lab.init().producer_id
    lab.init()
    assert lab.add(1, 0) is OK
    assert lab.init(producer_id, 0) == FENCED
    assert lab.transaction.state is TransactionState.ONGOING


def test_init_without_epoch_aborts_open_transaction() -> None:
    lab = TransactionHarness()
    producer_id = lab.init().producer_id
    lab.add(0, 0, 1)
    waiter = lab.begin_init()
    lab.apply()
    assert lab.transaction.state is TransactionState.PREPARE_ABORT
    assert lab.transaction.producer_epoch == 1, "the markers fence the producer that was writing"
    assert waiter not in lab.answers
    lab.complete_all()
    assert lab.answers[waiter] == TransactionResult(OK, producer_id, 2)
    assert lab.add(0, 0) is ErrorCode.PRODUCER_FENCED
    assert lab.add(1, 0) is ErrorCode.PRODUCER_FENCED


def test_init_with_current_epoch_aborts_own_open_transaction() -> None:
    lab = TransactionHarness()
    producer_id = lab.init().producer_id
    lab.add(0, 0)
    assert lab.init(producer_id, 0) == TransactionResult(OK, producer_id, 1)
    assert lab.transaction.state is TransactionState.COMPLETE_ABORT


def test_exhausted_epochs_allocate_new_producer_id() -> None:
    lab = at_epoch(32765)
    old = lab.transaction.producer_id
    assert lab.init(fresh=False) == TransactionResult(OK, old, 32766)
    assert lab.init(fresh=False).needs_producer_id
    given = lab.init(old, 32766)
    assert given.producer_id not in (old, -1)
    assert given.producer_epoch == 0
    assert lab.init(old, 32766) == given, "a retry gets the same result"
    assert lab.init(old, 32765) == FENCED


def test_last_epoch_is_reserved_for_fencing() -> None:
    lab = at_epoch(32766)
    old = lab.transaction.producer_id
    lab.add(32766, 0)
    waiter = lab.begin_init()
    lab.apply()
    assert lab.markers[0].producer_epoch == 32767
    lab.complete_all()
    assert lab.answers[waiter].producer_id not in (old, -1)
    assert lab.answers[waiter].producer_epoch == 0


def test_last_epoch_is_not_assigned_after_abort_of_own_transaction() -> None:
    """Otherwise no epoch would be left to fence its next transaction."""
    lab = at_epoch(32766)
    old = lab.transaction.producer_id
    lab.add(32766, 0)
    given = lab.init(old, 32766)
    assert given.producer_id not in (old, -1)
    assert given.producer_epoch == 0
    assert lab.init(old, 32766) == given, "a retry gets the same result"
    assert lab.add(0, 0) is OK
    assert lab.end(0, bump=True) == TransactionResult(OK, given.producer_id, 1)


@pytest.mark.parametrize("commit", [True, False])
def test_init_waits_for_pending_markers(commit: bool) -> None:
    lab = TransactionHarness()
    producer_id = lab.init().producer_id
    lab.add(0, 0)
    lab.begin_end(0, commit=commit)
    lab.apply()
    waiter = lab.begin_init()
    assert waiter not in lab.answers
    assert not lab.stores
    lab.complete_all()
    assert lab.answers[waiter] == TransactionResult(OK, producer_id, 1)


def test_init_waiting_for_markers_times_out() -> None:
    lab = TransactionHarness()
    lab.init()
    lab.add(0, 0)
    lab.begin_end(0)
    lab.apply()
    waiter = lab.begin_init()
    lab.advance_time(2_999)
    assert waiter not in lab.answers
    lab.advance_time(1)
    assert lab.answers[waiter] == TransactionResult(ErrorCode.CONCURRENT_TRANSACTIONS)
    lab.complete_all()
    assert lab.transaction.state is TransactionState.COMPLETE_COMMIT
