"""Who is let in by the leader, and when: members on another disk, one at a time, and never while the old one works."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import pytest

from chronik.controller.membership import Admissions, JoinRequest
from chronik.metadata.commands.brokers import BrokerStatus
from chronik.metadata.records import Broker
from chronik.quorum.outcomes import OutcomeUnknown, ProposalRefused
from chronik.raft.events import Refusal
from chronik.raft.membership import UNBOUND, AddLearner, Change, Member, Membership, PromoteLearner
from chronik.raft.roles import Role

OLD, NEW, OTHER = bytes([1] * 16), bytes([2] * 16), bytes([3] * 16)


@dataclass
class Leader:
    """As much of a driver as admissions see."""

    seat: bytes = OLD
    is_voter: bool = True
    role: Role = Role.LEADER
    last_index: int = 9
    match: int = 0
    failure: Exception | None = None
    changes: list[Change] = field(default_factory=list)

    @property
    def transport(self) -> Any:
        return SimpleNamespace(calls=SimpleNamespace(register=lambda kind, handler: None))

    @property
    def status(self) -> Any:
        members = Membership((Member(1, OTHER, is_voter=True), Member(3, self.seat, self.is_voter)))
        return SimpleNamespace(
            role=self.role, membership=members, membership_index=7, last_index=self.last_index, matches={3: self.match}
        )

    async def change_membership(self, change: Change, timeout: float) -> None:
        self.changes.append(change)
        if self.failure is not None:
            raise self.failure


def admissions(leader: Leader, broker_directory: bytes | None = None, *, online: bool = False) -> Admissions:
    status = BrokerStatus.ONLINE if online else BrokerStatus.OFFLINE
    brokers = {}
    if broker_directory is not None:
        brokers[3] = Broker(3, "localhost", 9092, None, status, 5, bytes(16), broker_directory)
    store = SimpleNamespace(image=SimpleNamespace(brokers=brokers, cluster_id="one"))
    return Admissions(cast(Any, store), cast(Any, leader))


def join(admitting: Admissions, directory: bytes = NEW, peer: int = 3) -> bool:
    """What the asking node is told: whether there is a cluster."""
    return asyncio.run(admitting.answer(peer, JoinRequest(directory))).knows_cluster


def test_a_member_on_another_disk_becomes_a_learner_there() -> None:
    for broker in (None, OLD, OTHER):
        leader = Leader()
        assert join(admissions(leader, broker))
        assert leader.changes == [AddLearner(3, NEW)]


def test_a_seat_whose_disk_is_at_work_is_not_given_away() -> None:
    leader = Leader()
    assert join(admissions(leader, OLD, online=True))
    assert leader.changes == []


def test_nothing_changes_for_members_on_their_disk_seats_never_taken_and_strangers() -> None:
    for seat, peer in ((NEW, 3), (UNBOUND, 3), (OLD, 4)):
        leader = Leader(seat=seat)
        assert join(admissions(leader), peer=peer)
        assert leader.changes == []


def test_only_the_leader_lets_in_and_all_tell_of_the_cluster_they_know() -> None:
    follower = Leader(role=Role.FOLLOWER)
    assert join(admissions(follower))
    assert follower.changes == []

    empty = admissions(Leader(role=Role.FOLLOWER, last_index=0))
    assert not join(empty)
    empty.has_heard_of_cluster = True
    assert join(empty)


@pytest.mark.parametrize("failure", [ProposalRefused(Refusal.CHANGE_PENDING), OutcomeUnknown("no majority")])
def test_what_is_not_done_now_is_asked_for_again(failure: Exception) -> None:
    leader = Leader(failure=failure)
    admitting = admissions(leader)
    assert join(admitting)
    leader.failure = None
    assert join(admitting)
    assert leader.changes == [AddLearner(3, NEW)] * 2


def test_a_learner_votes_once_it_holds_the_membership_that_let_it_in() -> None:
    leader = Leader(seat=NEW, is_voter=False, match=6)
    admitting = admissions(leader)
    asyncio.run(admitting.promote_learners())
    assert leader.changes == []
    leader.match = 7
    asyncio.run(admitting.promote_learners())
    assert leader.changes == [PromoteLearner(3)]


def test_voters_are_not_promoted() -> None:
    leader = Leader(match=9)
    asyncio.run(admissions(leader).promote_learners())
    assert leader.changes == []


def test_a_disk_of_another_cluster_is_never_let_in() -> None:
    leader = Leader()
    answer = asyncio.run(admissions(leader).answer(3, JoinRequest(NEW, "another")))
    assert (answer.cluster_id, answer.leads) == ("one", True)
    assert leader.changes == []
    asyncio.run(admissions(leader).answer(3, JoinRequest(NEW, "one")))
    assert leader.changes == [AddLearner(3, NEW)]
