from __future__ import annotations

import asyncio

import pytest

from chronik.quorum.outcomes import (
    CommittedPosition,
    DriverStopped,
    NotLeader,
    OutcomeUnknown,
    ProposalLost,
    ProposalRejected,
    ReadTimedOut,
)
from chronik.quorum.waiters import AppliedWaiters, RequestWaiters, Waiter, WaiterKind
from chronik.raft.entries import EntryKind, RaftEntry
from chronik.raft.events import ReadIndexConfirmed, RejectionReason, RequestAccepted, RequestRejected
from tests.peers.helpers import run


def entry(index: int, term: int) -> RaftEntry:
    return RaftEntry(index, term, EntryKind.COMMAND, b"")


def outcome(waiter: Waiter) -> object:
    assert waiter.future.done(), "the waiter has no outcome"
    error = waiter.future.exception()
    return type(error) if error is not None else waiter.future.result()


def is_empty(waiters: RequestWaiters) -> bool:
    return not (waiters._open or waiters._by_index or waiters._waiting_for_disk or waiters._by_deadline)


def test_proposal_completes_when_its_entry_is_applied() -> None:
    async def scenario() -> None:
        waiters = RequestWaiters()
        first, second = waiters.add(WaiterKind.APPLIED, 100), waiters.add(WaiterKind.APPLIED, 100)
        waiters.complete(RequestAccepted(first.context, 2, 5))
        waiters.complete(RequestAccepted(second.context, 2, 8))
        waiters.complete_applied_requests([entry(5, 2), entry(6, 2), entry(7, 2)])
        assert outcome(first) == CommittedPosition(5, 2)
        assert not second.future.done()
        waiters.complete_applied_requests([entry(8, 2)])
        assert outcome(second) == CommittedPosition(8, 2)
        assert is_empty(waiters)

    run(scenario())


def test_only_committed_one_of_two_proposals_at_same_index_completes() -> None:
    """A leader lost its term and was elected again: its first proposal may still be the one that is committed."""

    async def scenario() -> None:
        for winner, ends in (
            (2, (CommittedPosition(5, 2), ProposalLost)),
            (4, (ProposalLost, CommittedPosition(5, 4))),
        ):
            waiters = RequestWaiters()
            first, second = waiters.add(WaiterKind.APPLIED, 100), waiters.add(WaiterKind.APPLIED, 100)
            waiters.complete(RequestAccepted(first.context, 2, 5))
            waiters.complete(RequestAccepted(second.context, 4, 5))
            waiters.complete_applied_requests([entry(5, winner)])
            assert (outcome(first), outcome(second)) == ends
            assert is_empty(waiters)

    run(scenario())


def test_disk_and_majority_waiters_may_share_an_index() -> None:
    async def scenario() -> None:
        waiters = RequestWaiters()
        written, applied = waiters.add(WaiterKind.WRITTEN, 100), waiters.add(WaiterKind.APPLIED, 100)
        waiters.complete(RequestAccepted(written.context, 2, 5))
        waiters.complete(RequestAccepted(applied.context, 4, 5))
        waiters.complete_written_requests(4, lambda index: 2)
        assert not written.future.done()
        waiters.complete_written_requests(5, lambda index: 4)
        assert outcome(written) is ProposalLost
        assert not applied.future.done()
        waiters.complete_applied_requests([entry(5, 4)])
        assert outcome(applied) == CommittedPosition(5, 4)
        assert is_empty(waiters)

    run(scenario())


def test_rejection_raises_not_leader_or_proposal_rejected() -> None:
    async def scenario() -> None:
        waiters = RequestWaiters()
        first, second = waiters.add(WaiterKind.APPLIED, 100), waiters.add(WaiterKind.APPLIED, 100)
        waiters.complete(RequestRejected(first.context, RejectionReason.NOT_LEADER, 3))
        waiters.complete(RequestRejected(second.context, RejectionReason.OVERLOADED, 1))
        with pytest.raises(NotLeader) as not_leader:
            await first.future
        assert not_leader.value.leader == 3
        with pytest.raises(ProposalRejected) as refused:
            await second.future
        assert refused.value.reason is RejectionReason.OVERLOADED
        assert is_empty(waiters)

    run(scenario())


def test_waiters_expire_at_their_deadlines() -> None:
    async def scenario() -> None:
        waiters = RequestWaiters()
        early, late = waiters.add(WaiterKind.APPLIED, 10.0), waiters.add(WaiterKind.APPLIED, 20.0)
        read = waiters.add(WaiterKind.READ, 10.0)
        waiters.complete(RequestAccepted(early.context, 1, 5))
        waiters.expire_requests(9.9)
        assert not early.future.done()
        waiters.expire_requests(10.3)
        assert (outcome(early), outcome(read)) == (OutcomeUnknown, ReadTimedOut)
        assert not late.future.done()
        waiters.complete(ReadIndexConfirmed(read.context, 7))  # a late outcome is ignored
        waiters.complete_applied_requests([entry(5, 1)])
        waiters.expire_requests(20.3)
        assert outcome(late) is OutcomeUnknown
        assert is_empty(waiters)

    run(scenario())


def test_entry_skipped_by_snapshot_has_unknown_outcome() -> None:
    async def scenario() -> None:
        waiters = RequestWaiters()
        before, behind = waiters.add(WaiterKind.APPLIED, 100), waiters.add(WaiterKind.APPLIED, 100)
        waiters.complete(RequestAccepted(before.context, 1, 5))
        waiters.complete(RequestAccepted(behind.context, 1, 9))
        waiters.fail_skipped_requests(8)
        assert outcome(before) is OutcomeUnknown
        waiters.complete_applied_requests([entry(9, 1)])
        assert outcome(behind) == CommittedPosition(9, 1)

    run(scenario())


def test_cancelled_waiter_is_removed() -> None:
    async def scenario() -> None:
        waiters = RequestWaiters()
        waiter = waiters.add(WaiterKind.APPLIED, 10.0)
        waiters.complete(RequestAccepted(waiter.context, 1, 5))
        waiter.future.cancel()
        waiters.complete_applied_requests([entry(5, 1)])
        assert is_empty(waiters)

    run(scenario())


def test_waiters_beyond_limit_are_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        monkeypatch.setattr("chronik.quorum.waiters.WAITERS_MAX", 3)
        waiters, applied = RequestWaiters(), AppliedWaiters()
        held = [waiters.add(WaiterKind.READ, 100) for _ in range(3)]
        with pytest.raises(ProposalRejected):
            waiters.add(WaiterKind.READ, 100)
        waiting = [asyncio.create_task(applied.wait(5, 10)) for _ in range(3)]
        await asyncio.sleep(0)
        with pytest.raises(ProposalRejected):
            await applied.wait(5, 10)
        waiters.fail_all(DriverStopped("stop"))
        assert {outcome(waiter) for waiter in held} == {DriverStopped}
        applied.advance_applied_index(5)
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
            applied.advance_applied_index(index)
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        await asyncio.gather(*tasks)
        assert order == [3, 5, 7]
        await applied.wait(9, 0)
        with pytest.raises(OutcomeUnknown):
            await applied.wait(10, 0.01)

    run(scenario())
