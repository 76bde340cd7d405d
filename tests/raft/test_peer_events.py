"""Peer events: a refused or restored connection shortens the election timeout without disturbing a working leader."""

from __future__ import annotations

import pytest

from chronik.raft.config import RaftConfig
from chronik.raft.events import PeerConnected, PeerDown
from chronik.raft.membership import NO_NODE
from chronik.raft.messages import VoteRequest
from chronik.raft.roles import Role
from tests.raft.lab import Lab

SPREAD = RaftConfig().election_spread_ticks


def test_peer_down_event_shortens_election_timeout_to_random_part() -> None:
    lab = Lab()
    lab.elect(1)
    lab.crash(1)
    for node_id in (2, 3):
        lab.handle(node_id, PeerDown(1))
        assert lab[node_id].status.leader == NO_NODE
    for _ in range(SPREAD):
        for node_id in (2, 3):
            lab.tick(node_id)
            lab.settle()
    assert lab.leader() in (2, 3)
    assert lab[2].status.term == 2


def test_false_peer_down_event_does_not_change_term() -> None:
    lab = Lab()
    lab.elect(1)
    lab.cut_link(1, 3)
    lab.handle(3, PeerDown(1))
    lab.tick(3, SPREAD)
    assert lab.sent_by(3, VoteRequest)
    assert all(request.is_pre_vote for request in lab.sent_by(3, VoteRequest))
    lab.settle()
    lab.heal()
    lab.tick(1, 2)
    lab.settle()
    assert (lab.leader(), lab[3].status.leader, lab[3].status.term) == (1, 1, 1)


def test_peer_down_event_is_ignored_unless_follower_loses_leader() -> None:
    lab = Lab()
    lab.elect(1)
    lab.handle(3, PeerDown(2))
    assert lab[3].status.leader == 1
    lab.handle(1, PeerDown(1))
    lab.handle(1, PeerDown(2))
    assert lab.role(1) is Role.LEADER
    lab.handle(2, PeerDown(1))
    lab.handle(2, PeerDown(1))
    assert lab[2].status.leader == NO_NODE
    assert lab.role(2) is Role.FOLLOWER


@pytest.mark.parametrize("ticks", range(40, 80))
def test_reconnected_nodes_elect_leader_within_random_part_of_timeout(ticks: int) -> None:
    """The nodes elect a leader even right after a failed campaign of all of them."""
    lab = Lab()
    lab.elect(1)
    for node_id in (1, 2, 3):
        lab.isolate(node_id)
    for _ in range(ticks):
        for node_id in (1, 2, 3):
            lab.tick(node_id)
            lab.settle()
    assert {lab[node_id].status.leader for node_id in (1, 2, 3)} == {NO_NODE}
    lab.heal()
    for node_id in (1, 2, 3):
        lab.handle(node_id, PeerConnected(node_id % 3 + 1))
    for _ in range(SPREAD + 1):
        for node_id in (1, 2, 3):
            lab.tick(node_id)
            lab.settle()
    assert lab.leader() in (1, 2, 3)


def test_peer_connected_event_does_not_disturb_leader() -> None:
    lab = Lab()
    lab.elect(1)
    sent = len(lab.sent_by(3, VoteRequest))
    lab.handle(3, PeerConnected(2))
    lab.handle(1, PeerConnected(2))
    lab.tick(3, SPREAD)
    assert len(lab.sent_by(3, VoteRequest)) == sent
    assert (lab.role(1), lab[3].status.leader) == (Role.LEADER, 1)
