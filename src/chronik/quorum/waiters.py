"""Pending requests to the Raft core. Each ends with its outcome, at its deadline, or when the node stops."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from enum import Enum
from heapq import heappop, heappush
from typing import Any, Final

import msgspec

from chronik.quorum.outcomes import (
    CommittedPosition,
    NotLeader,
    OutcomeUnknown,
    ProposalLost,
    ProposalRejected,
    ReadTimedOut,
)
from chronik.raft.entries import RaftEntry
from chronik.raft.events import ReadIndexConfirmed, RejectionReason, RequestAccepted, RequestRejected

WAITERS_MAX: Final = 50_000
"""The maximum number of pending proposals and reads of a node. Above this limit, further requests are rejected."""

DEADLINE_RESOLUTION_SECONDS: Final = 0.1
"""The interval in seconds to which deadlines are rounded up, so that requests expire together without own timers."""


class WaiterKind(Enum):
    """The event that completes a pending request to the Raft driver."""

    APPLIED = "applied"
    """The entry is committed and applied on this node."""
    WRITTEN = "written"
    """The entry is written to this node's disk."""
    TRANSFER = "transfer"
    READ = "read"


class Waiter(msgspec.Struct, eq=False):
    """A pending request to the Raft driver, with the future for its result."""

    context: int
    kind: WaiterKind
    deadline_bucket: int
    future: asyncio.Future[Any]
    term: int = 0
    index: int = 0
    """The log index of the request's entry, once the Raft leader has appended it."""


