"""Decisions about requests for a transactional id: a result, a change to store first, or a wait. Pure functions.

The rules are Kafka's (`TransactionCoordinator`, KIP-360, KIP-890), with two differences: a request that arrives while
markers are being written waits for them, and a repeated EndTxn returns the result of the first one.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from msgspec.structs import replace

from chronik.metadata.commands.envelope import Command
from chronik.metadata.commands.transactions import (
    NO_PRODUCER,
    NOT_SEEN,
    AddToTransaction,
    CompleteTransaction,
    EndTransaction,
    InitTransaction,
)
from chronik.metadata.records import Transaction, TransactionState
from chronik.protocol.errors import ErrorCode
from chronik.transactions.config import EPOCH_MAX, GROUPS_PER_TRANSACTION_MAX, PARTITIONS_PER_TRANSACTION_MAX
from chronik.transactions.events import AddAsked, Asked, EndAsked, Given, InitAsked

UNTOLD_MS: Final = -1
"""A placeholder for the wall-clock time, which is set when the command is proposed."""

NEEDS_PRODUCER_ID: Final = Given(ErrorCode.NONE, needs_producer_id=True)
"""The result that asks the coordinator to allocate a producer id and repeat the request."""

Change = InitTransaction | AddToTransaction | EndTransaction | CompleteTransaction


class Write(NamedTuple):
    """A change that must be stored. Without a `result`, the request is decided again when the change is stored."""

    change: Change
    answer: Given | None

    def after_markers(self) -> Write:
        """Let the same command also complete the previous transaction, whose markers are all written."""
        if isinstance(self.change, CompleteTransaction):
            return self
        return self._replace(change=replace(self.change, is_marked=True))

    def as_command(self, epoch: int, time_ms: int) -> Command:
        """Return the metadata command that stores the change."""
        return replace(self.change, coordinator_epoch=epoch, time_ms=time_ms)


class Wait(NamedTuple):
    """The request must wait for the markers of the previous transaction."""


WAIT: Final = Wait()

Outcome = Given | Write | Wait


def decide(request: Asked, transaction: Transaction | None) -> Outcome:
    """Decide a request, given the current transaction of its transactional id."""
    if transaction is not None and _uses_next_producer_id(request, transaction):
        return WAIT
    match request:
        case InitAsked():
            return _init(request, transaction)
        case AddAsked():
            return _add(request, transaction)
        case EndAsked():
            return _end(request, transaction)


def _uses_next_producer_id(request: Asked, transaction: Transaction) -> bool:
    """Return whether the request uses the next producer id of a transaction that is being completed.

    The producer received the new id when the transaction was decided. The transaction's record has it only when the
    markers, which carry the old id, are written.
    """
    has_next_id = transaction.state.is_prepared and transaction.next_producer_id != NO_PRODUCER
    return has_next_id and (request.producer_id, request.producer_epoch) == transaction.given


def fence(transaction: Transaction, *, remember: bool = False) -> EndTransaction:
    """Return the command that aborts an open transaction under a new epoch, which fences its producer.

    With `remember_epoch`, a producer that sends its old epoch receives the new one.
    """
    return EndTransaction(
        transaction.transactional_id,
        transaction.index,
        False,
        min(transaction.producer_epoch + 1, EPOCH_MAX),
        UNTOLD_MS,
        transaction.producer_id if remember else NO_PRODUCER,
        transaction.producer_epoch if remember else NO_PRODUCER,
    )


def complete(transaction: Transaction) -> CompleteTransaction:
    """Return the command that completes a transaction whose markers are all written."""
    return CompleteTransaction(transaction.transactional_id, transaction.index, UNTOLD_MS)


def is_exhausted(epoch: int) -> bool:
    """Return whether a producer id has no epoch left for another producer."""
    return epoch >= EPOCH_MAX - 1


# --- InitProducerId ---------------------------------------------------------------------------------------------------


def _init(request: InitAsked, transaction: Transaction | None) -> Outcome:
    if transaction is None:
        return _assign_producer(request, None)
    has_epoch = request.producer_id != NO_PRODUCER
    is_current = (request.producer_id, request.producer_epoch) == (transaction.producer_id, transaction.producer_epoch)
    is_repeated = has_epoch and (request.producer_id, request.producer_epoch) == _last_producer(transaction)
    if has_epoch and not is_current and not is_repeated:
        return Given(ErrorCode.PRODUCER_FENCED)
    if transaction.state.is_prepared:
        return WAIT
    if transaction.state is TransactionState.ONGOING:
        # Only a producer without an epoch, or with the current one, may abort the open transaction.
        return Given(ErrorCode.PRODUCER_FENCED) if is_repeated else Write(fence(transaction, remember=has_epoch), None)
    if is_repeated and transaction.producer_epoch < EPOCH_MAX:
        return Given(ErrorCode.NONE, transaction.producer_id, transaction.producer_epoch)
    return _assign_producer(request, transaction)


def _assign_producer(request: InitAsked, transaction: Transaction | None) -> Outcome:
    """Assign the next epoch, or epoch 0 of a new producer id."""
    remember = transaction is not None
    if transaction is not None and not is_exhausted(transaction.producer_epoch):
        given = Given(ErrorCode.NONE, transaction.producer_id, transaction.producer_epoch + 1)
    elif request.fresh_producer_id == NO_PRODUCER:
        return NEEDS_PRODUCER_ID
    else:
        given = Given(ErrorCode.NONE, request.fresh_producer_id, 0)
    return Write(
        InitTransaction(
            "" if transaction is None else transaction.transactional_id,
            NOT_SEEN if transaction is None else transaction.index,
            given.producer_id,
            given.producer_epoch,
            request.timeout_ms,
            UNTOLD_MS,
            request.producer_id if remember else NO_PRODUCER,
            request.producer_epoch if remember else NO_PRODUCER,
        ),
        given,
    )


def _last_producer(transaction: Transaction) -> tuple[int, int]:
    return transaction.last_producer_id, transaction.last_epoch


# --- AddPartitionsToTxn, AddOffsetsToTxn ------------------------------------------------------------------------------


def _add(request: AddAsked, transaction: Transaction | None) -> Outcome:
    error_code = _producer_error(request, transaction)
    if transaction is None or error_code is not None:
        return Given(error_code or ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    if transaction.state.is_prepared:
        return WAIT
    done = Given(ErrorCode.NONE, transaction.producer_id, transaction.producer_epoch)
    partitions, groups = request.partitions, request.groups
    if transaction.state is TransactionState.ONGOING:
        known = set(transaction.partitions)
        partitions = tuple(each for each in partitions if each not in known)
        groups = tuple(each for each in groups if each not in transaction.groups)
        if not partitions and not groups:
            return done
    if len(transaction.partitions) + len(partitions) > PARTITIONS_PER_TRANSACTION_MAX:
        return Given(ErrorCode.INVALID_REQUEST)
    if len(transaction.groups) + len(groups) > GROUPS_PER_TRANSACTION_MAX:
        return Given(ErrorCode.INVALID_REQUEST)
    change = AddToTransaction(transaction.transactional_id, transaction.index, partitions, groups, UNTOLD_MS)
    return Write(change, done)


def _producer_error(request: AddAsked | EndAsked, transaction: Transaction | None) -> ErrorCode | None:
    """Return the error of a request with the wrong producer id or epoch, or None."""
    if transaction is None or request.producer_id != transaction.producer_id:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    return None if request.producer_epoch == transaction.producer_epoch else ErrorCode.PRODUCER_FENCED


# --- EndTxn -----------------------------------------------------------------------------------------------------------


def _end(request: EndAsked, transaction: Transaction | None) -> Outcome:
    # In transactions version 2, the previous epoch distinguishes a repeated EndTxn from one of the next transaction.
    if transaction is not None and request.bump and _is_repeated(request, transaction):
        return _repeat_result(request, transaction)
    error_code = _producer_error(request, transaction)
    if transaction is None or error_code is not None:
        return Given(error_code or ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    if transaction.state is TransactionState.ONGOING:
        return _end_ongoing(request, transaction)
    if not request.bump:
        return _repeat_result(request, transaction)
    if request.commit:
        return Given(ErrorCode.INVALID_TXN_STATE)
    return WAIT if transaction.state.is_prepared else _end_ongoing(request, transaction)


def _is_repeated(request: EndAsked, transaction: Transaction) -> bool:
    return _is_decided(transaction) and (request.producer_id, request.producer_epoch) == _last_producer(transaction)


def _is_decided(transaction: Transaction) -> bool:
    return transaction.state not in (TransactionState.EMPTY, TransactionState.ONGOING)


def _repeat_result(request: EndAsked, transaction: Transaction) -> Given:
    """Return the result of the first EndTxn for a repeated one."""
    if not _is_decided(transaction) or transaction.state.commits != request.commit:
        return Given(ErrorCode.INVALID_TXN_STATE)
    return Given(ErrorCode.NONE, *transaction.given)


def _end_ongoing(request: EndAsked, transaction: Transaction) -> Outcome:
    """Commit or abort the transaction; with `bump_epoch`, also assign the producer its next epoch."""
    change = EndTransaction(
        transaction.transactional_id,
        transaction.index,
        request.commit,
        transaction.producer_epoch,
        UNTOLD_MS,
        transaction.last_producer_id,
        transaction.last_epoch,
    )
    if not request.bump:
        return Write(change, Given(ErrorCode.NONE, transaction.producer_id, transaction.producer_epoch))
    new_producer_id = NO_PRODUCER
    if is_exhausted(transaction.producer_epoch):
        new_producer_id = request.fresh_producer_id
        if new_producer_id == NO_PRODUCER:
            return NEEDS_PRODUCER_ID
    change = replace(
        change,
        producer_epoch=transaction.producer_epoch + 1,
        last_producer_id=transaction.producer_id,
        last_epoch=transaction.producer_epoch,
        next_producer_id=new_producer_id,
    )
    given = (new_producer_id, 0) if new_producer_id != NO_PRODUCER else (transaction.producer_id, change.producer_epoch)
    return Write(change, Given(ErrorCode.NONE, *given))
