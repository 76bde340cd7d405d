"""A node is added to a running cluster, gets a vote and what another one held, and that one leaves; drained nodes lead
nothing. All of it under load, which notices nothing; and afterwards nodes find each other, though their files are old.
"""

from __future__ import annotations

import shutil

import pytest

from chronik.admin.nodes import Action
from chronik.config import Address
from chronik.ids import ZERO_ID
from chronik.protocol.errors import ErrorCode
from chronik.protocol.messages.add_raft_voter import AddedVoterListener, AddRaftVoterRequest, AddRaftVoterResponse
from chronik.protocol.messages.remove_raft_voter import RemoveRaftVoterRequest, RemoveRaftVoterResponse
from chronik.protocol.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse
from chronik.testing.cluster import Cluster, ClusterNode
from chronik.testing.plugin import ClusterFactory
from chronik.testing.ports import ReservedPorts
from tests.chaos.history import Place
from tests.cluster import growing, replicated
from tests.raw import RawClient

pytestmark = pytest.mark.xdist_group("cluster")

PARTITIONS = 3
RATE = 100.0
UNEXPECTED = "does not belong to cluster"


def settle(cluster: Cluster, places: list[Place], load: replicated.Load) -> None:
    replicated.wait_until_in_sync(cluster, places)
    load.wait_until_it_goes_on()
    cluster.wait_until_agreed()


def wait_until_it_says(cluster: Cluster, node: ClusterNode, words: str, since: int = 0) -> None:
    cluster.wait_until(lambda: None if words in node.log[since:] else "not said", f"{node} saying {words!r}")


def test_node_can_be_replaced_by_another(chronik_cluster_factory: ClusterFactory) -> None:
    cluster = chronik_cluster_factory()
    places = replicated.make_topic(cluster, "moved", PARTITIONS)
    load = replicated.ConfluentLoad(cluster.bootstrap, "moved", PARTITIONS, rate=RATE)
    with replicated.running(load):
        load.wait_until_it_goes_on()

        # It is not expected, and waits; when it was added, it follows, and votes as soon as it is meant to.
        newcomer = cluster.add_node(4, known=[2])
        newcomer.start()
        wait_until_it_says(cluster, newcomer, UNEXPECTED)
        assert growing.seats(cluster[1]) == "VVV"
        growing.done(cluster[1], 4, Action.ADD, cluster.raft_address(4))
        growing.wait_for_seats(cluster, "VVVo")
        cluster.wait_until_ready()
        growing.done(cluster[3], 4, Action.PROMOTE)
        growing.wait_for_seats(cluster, "VVVV")
        settle(cluster, places, load)

        # The leader itself is the one that goes.
        leader = cluster.leader()
        kept = [node for node in cluster.live if node is not leader]
        code, message = growing.alter(kept[0], leader.node_id, Action.REMOVE)
        assert code is ErrorCode.POLICY_VIOLATION
        assert "holds replicas" in message
        growing.done(kept[0], leader.node_id, Action.DRAIN)
        cluster.wait_until(lambda: growing.led_by(kept[0], leader.node_id), "the drained node leads nothing")
        cluster.wait_until(lambda: None if cluster.leader() is not leader else "it leads", "another leads the metadata")
        growing.done(kept[1], leader.node_id, Action.DEMOTE)
        growing.wait_for_seats(cluster, "".join("o" if each == leader.node_id else "V" for each in range(1, 5)))
        spare = next(node.node_id for node in kept if growing.held_by(kept[0], node.node_id) is None)
        growing.hold_instead(cluster, kept[0], leader.node_id, spare)
        growing.done(kept[2], leader.node_id, Action.REMOVE)
        cluster.wait_until(
            lambda: "still there" if leader.node_id in growing.nodes_of(kept[0]) else None, "no member any more"
        )

        # It cannot come back by itself, not even on another disk.
        wait_until_it_says(cluster, leader, UNEXPECTED)
        leader.stop()
        shutil.rmtree(leader.data_dir)
        since = len(leader.log)
        leader.start()
        wait_until_it_says(cluster, leader, UNEXPECTED, since)
        assert leader.node_id not in growing.nodes_of(kept[0])
        cluster.nodes.pop(leader.node_id).kill()
        assert "registered broker" not in leader.log[since:]
        cluster.wait_until_listed([node.node_id for node in kept])
        settle(cluster, places, load)
    assert not load.problems, load.problems[:3]
    assert replicated.check_records(cluster.bootstrap, places, [load]) > 0

    check_that_addresses_are_known_without_files(cluster, kept, leader)


