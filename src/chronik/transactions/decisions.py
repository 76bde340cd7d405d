"""What becomes of a question to a transactional id: an answer, a change to be stored first, or a wait. Pure.

The rules are Kafka's (`TransactionCoordinator`, KIP-360, KIP-890), but that a question which comes while markers are on
their way waits for them, and that a repeated EndTxn gets the first answer again.
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
"""The time of day is put into a command when it is proposed."""

NEEDS_PRODUCER_ID: Final = Given(ErrorCode.NONE, needs_producer_id=True)

Change = InitTransaction | AddToTransaction | EndTransaction | CompleteTransaction


class Write(NamedTuple):
    """A change has to be stored. Without an `answer` the question is then decided anew."""

    change: Change
    answer: Given | None

    def after_markers(self) -> Write:
        """Completes the last transaction, all of whose markers are written, with the same command."""
        if isinstance(self.change, CompleteTransaction):
            return self
        return self._replace(change=replace(self.change, is_marked=True))

    def as_command(self, epoch: int, time_ms: int) -> Command:
        return replace(self.change, coordinator_epoch=epoch, time_ms=time_ms)


class Wait(NamedTuple):
    """Markers are on their way."""


WAIT: Final = Wait()

Outcome = Given | Write | Wait


def decide(asked: Asked, transaction: Transaction | None) -> Outcome:
    if transaction is not None and _is_of_the_next_id(asked, transaction):
        return WAIT
    match asked:
        case InitAsked():
            return _init(asked, transaction)
        case AddAsked():
            return _add(asked, transaction)
        case EndAsked():
            return _end(asked, transaction)


def _is_of_the_next_id(asked: Asked, transaction: Transaction) -> bool:
    """Whether its producer goes on with the producer id that it was given when the transaction was decided: the record
    has it when the markers, which name the old one, are written."""
    is_changing = transaction.state.is_prepared and transaction.next_producer_id != NO_PRODUCER
    return is_changing and (asked.producer_id, asked.producer_epoch) == transaction.given


def fence(transaction: Transaction, *, remember: bool = False) -> EndTransaction:
    """Aborts an open transaction in the name of its coordinator, with an epoch that its producer does not have.
    `remember` lets a producer that names its old epoch have the new one."""
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
    return CompleteTransaction(transaction.transactional_id, transaction.index, UNTOLD_MS)


def is_exhausted(epoch: int) -> bool:
    return epoch >= EPOCH_MAX - 1


# --- InitProducerId ---------------------------------------------------------------------------------------------------


def _init(asked: InitAsked, transaction: Transaction | None) -> Outcome:
    if transaction is None:
        return _begin_anew(asked, None)
    has_epoch = asked.producer_id != NO_PRODUCER
    is_current = (asked.producer_id, asked.producer_epoch) == (transaction.producer_id, transaction.producer_epoch)
    is_repeated = has_epoch and (asked.producer_id, asked.producer_epoch) == _last(transaction)
    if has_epoch and not is_current and not is_repeated:
        return Given(ErrorCode.PRODUCER_FENCED)
    if transaction.state.is_prepared:
        return WAIT
    if transaction.state is TransactionState.ONGOING:
        # Only who comes without an epoch, or has this very one, may end what is open.
        return Given(ErrorCode.PRODUCER_FENCED) if is_repeated else Write(fence(transaction, remember=has_epoch), None)
    if is_repeated and transaction.producer_epoch < EPOCH_MAX:
        return Given(ErrorCode.NONE, transaction.producer_id, transaction.producer_epoch)
    return _begin_anew(asked, transaction)


def _begin_anew(asked: InitAsked, transaction: Transaction | None) -> Outcome:
    remember = transaction is not None
    if transaction is not None and not is_exhausted(transaction.producer_epoch):
        given = Given(ErrorCode.NONE, transaction.producer_id, transaction.producer_epoch + 1)
    elif asked.fresh_producer_id == NO_PRODUCER:
        return NEEDS_PRODUCER_ID
    else:
        given = Given(ErrorCode.NONE, asked.fresh_producer_id, 0)
    return Write(
        InitTransaction(
            "" if transaction is None else transaction.transactional_id,
            NOT_SEEN if transaction is None else transaction.index,
            given.producer_id,
            given.producer_epoch,
            asked.timeout_ms,
            UNTOLD_MS,
            asked.producer_id if remember else NO_PRODUCER,
            asked.producer_epoch if remember else NO_PRODUCER,
        ),
        given,
    )


def _last(transaction: Transaction) -> tuple[int, int]:
    return transaction.last_producer_id, transaction.last_epoch


# --- AddPartitionsToTxn, AddOffsetsToTxn ------------------------------------------------------------------------------


def _add(asked: AddAsked, transaction: Transaction | None) -> Outcome:
    refusal = _refusal(asked, transaction)
    if transaction is None or refusal is not None:
        return Given(refusal or ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    if transaction.state.is_prepared:
        return WAIT
    done = Given(ErrorCode.NONE, transaction.producer_id, transaction.producer_epoch)
    partitions, groups = asked.partitions, asked.groups
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


def _refusal(asked: AddAsked | EndAsked, transaction: Transaction | None) -> ErrorCode | None:
    if transaction is None or asked.producer_id != transaction.producer_id:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    return None if asked.producer_epoch == transaction.producer_epoch else ErrorCode.PRODUCER_FENCED


# --- EndTxn -----------------------------------------------------------------------------------------------------------


def _end(asked: EndAsked, transaction: Transaction | None) -> Outcome:
    # With an epoch for each transaction, the old one tells a repeated question from one for the next transaction.
    if transaction is not None and asked.bump and _is_repeated(asked, transaction):
        return _as_decided(asked, transaction)
    refusal = _refusal(asked, transaction)
    if transaction is None or refusal is not None:
        return Given(refusal or ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    if transaction.state is TransactionState.ONGOING:
        return _decide(asked, transaction)
    if not asked.bump:
        return _as_decided(asked, transaction)
    if asked.commit:
        return Given(ErrorCode.INVALID_TXN_STATE)
    return WAIT if transaction.state.is_prepared else _decide(asked, transaction)


def _is_repeated(asked: EndAsked, transaction: Transaction) -> bool:
    return _is_decided(transaction) and (asked.producer_id, asked.producer_epoch) == _last(transaction)


def _is_decided(transaction: Transaction) -> bool:
    return transaction.state not in (TransactionState.EMPTY, TransactionState.ONGOING)


def _as_decided(asked: EndAsked, transaction: Transaction) -> Given:
    if not _is_decided(transaction) or transaction.state.commits != asked.commit:
        return Given(ErrorCode.INVALID_TXN_STATE)
    return Given(ErrorCode.NONE, *transaction.given)


def _decide(asked: EndAsked, transaction: Transaction) -> Outcome:
    change = EndTransaction(
        transaction.transactional_id,
        transaction.index,
        asked.commit,
        transaction.producer_epoch,
        UNTOLD_MS,
        transaction.last_producer_id,
        transaction.last_epoch,
    )
    if not asked.bump:
        return Write(change, Given(ErrorCode.NONE, transaction.producer_id, transaction.producer_epoch))
    fresh = NO_PRODUCER
    if is_exhausted(transaction.producer_epoch):
        fresh = asked.fresh_producer_id
        if fresh == NO_PRODUCER:
            return NEEDS_PRODUCER_ID
    change = replace(
        change,
        producer_epoch=transaction.producer_epoch + 1,
        last_producer_id=transaction.producer_id,
        last_epoch=transaction.producer_epoch,
        next_producer_id=fresh,
    )
    given = (fresh, 0) if fresh != NO_PRODUCER else (transaction.producer_id, change.producer_epoch)
    return Write(change, Given(ErrorCode.NONE, *given))
