"""Requests for a transactional id and the decisions about them: a result, a change to store first, or a wait.

The decisions are pure functions. The rules are Kafka's (`TransactionCoordinator`, KIP-360, KIP-890), with two
differences: a request that arrives while markers are being written waits for them, and a repeated EndTxn returns the
result of the first one.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from msgspec.structs import replace

from chronik.coordination.machine import StateMachineEvent, StateMachineRequest
from chronik.metadata.commands.envelope import Command
from chronik.metadata.commands.transactions import (
    NO_PRODUCER_ID,
    NO_RECORD_INDEX,
    AddToTransaction,
    CompleteTransaction,
    EndTransaction,
    InitTransaction,
    TransactionPartition,
)
from chronik.metadata.records import Transaction, TransactionState
from chronik.protocol.errors import ErrorCode
from chronik.transactions.config import GROUPS_PER_TRANSACTION_MAX, PARTITIONS_PER_TRANSACTION_MAX, PRODUCER_EPOCH_MAX

UNSET_TIME_MS: Final = -1
"""Placeholder for the wall-clock time in a metadata command. The time is set when the command is proposed."""

TransactionChange = InitTransaction | AddToTransaction | EndTransaction | CompleteTransaction


class TransactionResult(NamedTuple):
    """The result of a transactional request: an error code, and the producer id and epoch for further requests."""

    error: ErrorCode
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_PRODUCER_ID
    needs_producer_id: bool = False
    """Whether the request changed nothing and must be repeated with a newly allocated producer id."""


class InitProducerRequested(StateMachineRequest, frozen=True):
    """An InitProducerId request from a producer. With a producer id and epoch, it must not fence a newer producer."""

    timeout_ms: int
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_PRODUCER_ID
    fresh_producer_id: int = NO_PRODUCER_ID


class AddToTransactionRequested(StateMachineRequest, frozen=True):
    """An AddPartitionsToTxn or AddOffsetsToTxn request from a producer."""

    producer_id: int
    producer_epoch: int
    partitions: tuple[TransactionPartition, ...] = ()
    groups: tuple[str, ...] = ()


class EndTransactionRequested(StateMachineRequest, frozen=True):
    """An EndTxn request from a producer."""

    producer_id: int
    producer_epoch: int
    commit: bool
    bump_epoch: bool
    """Whether the producer gets a new epoch for each transaction (transactions version 2)."""
    fresh_producer_id: int = NO_PRODUCER_ID


class MarkersWritten(StateMachineEvent, frozen=True):
    """An event: all transaction markers of the commit or abort at this metadata log index have been written."""

    index: int


class TimeoutRequested(StateMachineEvent, frozen=True):
    """An event: a client test has requested to abort the open transaction, as if its timeout had expired."""


TransactionRequested = InitProducerRequested | AddToTransactionRequested | EndTransactionRequested


PRODUCER_ID_REQUIRED: Final = TransactionResult(ErrorCode.NONE, needs_producer_id=True)
"""The result of a request that the coordinator must repeat with a newly allocated producer id."""


class StoreDecision(NamedTuple):
    """A decision to store a transaction change. With a `result` of None, the request is evaluated again afterwards."""

    change: TransactionChange
    result: TransactionResult | None

    def with_completion(self) -> StoreDecision:
        """Return a decision whose command also completes the previous transaction."""
        if isinstance(self.change, CompleteTransaction):
            return self
        return self._replace(change=replace(self.change, is_marked=True))

    def to_command(self, epoch: int, time_ms: int) -> Command:
        """Return the metadata command that stores the change."""
        return replace(self.change, coordinator_epoch=epoch, time_ms=time_ms)


class WaitDecision(NamedTuple):
    """A decision that a request waits until the previous transaction's markers are written."""


WAIT_FOR_MARKERS: Final = WaitDecision()

RequestDecision = TransactionResult | StoreDecision | WaitDecision


def decide_request(request: TransactionRequested, transaction: Transaction | None) -> RequestDecision:
    """Evaluate a producer's request against the current state of its transaction."""
    if transaction is not None and _uses_next_producer_id(request, transaction):
        return WAIT_FOR_MARKERS
    match request:
        case InitProducerRequested():
            return _decide_init_producer(request, transaction)
        case AddToTransactionRequested():
            return _add(request, transaction)
        case EndTransactionRequested():
            return _end(request, transaction)


