"""One transactional id at its coordinator: questions are decided one after the other, upon what the image holds.

The machine keeps no state of the transaction beside the image: it knows what it has on its way to the store, who waits,
and when something is due. So whoever takes up the id next knows as much.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from chronik.coordination.machine import (
    Act,
    Dropped,
    Event,
    Forget,
    Instruction,
    Reply,
    Store,
    Stored,
    StoreFailed,
    TakenOver,
)
from chronik.errors import invariant
from chronik.metadata.commands.transactions import InitTransaction
from chronik.metadata.records import Transaction, TransactionState
from chronik.protocol.errors import ErrorCode
from chronik.transactions.config import COMPLETED_AFTER_MS, RETRY_MS, WAIT_MS_MAX
from chronik.transactions.decisions import Wait, Write, complete, decide, fence
from chronik.transactions.events import AddAsked, Asked, EndAsked, Given, InitAsked, MarkersWritten, TimeIsUp

QUESTION_BYTES = 500
"""Roughly what one that waits takes, besides the partitions in it."""


class WriteMarkers(NamedTuple):
    """Every partition of a decided transaction must be told of it. `MarkersWritten` is fed back when all have been."""

    transaction: Transaction


class _UnderWay(NamedTuple):
    """A change on its way to the store, and the question that it answers, if any."""

    write: Write
    asked: Asked | None


class TransactionMachine:
    def __init__(
        self, key: str, epoch: int, look: Callable[[], Transaction | None], now_ms: int, deadline_ms: int | None
    ) -> None:
        """`look` returns what the image holds; `deadline_ms` is when an open transaction is aborted."""
        self.key = key
        self.epoch = epoch
        self._look = look
        self._deadline_ms = deadline_ms
        self._deadline_of = -1
        """The transaction that has this deadline, by the index at which it began."""
        self._retry_at_ms: int | None = now_ms
        """When to look again whether there is something to do: at first at once."""
        self._queue: deque[Asked] = deque()
        self._under_way: _UnderWay | None = None
        self._ticket = 0
        self._marking = -1
        self._marked = -1
        """The decision whose markers are being written, or are written."""
        self._is_dead = False

    # --- what the driver sees ---

    @property
    def wake_at_ms(self) -> int | None:
        if self._is_dead or self._under_way is not None:
            return None  # what is under way comes back by itself
        own = self._deadline_ms if self._retry_at_ms is None else self._retry_at_ms
        waited = self._queue[0].now_ms + WAIT_MS_MAX if self._queue else None
        return min((at_ms for at_ms in (own, waited) if at_ms is not None), default=None)

    @property
    def memory_bytes(self) -> int:
        return len(self._queue) * QUESTION_BYTES

    @property
    def is_idle(self) -> bool:
        return not self._queue and self._under_way is None

    def handle(self, event: Event) -> Sequence[Instruction]:
        if self._is_dead:
            return ()
        done: list[Instruction] = []
        match event:
            case InitAsked() | AddAsked() | EndAsked():
                self._queue.append(event)
            case Stored():
                done += self._stored(event)
            case StoreFailed():
                done += self._store_failed(event)
            case MarkersWritten():
                self._marked = event.index
                self._retry_at_ms = event.now_ms + COMPLETED_AFTER_MS
            case TimeIsUp():
                self._deadline_ms = event.now_ms
            case TakenOver():
                return self._end(ErrorCode.NOT_COORDINATOR)
            case Dropped():
                return self._end(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        done += self._give_up_waits(event.now_ms)
        done += self._advance(event.now_ms)
        return done

    # --- what happens ---

    def _stored(self, event: Stored) -> list[Instruction]:
        write, asked = self._settle(event.ticket)
        self._retry_at_ms = None
        if asked is None or write.answer is None:
            return []
        self._queue.popleft()
        return [Reply(asked.waiter, write.answer)]

    def _store_failed(self, event: StoreFailed) -> list[Instruction]:
        _, asked = self._settle(event.ticket)
        if event.error is ErrorCode.CONCURRENT_TRANSACTIONS:
            return []  # something else came first: it is decided anew, upon what there is now
        self._retry_at_ms = event.now_ms + RETRY_MS
        if asked is None:
            return []
        self._queue.popleft()
        return [Reply(asked.waiter, Given(event.error))]

    def _settle(self, ticket: int) -> _UnderWay:
        under_way = self._under_way
        invariant(under_way is not None and ticket == self._ticket, f"ticket {ticket} of {self.key!r} is not under way")
        assert under_way is not None
        self._under_way = None
        return under_way

    def _give_up_waits(self, now_ms: int) -> list[Instruction]:
        """Answers those who have waited for markers too long. One whose change is under way is answered by that."""
        done: list[Instruction] = []
        while self._queue and self._under_way is None and self._queue[0].now_ms + WAIT_MS_MAX <= now_ms:
            done.append(Reply(self._queue.popleft().waiter, Given(ErrorCode.CONCURRENT_TRANSACTIONS)))
        return done

    def _end(self, error: ErrorCode) -> list[Instruction]:
        self._is_dead = True
        return [*(Reply(asked.waiter, Given(error)) for asked in self._queue), Forget()]

    # --- what is done next ---

    def _advance(self, now_ms: int) -> list[Instruction]:
        done: list[Instruction] = []
        while self._under_way is None:
            transaction = self._look()
            self._note_deadline(transaction, now_ms)
            if transaction is not None:
                done += self._own_step(transaction, now_ms)
            if self._under_way is not None or not self._queue:
                break
            asked = self._queue[0]
            is_marked = transaction is not None and self._has_its_markers(transaction)
            outcome = decide(asked, transaction.completed() if transaction is not None and is_marked else transaction)
            if isinstance(outcome, Wait):
                break
            if isinstance(outcome, Write):
                done.append(self._store(outcome.after_markers() if is_marked else outcome, asked))
            else:
                self._queue.popleft()
                done.append(Reply(asked.waiter, outcome))
        if self.is_idle and self._is_at_rest():
            done += self._end(ErrorCode.NONE)  # the image holds all there is to know
        return done

    def _note_deadline(self, transaction: Transaction | None, now_ms: int) -> None:
        """Whatever made a transaction begin: it may be a command whose outcome was not known in time."""
        if transaction is None or transaction.state is not TransactionState.ONGOING:
            self._deadline_ms = None
        elif self._deadline_of != transaction.began_index:
            if self._deadline_of >= 0 or self._deadline_ms is None:
                self._deadline_ms = now_ms + transaction.timeout_ms
            self._deadline_of = transaction.began_index

    def _own_step(self, transaction: Transaction, now_ms: int) -> list[Instruction]:
        """What it does by itself: it aborts what takes too long, and carries out what is decided."""
        if self._retry_at_ms is not None and now_ms < self._retry_at_ms:
            return []
        self._retry_at_ms = None
        if transaction.state is TransactionState.ONGOING:
            if self._deadline_ms is not None and self._deadline_ms <= now_ms:
                return [self._store(Write(fence(transaction), None), None)]
        elif transaction.state.is_prepared:
            if self._has_its_markers(transaction):
                # What somebody asks for meanwhile, or waits for, says so along with it.
                return [] if self._queue else [self._store(Write(complete(transaction), None), None)]
            if self._marking != transaction.index:
                self._marking = transaction.index
                return [Act(WriteMarkers(transaction))]
        return []

    def _has_its_markers(self, transaction: Transaction) -> bool:
        return transaction.state.is_prepared and self._marked == transaction.index

    def _is_at_rest(self) -> bool:
        transaction = self._look()
        return transaction is None or transaction.state.is_at_rest

    def _store(self, write: Write, asked: Asked | None) -> Store:
        if isinstance(write.change, InitTransaction):
            write = write._replace(change=replace(write.change, transactional_id=self.key))
        self._under_way = _UnderWay(write, asked)
        self._ticket += 1
        return Store(self._ticket, write)
