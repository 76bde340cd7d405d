"""The state machine of one transactional id. It decides requests one after the other, based on the metadata image.

The transaction itself is stored in the image only. The machine knows the pending store operation, the waiting requests
and the next deadline, so another coordinator can continue at any time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from chronik.coordination.machine import (
    CoordinatorChanged,
    ExecuteAction,
    Instruction,
    StateDeleted,
    StateMachineEvent,
    StateMachineReply,
    StateStored,
    StateStoreFailed,
    StoreState,
    Unload,
)
from chronik.errors import check_invariant
from chronik.metadata.commands.transactions import InitTransaction
from chronik.metadata.records import Transaction, TransactionState
from chronik.protocol.errors import ErrorCode
from chronik.transactions.config import COMPLETION_DELAY_MS, MARKER_WAIT_MS_MAX, STORE_RETRY_MS
from chronik.transactions.decisions import (
    AddToTransactionRequested,
    EndTransactionRequested,
    InitProducerRequested,
    MarkersWritten,
    StoreDecision,
    TimeoutRequested,
    TransactionRequested,
    TransactionResult,
    WaitDecision,
    build_completion,
    build_fencing_abort,
    decide_request,
)

REQUEST_BYTES = 500
"""Approximate memory use in bytes of a waiting request, without its list of partitions."""


class WriteMarkersAction(NamedTuple):
    """An action that writes a transaction's commit or abort markers, followed by the event `MarkersWritten`."""

    transaction: Transaction


class _PendingStore(NamedTuple):
    """A transaction change that is being stored, and the producer request that caused it, if any."""

    write: StoreDecision
    request: TransactionRequested | None