def _uses_next_producer_id(request: TransactionRequested, transaction: Transaction) -> bool:
    """Return whether the request uses the new producer id that becomes valid when the transaction is completed.

    The producer received the new id when the transaction was committed or aborted. The record contains it only after
    the markers, which use the old id, have been written.
    """
    has_next_id = transaction.state.is_prepared and transaction.next_producer_id != NO_PRODUCER_ID
    return has_next_id and (request.producer_id, request.producer_epoch) == transaction.next_producer


def build_fencing_abort(transaction: Transaction, *, remember_epoch: bool = False) -> EndTransaction:
    """Return the command that aborts an open transaction under a new epoch, which fences its producer.

    With `remember_epoch`, a producer that sends the old epoch receives the new epoch.
    """
    return EndTransaction(
        transaction.transactional_id,
        transaction.index,
        False,
        min(transaction.producer_epoch + 1, PRODUCER_EPOCH_MAX),
        UNSET_TIME_MS,
        transaction.producer_id if remember_epoch else NO_PRODUCER_ID,
        transaction.producer_epoch if remember_epoch else NO_PRODUCER_ID,
    )


def build_completion(transaction: Transaction) -> CompleteTransaction:
    """Return the command that completes a transaction whose markers are all written."""
    return CompleteTransaction(transaction.transactional_id, transaction.index, UNSET_TIME_MS)


def is_epoch_exhausted(epoch: int) -> bool:
    """Return whether a producer id has reached its last epoch, so that a new producer id must be assigned."""
    return epoch >= PRODUCER_EPOCH_MAX - 1


# --- InitProducerId ---------------------------------------------------------------------------------------------------


def _decide_init_producer(request: InitProducerRequested, transaction: Transaction | None) -> RequestDecision:
    if transaction is None:
        return _assign_producer(request, None)
    has_epoch = request.producer_id != NO_PRODUCER_ID
    is_current = (request.producer_id, request.producer_epoch) == (transaction.producer_id, transaction.producer_epoch)
    is_repeated = has_epoch and (request.producer_id, request.producer_epoch) == _get_last_producer(transaction)
    if has_epoch and not is_current and not is_repeated:
        return TransactionResult(ErrorCode.PRODUCER_FENCED)
    if transaction.state.is_prepared:
        return WAIT_FOR_MARKERS
    if transaction.state is TransactionState.ONGOING:
        # Only a producer without an epoch, or with the current one, may abort the open transaction.
        return (
            TransactionResult(ErrorCode.PRODUCER_FENCED)
            if is_repeated
            else StoreDecision(build_fencing_abort(transaction, remember_epoch=has_epoch), None)
        )
    if is_repeated and transaction.producer_epoch < PRODUCER_EPOCH_MAX:
        return TransactionResult(ErrorCode.NONE, transaction.producer_id, transaction.producer_epoch)
    return _assign_producer(request, transaction)


def _assign_producer(request: InitProducerRequested, transaction: Transaction | None) -> RequestDecision:
    """Assign the producer its next epoch, or a new producer id with epoch 0 if no epoch is left."""
    remember = transaction is not None
    if transaction is not None and not is_epoch_exhausted(transaction.producer_epoch):
        given = TransactionResult(ErrorCode.NONE, transaction.producer_id, transaction.producer_epoch + 1)
    elif request.fresh_producer_id == NO_PRODUCER_ID:
        return PRODUCER_ID_REQUIRED
    else:
        given = TransactionResult(ErrorCode.NONE, request.fresh_producer_id, 0)
    return StoreDecision(
        InitTransaction(
            "" if transaction is None else transaction.transactional_id,
            NO_RECORD_INDEX if transaction is None else transaction.index,
            given.producer_id,
            given.producer_epoch,
            request.timeout_ms,
            UNSET_TIME_MS,
            request.producer_id if remember else NO_PRODUCER_ID,
            request.producer_epoch if remember else NO_PRODUCER_ID,
        ),
        given,
    )


def _get_last_producer(transaction: Transaction) -> tuple[int, int]:
    return transaction.last_producer_id, transaction.last_epoch


# --- AddPartitionsToTxn, AddOffsetsToTxn ------------------------------------------------------------------------------