class RequestWaiters(msgspec.Struct):
    """The pending proposals, reads and leadership transfers of a Raft driver."""

    _next_context: int = 1
    _open: dict[int, Waiter] = msgspec.field(default_factory=dict)
    _by_index: dict[int, list[Waiter]] = msgspec.field(default_factory=dict)
    """The accepted proposals by the log index of their entry.

    An index may have several requests: a leader that was deposed and elected again may have appended another entry at
    the same index, and it is not yet known which entry is committed.
    """
    _waiting_for_disk: dict[int, Waiter] = msgspec.field(default_factory=dict)
    """The proposals that wait until their entry is written to the local disk, by request id (context)."""
    _by_deadline: dict[int, set[Waiter]] = msgspec.field(default_factory=dict)
    _expired_bucket: int = 0

    def __len__(self) -> int:
        return len(self._open)

    def add(self, kind: WaiterKind, deadline: float) -> Waiter:
        """Add a pending request. Raise ProposalRejected if too many requests are pending."""
        if len(self._open) >= WAITERS_MAX:
            raise ProposalRejected(RejectionReason.OVERLOADED)
        bucket = int(deadline / DEADLINE_RESOLUTION_SECONDS) + 1
        waiter = Waiter(self._next_context, kind, bucket, asyncio.get_running_loop().create_future())
        self._next_context += 1
        self._open[waiter.context] = waiter
        self._by_deadline.setdefault(bucket, set()).add(waiter)
        return waiter

    # -------------------------------------------------------------------------------------------------------- outcomes

    def complete(self, outcome: RequestAccepted | RequestRejected | ReadIndexConfirmed) -> None:
        waiter = self._open.get(outcome.context)
        if waiter is None:
            return  # the request has expired
        if isinstance(outcome, RequestRejected):
            not_leader = outcome.reason is RejectionReason.NOT_LEADER
            self._fail(waiter, NotLeader(outcome.leader) if not_leader else ProposalRejected(outcome.reason))
        elif isinstance(outcome, ReadIndexConfirmed):
            self._complete_waiter(waiter, outcome.index)
        elif waiter.kind is WaiterKind.TRANSFER:
            self._complete_waiter(waiter, None)
        else:
            waiter.term = outcome.term
            waiter.index = outcome.first_index
            if waiter.kind is WaiterKind.WRITTEN:
                self._waiting_for_disk[waiter.context] = waiter
            else:
                self._by_index.setdefault(waiter.index, []).append(waiter)

    def complete_written_requests(self, index: int, term_at: Callable[[int], int | None]) -> None:
        """Complete the requests that wait for the local disk, after entries up to `index` have been written."""
        if not self._waiting_for_disk:
            return
        done = [waiter for waiter in self._waiting_for_disk.values() if waiter.index <= index]
        for waiter in done:
            if term_at(waiter.index) == waiter.term:
                self._complete_waiter(waiter, CommittedPosition(waiter.index, waiter.term))
            else:
                self._fail(waiter, ProposalLost(f"entry {waiter.index} was replaced by one of another term"))

    def complete_applied_requests(self, entries: Iterable[RaftEntry]) -> None:
        if not self._by_index:
            return
        for entry in entries:
            for waiter in self._by_index.pop(entry.index, ()):
                if waiter.term == entry.term:
                    self._complete_waiter(waiter, CommittedPosition(entry.index, entry.term))
                else:
                    self._fail(waiter, ProposalLost(f"entry {entry.index} was replaced by one of term {entry.term}"))

    def fail_skipped_requests(self, index: int) -> None:
        """Fail the proposals whose entries are covered by a restored snapshot, because their outcome is unknown."""
        for skipped in [each for each in self._by_index if each <= index]:
            for waiter in self._by_index.pop(skipped):
                self._fail(waiter, OutcomeUnknown("a snapshot replaced the log entry before it was applied"))

    def expire_requests(self, now: float) -> None:
        bucket = int(now / DEADLINE_RESOLUTION_SECONDS)
        if bucket == self._expired_bucket:
            return
        self._expired_bucket = bucket
        for due in [each for each in self._by_deadline if each <= bucket]:
            for waiter in list(self._by_deadline.get(due, ())):
                is_read = waiter.kind is WaiterKind.READ
                self._fail(
                    waiter,
                    ReadTimedOut("no leader confirmed the read in time") if is_read else OutcomeUnknown("timed out"),
                )

    def fail_all(self, error: Exception) -> None:
        for waiter in list(self._open.values()):
            self._fail(waiter, error)
        self._by_index.clear()
        self._waiting_for_disk.clear()

    def _complete_waiter(self, waiter: Waiter, result: object) -> None:
        self._remove_waiter(waiter)
        if not waiter.future.done():
            waiter.future.set_result(result)

    def _fail(self, waiter: Waiter, error: Exception) -> None:
        self._remove_waiter(waiter)
        if not waiter.future.done():
            waiter.future.set_exception(error)

    def _remove_waiter(self, waiter: Waiter) -> None:
        self._open.pop(waiter.context, None)
        self._waiting_for_disk.pop(waiter.context, None)
        same_index = self._by_index.get(waiter.index, [])
        if waiter in same_index:  # requests that wait for the disk are not in this dict
            same_index.remove(waiter)
            if not same_index:
                del self._by_index[waiter.index]
        bucket = self._by_deadline.get(waiter.deadline_bucket)
        if bucket is not None:
            bucket.discard(waiter)
            if not bucket:
                del self._by_deadline[waiter.deadline_bucket]


class AppliedWaiters:
    """The callers that wait until the state machine has applied the log up to an index."""

    def __init__(self) -> None:
        self.index = 0
        self._waiting: list[tuple[int, int, asyncio.Future[None]]] = []
        self._count = 0

    def advance_applied_index(self, index: int) -> None:
        self.index = index
        while self._waiting and self._waiting[0][0] <= index:
            answer = heappop(self._waiting)[2]
            if not answer.done():
                answer.set_result(None)

    async def wait(self, index: int, timeout: float) -> None:
        """Wait until the entry at `index` is applied. Raise OutcomeUnknown or, at the limit, ProposalRejected."""
        if index <= self.index:
            return
        if len(self._waiting) >= WAITERS_MAX:
            raise ProposalRejected(RejectionReason.OVERLOADED)
        answer: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._count += 1
        heappush(self._waiting, (index, self._count, answer))
        try:
            async with asyncio.timeout(timeout):
                await answer
        except TimeoutError:
            raise OutcomeUnknown(f"index {index} was not applied on this node within {timeout:g} s") from None

    def fail_all(self, error: Exception) -> None:
        for _, _, answer in self._waiting:
            if not answer.done():
                answer.set_exception(error)
        self._waiting.clear()
