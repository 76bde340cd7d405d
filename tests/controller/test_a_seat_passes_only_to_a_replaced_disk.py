"""Who is let in by the leader, and when: members on another disk, one at a time, and never while the old one works."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import pytest

from chronik.controller.membership import STEPS_AT_ONCE_MAX, Admissions, JoinAnswer, JoinRequest, unnoted_members
from chronik.metadata import levels
from chronik.metadata.commands.brokers import BrokerStatus
from chronik.metadata.commands.cluster import UpdateNode
from chronik.metadata.records import Broker, Node
from chronik.quorum.outcomes import OutcomeUnknown, ProposalRefused
from chronik.quorum.peer_times import PeerTime
from chronik.raft.events import Refusal
from chronik.raft.membership import UNBOUND, AddLearner, Change, Member, Membership, PromoteLearner, RemoveNode
from chronik.raft.roles import Role

AT_GROWTH = {levels.FEATURE: levels.GROWTH}
NODES = {1: Node(1, "one", 5001, True), 3: Node(3, "three", 5003, True)}
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
        calls = SimpleNamespace(register=lambda kind, handler: None)
        return SimpleNamespace(calls=calls, gone_seconds=self.gone_seconds.get)

    node_id: int = 1
    gone_seconds: dict[int, float] = field(default_factory=lambda: {3: 0.0})

    @property
    def status(self) -> Any:
        members = Membership((Member(1, OTHER, is_voter=True), Member(3, self.seat, self.is_voter)))
        return SimpleNamespace(
            role=self.role,
            membership=members,
            membership_index=7,
            last_index=self.last_index,
            matches={3: self.match},
            peer_times={3: PeerTime(99.5, 99.5, 9)},
            now=100.0,
            connected=(3,),
        )

    async def change_membership(self, change: Change, timeout: float) -> None:
        self.changes.append(change)
        if self.failure is not None:
            raise self.failure


@dataclass
class Store:
    image: Any
    proposed: list[Any] = field(default_factory=list)

    async def propose(self, command: Any, *, only_here: bool) -> None:
        assert only_here
        self.proposed.append(command)


def admissions(
    leader: Leader,
    broker_directory: bytes | None = None,
    *,
    online: bool = False,
    nodes: dict[int, Node] | None = None,
) -> Admissions:
    """With `nodes` the cluster is at the level from which on they say who belongs to it."""
    status = BrokerStatus.ONLINE if online else BrokerStatus.OFFLINE
    brokers = {}
    if broker_directory is not None:
        brokers[3] = Broker(3, "localhost", 9092, None, status, 5, bytes(16), broker_directory)
    store = Store(
        SimpleNamespace(brokers=brokers, cluster_id="one", nodes=nodes or {}, features=AT_GROWTH if nodes else {})
    )
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
    asyncio.run(admitting.reconcile())
    assert leader.changes == []
    leader.match = 7
    asyncio.run(admitting.reconcile())
    assert leader.changes == [PromoteLearner(3)]


def test_voters_are_not_promoted() -> None:
    leader = Leader(match=9)
    asyncio.run(admissions(leader).reconcile())
    assert leader.changes == []


def test_a_disk_of_another_cluster_is_never_let_in() -> None:
    leader = Leader()
    answer = asyncio.run(admissions(leader).answer(3, JoinRequest(NEW, "another")))
    assert (answer.cluster_id, answer.leads) == ("one", True)
    assert leader.changes == []
    asyncio.run(admissions(leader).answer(3, JoinRequest(NEW, "one")))
    assert leader.changes == [AddLearner(3, NEW)]


# From level 3 on the image says who belongs to the cluster


def asked(admitting: Admissions, peer: int, *where: Any) -> JoinAnswer:
    return asyncio.run(admitting.answer(peer, JoinRequest(NEW, "", *where)))


def test_a_node_that_was_added_is_let_in_and_one_that_was_not_is_told_so() -> None:
    leader = Leader()
    answer = asked(admissions(leader, nodes=NODES), 4)
    assert (answer.is_expected, answer.knows_cluster, answer.leads) == (False, True, True)
    assert answer.nodes == ((1, "one", 5001), (3, "three", 5003)), "it may be added soon, and needs to know"
    assert leader.changes == []
    answer = asked(admissions(leader, nodes=NODES | {4: Node(4, "four", 5004, False)}), 4, "four", 5004)
    assert answer.is_expected
    assert leader.changes == [AddLearner(4, NEW)]


def test_a_member_that_was_removed_gets_no_other_disk() -> None:
    leader = Leader()
    assert not asked(admissions(leader, nodes={1: NODES[1]}), 3).is_expected
    assert leader.changes == []


def test_below_that_level_nobody_is_unexpected_and_nobody_is_added() -> None:
    leader = Leader()
    assert asked(admissions(leader), 4).is_expected
    assert leader.changes == []


def test_below_that_level_nobody_is_told_where_nodes_were_once() -> None:
    admitting = admissions(Leader(), nodes=NODES)
    cast(Any, admitting._store).image.features = {levels.FEATURE: levels.GROWTH - 1}
    assert asked(admitting, 3).nodes == ()


def test_a_member_that_asks_from_elsewhere_has_moved() -> None:
    leader = Leader(seat=NEW)
    for where, moved in (
        (("three", 5003), []),
        ((), []),
        (("elsewhere", 5003), [UpdateNode(3, "elsewhere", 5003)]),
    ):
        admitting = admissions(leader, nodes=NODES)
        asked(admitting, 3, *where)
        assert cast(Any, admitting._store).proposed == moved
    intruder = admissions(Leader(seat=OLD), OLD, online=True, nodes=NODES)
    asked(intruder, 3, "elsewhere", 5003)
    assert cast(Any, intruder._store).proposed == [], "the seat's disk is at work where it was"


def test_only_who_is_meant_to_vote_does() -> None:
    for meant in (True, False):
        leader = Leader(seat=NEW, is_voter=False, match=7)
        nodes = NODES | {3: Node(3, "three", 5003, meant)}
        asyncio.run(admissions(leader, nodes=nodes).reconcile())
        assert leader.changes == ([PromoteLearner(3)] * STEPS_AT_ONCE_MAX if meant else []), "this leader forgets"


def test_whoever_is_gone_is_not_counted_on_though_it_was_heard_a_moment_ago() -> None:
    leader = Leader(seat=NEW, is_voter=False, match=7, gone_seconds={3: 0.1})
    asyncio.run(admissions(leader, nodes=NODES).reconcile())
    assert leader.changes == []


def test_a_broker_that_was_not_noted_before_the_level_was_raised_is_noted_and_not_removed() -> None:
    members = Membership((Member(1, OTHER, is_voter=True), Member(3, OLD, is_voter=True)))
    image = cast(Any, admissions(Leader(), OLD, nodes={1: NODES[1]})._store).image
    assert [member.node_id for member in unnoted_members(image, members)] == [3]
    leader = Leader()
    asyncio.run(admissions(leader, OLD, nodes={1: NODES[1]}).reconcile())
    assert leader.changes == []
    image.brokers.clear()
    assert unnoted_members(image, members) == [], "it was removed"
    asyncio.run(admissions(leader, nodes={1: NODES[1]}).reconcile())
    assert RemoveNode(3) in leader.changes
