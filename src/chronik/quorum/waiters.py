"""Those who wait for an outcome. Every wait ends: by the outcome, by its deadline, or by the end of the node."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from enum import Enum
from heapq import heappop, heappush
from typing import Any, Final

import msgspec

from chronik.quorum.outcomes import Committed, NotLeader, OutcomeUnknown, ProposalLost, ProposalRefused, ReadTimedOut
from chronik.raft.entries import Entry
from chronik.raft.events import Accepted, ReadConfirmed, Refusal, Refused

WAITING_MAX: Final = 50_000
"""Proposals and reads under way. With more of them the cluster does not keep up, and waiting longer helps nobody."""

DEADLINE_GRAIN_SECONDS: Final = 0.1
"""How often deadlines are looked at, all of a grain together: a timer for each would cost more than the proposal."""


class Kind(Enum):
    APPLIED = "applied"
    """Ends when its entry is applied here."""
    WRITTEN = "written"
    """Ends when its entry is on this disk."""
    TRANSFER = "transfer"
    READ = "read"


class Waiter(msgspec.Struct, eq=False):
    context: int
    kind: Kind
    grain: int
    answer: asyncio.Future[Any]
    term: int = 0
    index: int = 0
    """The index of its entry, once it is accepted."""


class Waiters(msgspec.Struct):
    _next_context: int = 1
    _open: dict[int, Waiter] = msgspec.field(default_factory=dict)
    _by_index: dict[int, list[Waiter]] = msgspec.field(default_factory=dict)
    """Accepted ones by the index of their entry. More than one: a leader that lost its term, and was elected
    again, may have put another entry in the same place, and which of them stays is not known yet."""
    _to_be_written: dict[int, Waiter] = msgspec.field(default_factory=dict)
    """Those that wait for the disk, by context."""
    _by_grain: dict[int, set[Waiter]] = msgspec.field(default_factory=dict)
    _grain_checked: int = 0

    def __len__(self) -> int:
        return len(self._open)

    def open(self, kind: Kind, deadline: float) -> Waiter:
        """Raises ProposalRefused when too many wait already."""
        if len(self._open) >= WAITING_MAX:
            raise ProposalRefused(Refusal.OVERLOADED)
        grain = int(deadline / DEADLINE_GRAIN_SECONDS) + 1
        waiter = Waiter(self._next_context, kind, grain, asyncio.get_running_loop().create_future())
        self._next_context += 1
        self._open[waiter.context] = waiter
        self._by_grain.setdefault(grain, set()).add(waiter)
        return waiter

    # -------------------------------------------------------------------------------------------------------- outcomes

    def take(self, outcome: Accepted | Refused | ReadConfirmed) -> None:
        waiter = self._open.get(outcome.context)
        if waiter is None:
            return  # its time was up
        if isinstance(outcome, Refused):
            not_leader = outcome.refusal is Refusal.NOT_LEADER
            self._fail(waiter, NotLeader(outcome.leader) if not_leader else ProposalRefused(outcome.refusal))
        elif isinstance(outcome, ReadConfirmed):
            self._end(waiter, outcome.index)
        elif waiter.kind is Kind.TRANSFER:
            self._end(waiter, None)
        else:
            waiter.term = outcome.term
            waiter.index = outcome.first_index
            if waiter.kind is Kind.WRITTEN:
                self._to_be_written[waiter.context] = waiter
            else:
                self._by_index.setdefault(waiter.index, []).append(waiter)

    def written(self, index: int, term_at: Callable[[int], int | None]) -> None:
        """Ends those who wait for the disk: everything up to `index` is on it."""
        if not self._to_be_written:
            return
        done = [waiter for waiter in self._to_be_written.values() if waiter.index <= index]
        for waiter in done:
            if term_at(waiter.index) == waiter.term:
                self._end(waiter, Committed(waiter.index, waiter.term))
            else:
                self._fail(waiter, ProposalLost(f"entry {waiter.index} is of another term"))

    def applied(self, entries: Iterable[Entry]) -> None:
        if not self._by_index:
            return
        for entry in entries:
            for waiter in self._by_index.pop(entry.index, ()):
                if waiter.term == entry.term:
                    self._end(waiter, Committed(entry.index, entry.term))
                else:
                    self._fail(waiter, ProposalLost(f"entry {entry.index} is of term {entry.term}"))

    def restored(self, index: int) -> None:
        """Ends those whose entries a snapshot has jumped over: nobody can tell what stood there."""
        for passed in [each for each in self._by_index if each <= index]:
            for waiter in self._by_index.pop(passed):
                self._fail(waiter, OutcomeUnknown("a snapshot took the place of the log"))

    def expire(self, now: float) -> None:
        grain = int(now / DEADLINE_GRAIN_SECONDS)
        if grain == self._grain_checked:
            return
        self._grain_checked = grain
        for due in [each for each in self._by_grain if each <= grain]:
            for waiter in list(self._by_grain.get(due, ())):
                is_read = waiter.kind is Kind.READ
                self._fail(waiter, ReadTimedOut("no leader in time") if is_read else OutcomeUnknown("not in time"))

    def fail_all(self, error: Exception) -> None:
        for waiter in list(self._open.values()):
            self._fail(waiter, error)
        self._by_index.clear()
        self._to_be_written.clear()

    def _end(self, waiter: Waiter, result: object) -> None:
        self._forget(waiter)
        if not waiter.answer.done():
            waiter.answer.set_result(result)

    def _fail(self, waiter: Waiter, error: Exception) -> None:
        self._forget(waiter)
        if not waiter.answer.done():
            waiter.answer.set_exception(error)

    def _forget(self, waiter: Waiter) -> None:
        self._open.pop(waiter.context, None)
        self._to_be_written.pop(waiter.context, None)
        same_place = self._by_index.get(waiter.index, [])
        if waiter in same_place:  # those that wait for the disk are kept elsewhere
            same_place.remove(waiter)
            if not same_place:
                del self._by_index[waiter.index]
        grain = self._by_grain.get(waiter.grain)
        if grain is not None:
            grain.discard(waiter)
            if not grain:
                del self._by_grain[waiter.grain]


class AppliedWaiters:
    """Those who wait until the local state has got as far as an index."""

    def __init__(self) -> None:
        self.index = 0
        self._waiting: list[tuple[int, int, asyncio.Future[None]]] = []
        self._count = 0

    def reached(self, index: int) -> None:
        self.index = index
        while self._waiting and self._waiting[0][0] <= index:
            answer = heappop(self._waiting)[2]
            if not answer.done():
                answer.set_result(None)

    async def wait(self, index: int, timeout: float) -> None:
        """Raises OutcomeUnknown when that takes longer than `timeout`, ProposalRefused when too many wait."""
        if index <= self.index:
            return
        if len(self._waiting) >= WAITING_MAX:
            raise ProposalRefused(Refusal.OVERLOADED)
        answer: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._count += 1
        heappush(self._waiting, (index, self._count, answer))
        try:
            async with asyncio.timeout(timeout):
                await answer
        except TimeoutError:
            raise OutcomeUnknown(f"index {index} is not applied here within {timeout:g} s") from None

    def fail_all(self, error: Exception) -> None:
        for _, _, answer in self._waiting:
            if not answer.done():
                answer.set_exception(error)
        self._waiting.clear()