class TransactionMachine:
    """The state machine of one transactional id, which processes its producer's requests in order."""

    def __init__(
        self,
        key: str,
        epoch: int,
        read_transaction: Callable[[], Transaction | None],
        now_ms: int,
        deadline_ms: int | None,
    ) -> None:
        """Create the state machine of a transactional id.

        `read_transaction` reads the transaction from the image; `deadline_ms` is when an open one times out.
        """
        self.key = key
        self.epoch = epoch
        self._read_transaction = read_transaction
        self._deadline_ms = deadline_ms
        self._deadline_began_index = -1
        """Metadata log index at which the transaction started to which `_deadline_ms` applies."""
        self._retry_at_ms: int | None = now_ms
        """Earliest time to write markers, or to complete or abort the transaction. None means that there is no
        delay."""
        self._queue: deque[TransactionRequested] = deque()
        self._pending_store: _PendingStore | None = None
        self._ticket = 0
        self._markers_requested_index = -1
        self._markers_written_index = -1
        """Metadata log index of the latest commit or abort whose transaction markers have all been written."""
        self._is_dead = False

    # --- the interface of the host ---

    @property
    def wake_at_ms(self) -> int | None:
        if self._is_dead or self._pending_store is not None:
            return None  # the store confirms the pending change by an event
        own_wake_ms = self._deadline_ms if self._retry_at_ms is None else self._retry_at_ms
        request_expiry_ms = self._queue[0].now_ms + MARKER_WAIT_MS_MAX if self._queue else None
        return min((at_ms for at_ms in (own_wake_ms, request_expiry_ms) if at_ms is not None), default=None)

    @property
    def memory_bytes(self) -> int:
        return len(self._queue) * REQUEST_BYTES

    @property
    def is_idle(self) -> bool:
        return not self._queue and self._pending_store is None

    def handle(self, event: StateMachineEvent) -> Sequence[Instruction]:
        if self._is_dead:
            return ()
        instructions: list[Instruction] = []
        match event:
            case InitProducerRequested() | AddToTransactionRequested() | EndTransactionRequested():
                self._queue.append(event)
            case StateStored():
                instructions += self._on_stored(event)
            case StateStoreFailed():
                instructions += self._on_store_failed(event)
            case MarkersWritten():
                self._markers_written_index = event.index
                self._retry_at_ms = event.now_ms + COMPLETION_DELAY_MS
            case TimeoutRequested():
                self._deadline_ms = event.now_ms
            case CoordinatorChanged():
                return self._unload_machine(ErrorCode.NOT_COORDINATOR)
            case StateDeleted():
                return self._unload_machine(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        instructions += self._expire_waiting_requests(event.now_ms)
        instructions += self._advance_machine(event.now_ms)
        return instructions

    # --- events ---

    def _on_stored(self, event: StateStored) -> list[Instruction]:
        """Reply to the producer whose transaction change has been stored."""
        write, request = self._pop_pending_store(event.ticket)
        self._retry_at_ms = None
        if request is None or write.result is None:
            return []
        self._queue.popleft()
        return [StateMachineReply(request.waiter, write.result)]

    def _on_store_failed(self, event: StateStoreFailed) -> list[Instruction]:
        """Reject the request whose change could not be stored, or evaluate it again if another command came first."""
        _, request = self._pop_pending_store(event.ticket)
        if event.error is ErrorCode.CONCURRENT_TRANSACTIONS:
            return []  # another command changed the transaction first: decide the request again
        self._retry_at_ms = event.now_ms + STORE_RETRY_MS
        if request is None:
            return []
        self._queue.popleft()
        return [StateMachineReply(request.waiter, TransactionResult(event.error))]

    def _pop_pending_store(self, ticket: int) -> _PendingStore:
        pending = self._pending_store
        check_invariant(
            pending is not None and ticket == self._ticket, f"ticket {ticket} of {self.key!r} is not pending"
        )
        assert pending is not None
        self._pending_store = None
        return pending

    def _expire_waiting_requests(self, now_ms: int) -> list[Instruction]:
        """Reject requests that have waited too long for transaction markers, unless a change is being stored."""
        instructions: list[Instruction] = []
        while self._queue and self._pending_store is None and self._queue[0].now_ms + MARKER_WAIT_MS_MAX <= now_ms:
            instructions.append(
                StateMachineReply(self._queue.popleft().waiter, TransactionResult(ErrorCode.CONCURRENT_TRANSACTIONS))
            )
        return instructions

    def _unload_machine(self, error: ErrorCode) -> list[Instruction]:
        """Reject all waiting requests and unload the machine."""
        self._is_dead = True
        return [*(StateMachineReply(request.waiter, TransactionResult(error)) for request in self._queue), Unload()]

    # --- the next step ---

    def _advance_machine(self, now_ms: int) -> list[Instruction]:
        """Advance the current transaction, then process queued requests until one has to wait."""
        instructions: list[Instruction] = []
        while self._pending_store is None:
            transaction = self._read_transaction()
            self._update_timeout_deadline(transaction, now_ms)
            if transaction is not None:
                instructions += self._advance_transaction(transaction, now_ms)
            if self._pending_store is not None or not self._queue:
                break
            request = self._queue[0]
            is_marked = transaction is not None and self._has_written_markers(transaction)
            outcome = decide_request(
                request, transaction.with_markers_written() if transaction is not None and is_marked else transaction
            )
            if isinstance(outcome, WaitDecision):
                break
            if isinstance(outcome, StoreDecision):
                instructions.append(self._store_change(outcome.with_completion() if is_marked else outcome, request))
            else:
                self._queue.popleft()
                instructions.append(StateMachineReply(request.waiter, outcome))
        if self.is_idle and self._is_transaction_idle():
            instructions += self._unload_machine(ErrorCode.NONE)  # the image has the complete state
        return instructions

    def _update_timeout_deadline(self, transaction: Transaction | None, now_ms: int) -> None:
        """Set the transaction's timeout if a new transaction has started, or clear it if no transaction is open."""
        if transaction is None or transaction.state is not TransactionState.ONGOING:
            self._deadline_ms = None
        elif self._deadline_began_index != transaction.began_index:
            if self._deadline_began_index >= 0 or self._deadline_ms is None:
                self._deadline_ms = now_ms + transaction.timeout_ms
            self._deadline_began_index = transaction.began_index

    def _advance_transaction(self, transaction: Transaction, now_ms: int) -> list[Instruction]:
        """Abort the transaction if it has timed out, write its markers, or complete it. No request is needed."""
        if self._retry_at_ms is not None and now_ms < self._retry_at_ms:
            return []
        self._retry_at_ms = None
        if transaction.state is TransactionState.ONGOING:
            if self._deadline_ms is not None and self._deadline_ms <= now_ms:
                return [self._store_change(StoreDecision(build_fencing_abort(transaction), None), None)]
        elif transaction.state.is_prepared:
            if self._has_written_markers(transaction):
                # A waiting request completes the transaction with its own command.
                return (
                    []
                    if self._queue
                    else [self._store_change(StoreDecision(build_completion(transaction), None), None)]
                )
            if self._markers_requested_index != transaction.index:
                self._markers_requested_index = transaction.index
                return [ExecuteAction(WriteMarkersAction(transaction))]
        return []

    def _has_written_markers(self, transaction: Transaction) -> bool:
        return transaction.state.is_prepared and self._markers_written_index == transaction.index

    def _is_transaction_idle(self) -> bool:
        transaction = self._read_transaction()
        return transaction is None or transaction.state.is_idle

    def _store_change(self, write: StoreDecision, request: TransactionRequested | None) -> StoreState:
        if isinstance(write.change, InitTransaction):
            write = write._replace(change=replace(write.change, transactional_id=self.key))
        self._pending_store = _PendingStore(write, request)
        self._ticket += 1
        return StoreState(self._ticket, write)
