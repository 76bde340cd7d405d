"""Admission by the leader: nodes with another directory, one at a time, and never while the old directory is in use."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import pytest

from chronik.controller.membership import (
    CHANGES_PER_CHECK_MAX,
    AdmissionRequest,
    AdmissionResponse,
    NodeAdmission,
    find_members_without_node_record,
)
from chronik.metadata import levels
from chronik.metadata.commands.brokers import BrokerStatus
from chronik.metadata.commands.cluster import UpdateNode
from chronik.metadata.records import Broker, NodeRecord
from chronik.peers.calls import PeerCalls
from chronik.peers.transport import PeerTransport
from chronik.quorum.outcomes import OutcomeUnknown, ProposalRejected
from chronik.quorum.peer_activity import PeerActivity
from chronik.quorum.settings import DriverStatus
from chronik.raft.events import RejectionReason
from chronik.raft.membership import (
    UNBOUND_DIRECTORY,
    AddLearner,
    Membership,
    MembershipChange,
    PromoteLearner,
    RaftMember,
    RemoveMember,
)
from chronik.raft.roles import Role

AT_GROWTH = {levels.FEATURE_NAME: levels.DYNAMIC_MEMBERSHIP_LEVEL}
NODES = {1: NodeRecord(1, "one", 5001, True), 3: NodeRecord(3, "three", 5003, True)}
OLD, NEW, OTHER = bytes([1] * 16), bytes([2] * 16), bytes([3] * 16)


class FakeTransport(PeerTransport):
    """A transport that reports how long peers have been down."""

    def __init__(self, seconds_down: dict[int, float]) -> None:
        self._seconds_down = seconds_down
        self.calls = PeerCalls(lambda peer, frame: False)  # type: ignore[misc]

    def down_seconds(self, peer: int) -> float:
        return self._seconds_down.get(peer, 0.0)


@dataclass
class Leader:
    """The part of a driver that node admission uses."""

    seat: bytes = OLD
    is_voter: bool = True
    role: Role = Role.LEADER
    last_index: int = 9
    match: int = 0
    failure: Exception | None = None
    changes: list[MembershipChange] = field(default_factory=list)

    node_id: int = 1
    seconds_down: dict[int, float] = field(default_factory=lambda: {3: 0.0})

    @property
    def transport(self) -> FakeTransport:
        return FakeTransport(self.seconds_down)

    @property
    def status(self) -> DriverStatus:
        members = Membership((RaftMember(1, OTHER, is_voter=True), RaftMember(3, self.seat, self.is_voter)))
        return DriverStatus(
            role=self.role,
            term=1,
            leader=1,
            first_index=1,
            last_index=self.last_index,
            durable_index=self.last_index,
            commit_index=self.last_index,
            applied_index=self.last_index,
            snapshot_index=0,
            membership=members,
            membership_index=7,
            match_indexes={3: self.match},
            peer_activity={3: PeerActivity(99.5, 99.5, 9)},
            now=100.0,
            connected=(3,),
            pending_requests=0,
        )

    async def change_membership(self, change: MembershipChange, timeout: float) -> None:
        self.changes.append(change)
        if self.failure is not None:
            raise self.failure


@dataclass
class Store:
    image: Any
    proposed: list[Any] = field(default_factory=list)

    async def propose(self, command: Any, *, local_only: bool) -> None:
        assert local_only
        self.proposed.append(command)


def make_admission(
    leader: Leader,
    broker_directory: bytes | None = None,
    *,
    online: bool = False,
    nodes: dict[int, NodeRecord] | None = None,
) -> NodeAdmission:
    """Create an admission. With `nodes`, the cluster is at the feature level from which node records are complete."""
    status = BrokerStatus.ONLINE if online else BrokerStatus.OFFLINE
    brokers = {}
    if broker_directory is not None:
        brokers[3] = Broker(3, "localhost", 9092, None, status, 5, bytes(16), broker_directory)
    store = Store(
        SimpleNamespace(brokers=brokers, cluster_id="one", nodes=nodes or {}, features=AT_GROWTH if nodes else {})
    )
    return NodeAdmission(cast(Any, store), cast(Any, leader))


def join(admission: NodeAdmission, directory: bytes = NEW, peer: int = 3) -> bool:
    """Request admission and return whether the response reports a cluster."""
    return asyncio.run(admission.handle_request(peer, AdmissionRequest(directory))).knows_cluster


def test_member_with_other_directory_becomes_learner() -> None:
    for broker in (None, OLD, OTHER):
        leader = Leader()
        assert join(make_admission(leader, broker))
        assert leader.changes == [AddLearner(3, NEW)]


def test_directory_in_use_is_not_replaced() -> None:
    leader = Leader()
    assert join(make_admission(leader, OLD, online=True))
    assert leader.changes == []


def test_same_directory_unbound_and_unknown_nodes_change_nothing() -> None:
    for seat, peer in ((NEW, 3), (UNBOUND_DIRECTORY, 3), (OLD, 4)):
        leader = Leader(seat=seat)
        assert join(make_admission(leader), peer=peer)
        assert leader.changes == []


def test_only_leader_admits_and_all_nodes_report_cluster() -> None:
    follower = Leader(role=Role.FOLLOWER)
    assert join(make_admission(follower))
    assert follower.changes == []

    empty = make_admission(Leader(role=Role.FOLLOWER, last_index=0))
    assert not join(empty)
    empty.has_seen_cluster = True
    assert join(empty)


@pytest.mark.parametrize("failure", [ProposalRejected(RejectionReason.CHANGE_PENDING), OutcomeUnknown("no majority")])
def test_failed_change_is_retried_on_next_request(failure: Exception) -> None:
    leader = Leader(failure=failure)
    admission = make_admission(leader)
    assert join(admission)
    leader.failure = None
    assert join(admission)
    assert leader.changes == [AddLearner(3, NEW)] * 2


def test_learner_is_promoted_after_it_has_membership() -> None:
    leader = Leader(seat=NEW, is_voter=False, match=6)
    admission = make_admission(leader)
    asyncio.run(admission.reconcile())
    assert leader.changes == []
    leader.match = 7
    asyncio.run(admission.reconcile())
    assert leader.changes == [PromoteLearner(3)]


def test_voter_is_not_promoted() -> None:
    leader = Leader(match=9)
    asyncio.run(make_admission(leader).reconcile())
    assert leader.changes == []


def test_directory_of_other_cluster_is_never_admitted() -> None:
    leader = Leader()
    answer = asyncio.run(make_admission(leader).handle_request(3, AdmissionRequest(NEW, "another")))
    assert (answer.cluster_id, answer.is_leader) == ("one", True)
    assert leader.changes == []
    asyncio.run(make_admission(leader).handle_request(3, AdmissionRequest(NEW, "one")))
    assert leader.changes == [AddLearner(3, NEW)]


# From feature level 3 on, the image contains all nodes of the cluster.


def request_admission(admission: NodeAdmission, peer: int, *address: Any) -> AdmissionResponse:
    return asyncio.run(admission.handle_request(peer, AdmissionRequest(NEW, "", *address)))


def test_only_added_nodes_are_admitted() -> None:
    leader = Leader()
    answer = request_admission(make_admission(leader, nodes=NODES), 4)
    assert (answer.is_expected, answer.knows_cluster, answer.is_leader) == (False, True, True)
    assert answer.nodes == ((1, "one", 5001), (3, "three", 5003)), "the node may be added later and needs the addresses"
    assert leader.changes == []
    answer = request_admission(
        make_admission(leader, nodes=NODES | {4: NodeRecord(4, "four", 5004, False)}), 4, "four", 5004
    )
    assert answer.is_expected
    assert leader.changes == [AddLearner(4, NEW)]


def test_removed_member_cannot_replace_directory() -> None:
    leader = Leader()
    assert not request_admission(make_admission(leader, nodes={1: NODES[1]}), 3).is_expected
    assert leader.changes == []


def test_below_level_3_all_nodes_are_expected_and_none_added() -> None:
    leader = Leader()
    assert request_admission(make_admission(leader), 4).is_expected
    assert leader.changes == []


def test_below_level_3_response_contains_no_addresses() -> None:
    admission = make_admission(Leader(), nodes=NODES)
    cast(Any, admission._store).image.features = {levels.FEATURE_NAME: levels.DYNAMIC_MEMBERSHIP_LEVEL - 1}
    assert request_admission(admission, 3).nodes == ()


def test_request_from_new_address_updates_node_record() -> None:
    leader = Leader(seat=NEW)
    for address, moved in (
        (("three", 5003), []),
        ((), []),
        (("elsewhere", 5003), [UpdateNode(3, "elsewhere", 5003)]),
    ):
        admission = make_admission(leader, nodes=NODES)
        request_admission(admission, 3, *address)
        assert cast(Any, admission._store).proposed == moved
    intruder = make_admission(Leader(seat=OLD), OLD, online=True, nodes=NODES)
    request_admission(intruder, 3, "elsewhere", 5003)
    assert cast(Any, intruder._store).proposed == [], "the member's directory is in use elsewhere"


def test_only_intended_voters_are_promoted() -> None:
    for meant in (True, False):
        leader = Leader(seat=NEW, is_voter=False, match=7)
        nodes = NODES | {3: NodeRecord(3, "three", 5003, meant)}
        asyncio.run(make_admission(leader, nodes=nodes).reconcile())
        assert leader.changes == ([PromoteLearner(3)] * CHANGES_PER_CHECK_MAX if meant else []), (
            "the fake never promotes"
        )


def test_down_node_is_not_active_despite_recent_message() -> None:
    leader = Leader(seat=NEW, is_voter=False, match=7, seconds_down={3: 0.1})
    asyncio.run(make_admission(leader, nodes=NODES).reconcile())
    assert leader.changes == []


def test_broker_without_node_record_is_recorded_and_not_removed() -> None:
    members = Membership((RaftMember(1, OTHER, is_voter=True), RaftMember(3, OLD, is_voter=True)))
    image = cast(Any, make_admission(Leader(), OLD, nodes={1: NODES[1]})._store).image
    assert [member.node_id for member in find_members_without_node_record(image, members)] == [3]
    leader = Leader()
    asyncio.run(make_admission(leader, OLD, nodes={1: NODES[1]}).reconcile())
    assert leader.changes == []
    image.brokers.clear()
    assert find_members_without_node_record(image, members) == [], "the member was removed"
    asyncio.run(make_admission(leader, nodes={1: NODES[1]}).reconcile())
    assert RemoveMember(3) in leader.changes