def _add(request: AddToTransactionRequested, transaction: Transaction | None) -> RequestDecision:
    error_code = _find_producer_error(request, transaction)
    if transaction is None or error_code is not None:
        return TransactionResult(error_code or ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    if transaction.state.is_prepared:
        return WAIT_FOR_MARKERS
    done = TransactionResult(ErrorCode.NONE, transaction.producer_id, transaction.producer_epoch)
    partitions, groups = request.partitions, request.groups
    if transaction.state is TransactionState.ONGOING:
        known = set(transaction.partitions)
        partitions = tuple(each for each in partitions if each not in known)
        groups = tuple(each for each in groups if each not in transaction.groups)
        if not partitions and not groups:
            return done
    if len(transaction.partitions) + len(partitions) > PARTITIONS_PER_TRANSACTION_MAX:
        return TransactionResult(ErrorCode.INVALID_REQUEST)
    if len(transaction.groups) + len(groups) > GROUPS_PER_TRANSACTION_MAX:
        return TransactionResult(ErrorCode.INVALID_REQUEST)
    change = AddToTransaction(transaction.transactional_id, transaction.index, partitions, groups, UNSET_TIME_MS)
    return StoreDecision(change, done)


def _find_producer_error(
    request: AddToTransactionRequested | EndTransactionRequested, transaction: Transaction | None
) -> ErrorCode | None:
    """Return the error of a request with the wrong producer id or epoch, or None."""
    if transaction is None or request.producer_id != transaction.producer_id:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    return None if request.producer_epoch == transaction.producer_epoch else ErrorCode.PRODUCER_FENCED


# --- EndTxn -----------------------------------------------------------------------------------------------------------


def _end(request: EndTransactionRequested, transaction: Transaction | None) -> RequestDecision:
    # In transactions version 2, the previous epoch distinguishes a repeated EndTxn from one of the next transaction.
    if transaction is not None and request.bump_epoch and _is_repeated_end_request(request, transaction):
        return _build_repeated_result(request, transaction)
    error_code = _find_producer_error(request, transaction)
    if transaction is None or error_code is not None:
        return TransactionResult(error_code or ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    if transaction.state is TransactionState.ONGOING:
        return _end_open_transaction(request, transaction)
    if not request.bump_epoch:
        return _build_repeated_result(request, transaction)
    if request.commit:
        return TransactionResult(ErrorCode.INVALID_TXN_STATE)
    return WAIT_FOR_MARKERS if transaction.state.is_prepared else _end_open_transaction(request, transaction)


def _is_repeated_end_request(request: EndTransactionRequested, transaction: Transaction) -> bool:
    return _is_outcome_decided(transaction) and (request.producer_id, request.producer_epoch) == _get_last_producer(
        transaction
    )


def _is_outcome_decided(transaction: Transaction) -> bool:
    return transaction.state not in (TransactionState.EMPTY, TransactionState.ONGOING)


def _build_repeated_result(request: EndTransactionRequested, transaction: Transaction) -> TransactionResult:
    """Return the result of a repeated EndTxn request: the same as that of the original request."""
    if not _is_outcome_decided(transaction) or transaction.state.is_commit != request.commit:
        return TransactionResult(ErrorCode.INVALID_TXN_STATE)
    return TransactionResult(ErrorCode.NONE, *transaction.next_producer)


def _end_open_transaction(request: EndTransactionRequested, transaction: Transaction) -> RequestDecision:
    """Commit or abort the transaction; with `bump_epoch`, also assign the producer its next epoch."""
    change = EndTransaction(
        transaction.transactional_id,
        transaction.index,
        request.commit,
        transaction.producer_epoch,
        UNSET_TIME_MS,
        transaction.last_producer_id,
        transaction.last_epoch,
    )
    if not request.bump_epoch:
        return StoreDecision(
            change, TransactionResult(ErrorCode.NONE, transaction.producer_id, transaction.producer_epoch)
        )
    new_producer_id = NO_PRODUCER_ID
    if is_epoch_exhausted(transaction.producer_epoch):
        new_producer_id = request.fresh_producer_id
        if new_producer_id == NO_PRODUCER_ID:
            return PRODUCER_ID_REQUIRED
    change = replace(
        change,
        producer_epoch=transaction.producer_epoch + 1,
        last_producer_id=transaction.producer_id,
        last_epoch=transaction.producer_epoch,
        next_producer_id=new_producer_id,
    )
    given = (
        (new_producer_id, 0) if new_producer_id != NO_PRODUCER_ID else (transaction.producer_id, change.producer_epoch)
    )
    return StoreDecision(change, TransactionResult(ErrorCode.NONE, *given))
