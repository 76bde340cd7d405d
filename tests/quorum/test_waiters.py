from __future__ import annotations

import asyncio

import pytest

from chronik.quorum.outcomes import (
    Committed,
    DriverStopped,
    NotLeader,
    OutcomeUnknown,
    ProposalLost,
    ProposalRefused,
    ReadTimedOut,
)
from chronik.quorum.waiters import AppliedWaiters, Kind, Waiter, Waiters
from chronik.raft.entries import Entry, EntryKind
from chronik.raft.events import Accepted, ReadConfirmed, Refusal, Refused
from tests.peers.talking import run


def entry(index: int, term: int) -> Entry:
    return Entry(index, term, EntryKind.COMMAND, b"")


def outcome(waiter: Waiter) -> object:
    assert waiter.answer.done(), "the waiter has no outcome"
    error = waiter.answer.exception()
    return type(error) if error is not None else waiter.answer.result()


def is_empty(waiters: Waiters) -> bool:
    return not (waiters._open or waiters._by_index or waiters._to_be_written or waiters._by_grain)


def test_proposal_completes_when_its_entry_is_applied() -> None:
    async def scenario() -> None:
        waiters = Waiters()
        first, second = waiters.open(Kind.APPLIED, 100), waiters.open(Kind.APPLIED, 100)
        waiters.take(Accepted(first.context, 2, 5))
        waiters.take(Accepted(second.context, 2, 8))
        waiters.applied([entry(5, 2), entry(6, 2), entry(7, 2)])
        assert outcome(first) == Committed(5, 2)
        assert not second.answer.done()
        waiters.applied([entry(8, 2)])
        assert outcome(second) == Committed(8, 2)
        assert is_empty(waiters)

    run(scenario())


def test_only_committed_one_of_two_proposals_at_same_index_completes() -> None:
    """A leader lost its term and was elected again: its first proposal may still be the one that is committed."""

    async def scenario() -> None:
        for winner, ends in ((2, (Committed(5, 2), ProposalLost)), (4, (ProposalLost, Committed(5, 4)))):
            waiters = Waiters()
            first, second = waiters.open(Kind.APPLIED, 100), waiters.open(Kind.APPLIED, 100)
            waiters.take(Accepted(first.context, 2, 5))
            waiters.take(Accepted(second.context, 4, 5))
            waiters.applied([entry(5, winner)])
            assert (outcome(first), outcome(second)) == ends
            assert is_empty(waiters)

    run(scenario())


def test_disk_and_majority_waiters_may_share_an_index() -> None:
    async def scenario() -> None:
        waiters = Waiters()
        written, applied = waiters.open(Kind.WRITTEN, 100), waiters.open(Kind.APPLIED, 100)
        waiters.take(Accepted(written.context, 2, 5))
        waiters.take(Accepted(applied.context, 4, 5))
        waiters.written(4, lambda index: 2)
        assert not written.answer.done()
        waiters.written(5, lambda index: 4)
        assert outcome(written) is ProposalLost
        assert not applied.answer.done()
        waiters.applied([entry(5, 4)])
        assert outcome(applied) == Committed(5, 4)
        assert is_empty(waiters)

    run(scenario())


def test_rejection_raises_not_leader_or_proposal_rejected() -> None:
    async def scenario() -> None:
        waiters = Waiters()
        first, second = waiters.open(Kind.APPLIED, 100), waiters.open(Kind.APPLIED, 100)
        waiters.take(Refused(first.context, Refusal.NOT_LEADER, 3))
        waiters.take(Refused(second.context, Refusal.OVERLOADED, 1))
        with pytest.raises(NotLeader) as not_leader:
            await first.answer
        assert not_leader.value.leader == 3
        with pytest.raises(ProposalRefused) as refused:
            await second.answer
        assert refused.value.refusal is Refusal.OVERLOADED
        assert is_empty(waiters)

    run(scenario())


def test_waiters_expire_at_their_deadlines() -> None:
    async def scenario() -> None:
        waiters = Waiters()
        early, late = waiters.open(Kind.APPLIED, 10.0), waiters.open(Kind.APPLIED, 20.0)
        read = waiters.open(Kind.READ, 10.0)
        waiters.take(Accepted(early.context, 1, 5))
        waiters.expire(9.9)
        assert not early.answer.done()
        waiters.expire(10.3)
        assert (outcome(early), outcome(read)) == (OutcomeUnknown, ReadTimedOut)
        assert not late.answer.done()
        waiters.take(ReadConfirmed(read.context, 7))  # a late outcome is ignored
        waiters.applied([entry(5, 1)])
        waiters.expire(20.3)
        assert outcome(late) is OutcomeUnknown
        assert is_empty(waiters)

    run(scenario())


def test_entry_skipped_by_snapshot_has_unknown_outcome() -> None:
    async def scenario() -> None:
        waiters = Waiters()
        before, behind = waiters.open(Kind.APPLIED, 100), waiters.open(Kind.APPLIED, 100)
        waiters.take(Accepted(before.context, 1, 5))
        waiters.take(Accepted(behind.context, 1, 9))
        waiters.restored(8)
        assert outcome(before) is OutcomeUnknown
        waiters.applied([entry(9, 1)])
        assert outcome(behind) == Committed(9, 1)

    run(scenario())


def test_cancelled_waiter_is_removed() -> None:
    async def scenario() -> None:
        waiters = Waiters()
        waiter = waiters.open(Kind.APPLIED, 10.0)
        waiters.take(Accepted(waiter.context, 1, 5))
        waiter.answer.cancel()
        waiters.applied([entry(5, 1)])
        assert is_empty(waiters)

    run(scenario())


def test_waiters_beyond_limit_are_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        monkeypatch.setattr("chronik.quorum.waiters.WAITING_MAX", 3)
        waiters, applied = Waiters(), AppliedWaiters()
        held = [waiters.open(Kind.READ, 100) for _ in range(3)]
        with pytest.raises(ProposalRefused):
            waiters.open(Kind.READ, 100)
        waiting = [asyncio.create_task(applied.wait(5, 10)) for _ in range(3)]
        await asyncio.sleep(0)
        with pytest.raises(ProposalRefused):
            await applied.wait(5, 10)
        waiters.fail_all(DriverStopped("stop"))
        assert {outcome(waiter) for waiter in held} == {DriverStopped}
        applied.reached(5)
        await asyncio.gather(*waiting)

    run(scenario())


def test_wait_for_applied_index_completes_or_times_out() -> None:
    async def scenario() -> None:
        applied = AppliedWaiters()
        order: list[int] = []

        async def wait(index: int) -> None:
            await applied.wait(index, 10)
            order.append(index)

        tasks = [asyncio.create_task(wait(index)) for index in (7, 3, 5)]
        await asyncio.sleep(0)
        for index in (4, 6, 9):
            applied.reached(index)
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        await asyncio.gather(*tasks)
        assert order == [3, 5, 7]
        await applied.wait(9, 0)
        with pytest.raises(OutcomeUnknown):
            await applied.wait(10, 0.01)

    run(scenario())