def check_that_addresses_are_known_without_files(cluster: Cluster, kept: list[ClusterNode], gone: ClusterNode) -> None:
    """The files of the first nodes do not name the fourth, and name one that is gone. So two nodes of which only the
    newer one's file may name the other find each other by what is on their disks; and one that moves is found again."""
    for node in kept:
        node.kill()
    first, second = next(node for node in kept if node.node_id in (1, 3)), cluster[4]
    first.start()
    second.start()
    cluster.wait_until_ready()
    cluster.wait_until_agreed()
    for node in kept:
        if not node.running:
            node.start()
    cluster.wait_until_ready()

    second.stop()
    reserved = ReservedPorts(1)
    try:
        moved_to = Address("127.0.0.1", reserved.ports[0])
        peers = second.config["peers"]
        next(peer for peer in peers if peer["id"] == 4)["raft"] = str(moved_to)
        second.configure(peers=peers)
        second.start()
        cluster.wait_until_ready()
        cluster.wait_until(
            lambda: None if growing.nodes_of(first)[4].port == moved_to.port else "elsewhere", "node 4 has moved"
        )
        cluster.wait_until_agreed()
        assert gone.node_id not in growing.nodes_of(second)
    finally:
        second.kill()
        reserved.release()


def test_drained_nodes_get_no_leadership_or_new_partitions(chronik_cluster_factory: ClusterFactory) -> None:
    cluster = chronik_cluster_factory(4)
    assert growing.seats(cluster[1]) == "VVVo", "three of four vote"
    places = replicated.make_topic(cluster, "drained", 4)
    load = replicated.ConfluentLoad(cluster.bootstrap, "drained", 4, rate=RATE)
    with replicated.running(load):
        load.wait_until_it_goes_on()
        drained = cluster.leader()
        other = next(node for node in cluster.live if node is not drained)
        growing.done(other, drained.node_id, Action.DRAIN)
        cluster.wait_until(lambda: growing.led_by(other, drained.node_id), "it leads nothing")
        cluster.wait_until(
            lambda: None if cluster.leader() is not drained else "it leads", "another leads the metadata"
        )
        assert growing.nodes_of(other)[drained.node_id].status == "maintenance"
        replicated.make_topic(cluster, "elsewhere", 8)
        assert "elsewhere" not in (growing.held_by(other, drained.node_id) or "")
        assert drained.node_id in other.listed_brokers()
        settle(cluster, places, load)

        drained.stop()
        drained.start()
        cluster.wait_until_ready()
        assert growing.nodes_of(other)[drained.node_id].status == "maintenance", "it is drained until it is told"
        settle(cluster, places, load)
        assert growing.led_by(other, drained.node_id) is None

        growing.done(other, drained.node_id, Action.UNDRAIN)
        assert growing.nodes_of(other)[drained.node_id].status == "online"
        settle(cluster, places, load)
    assert not load.problems, load.problems[:3]
    assert replicated.check_records(cluster.bootstrap, places, [load]) > 0


def test_unregister_broker_returns_when_node_is_removed(chronik_cluster_factory: ClusterFactory) -> None:
    cluster = chronik_cluster_factory()
    newcomer = cluster.add_node(4)
    newcomer.start()
    address = cluster.raft_address(4)
    added = AddRaftVoterRequest(
        cluster_id=None,
        timeout_ms=60_000,
        voter_id=4,
        voter_directory_id=ZERO_ID,
        listeners=[AddedVoterListener(name="CONTROLLER", host=address.host, port=address.port)],
    )
    with RawClient(cluster[1].bootstrap) as client:
        answer = client.ask(added, 1, AddRaftVoterResponse)
        assert (answer.error_code, answer.error_message) == (ErrorCode.NONE, None)
        assert growing.seats(cluster[1]) == "VVVV"
        assert client.ask(added, 1, AddRaftVoterResponse).error_code == ErrorCode.DUPLICATE_VOTER
        cluster.wait_until_ready()

        known = growing.nodes_of(cluster[1])[4].directory_id
        for directory, code in ((bytes(15) + b"x", ErrorCode.INVALID_VOTER_KEY), (known, ErrorCode.NONE)):
            removed = RemoveRaftVoterRequest(cluster_id=None, voter_id=4, voter_directory_id=directory)
            assert client.ask(removed, 0, RemoveRaftVoterResponse).error_code == code
        assert growing.seats(cluster[1]) == "VVVo"

        forgotten = UnregisterBrokerRequest(broker_id=4)
        answered = client.ask(forgotten, 0, UnregisterBrokerResponse)
        assert answered.error_code == ErrorCode.POLICY_VIOLATION
        assert "stop it first" in (answered.error_message or "")
        newcomer.stop()
        assert client.ask(forgotten, 0, UnregisterBrokerResponse).error_code == ErrorCode.NONE
        assert growing.nodes_of(cluster[1])[4].status == "unregistered"
