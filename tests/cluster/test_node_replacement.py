"""A node is added to a running cluster, promoted, and takes the replicas of another one, which is removed; drained
nodes lead nothing. All under load without errors; afterwards, nodes with outdated config files find each other.
"""

from __future__ import annotations

import shutil

import pytest

from chronik.admin.nodes import NodeAction
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
from tests.cluster import membership_helpers, replication_helpers
from tests.raw import RawClient

pytestmark = pytest.mark.xdist_group("cluster")

PARTITIONS = 3
RATE = 100.0
UNEXPECTED = "does not belong to cluster"


def wait_until_stable(cluster: Cluster, places: list[Place], load: replication_helpers.ProducerLoad) -> None:
    replication_helpers.wait_until_in_sync(cluster, places)
    load.wait_until_progress()
    cluster.wait_until_agreed()


def wait_until_logged(cluster: Cluster, node: ClusterNode, words: str, since: int = 0) -> None:
    cluster.wait_until(lambda: None if words in node.log[since:] else "not logged", f"{node} to log {words!r}")


def test_node_can_be_replaced_by_another(chronik_cluster_factory: ClusterFactory) -> None:
    cluster = chronik_cluster_factory()
    places = replication_helpers.create_topic(cluster, "moved", PARTITIONS)
    load = replication_helpers.ConfluentLoad(cluster.bootstrap, "moved", PARTITIONS, rate=RATE)
    with replication_helpers.running_clients(load):
        load.wait_until_progress()

        # An unknown node waits. After it was added, it follows the log, and votes when it is promoted.
        newcomer = cluster.add_node(4, known=[2])
        newcomer.start()
        wait_until_logged(cluster, newcomer, UNEXPECTED)
        assert membership_helpers.voter_letters(cluster[1]) == "VVV"
        membership_helpers.change_node(cluster[1], 4, NodeAction.ADD, cluster.raft_address(4))
        membership_helpers.wait_for_voter_letters(cluster, "VVVo")
        cluster.wait_until_ready()
        membership_helpers.change_node(cluster[3], 4, NodeAction.PROMOTE)
        membership_helpers.wait_for_voter_letters(cluster, "VVVV")
        wait_until_stable(cluster, places, load)

        # The Raft leader is the node that is removed.
        leader = cluster.leader()
        kept = [node for node in cluster.live_nodes if node is not leader]
        code, message = membership_helpers.request_change(kept[0], leader.node_id, NodeAction.REMOVE)
        assert code is ErrorCode.POLICY_VIOLATION
        assert "hosts replicas" in message
        membership_helpers.change_node(kept[0], leader.node_id, NodeAction.DRAIN)
        cluster.wait_until(
            lambda: membership_helpers.partitions_led_by(kept[0], leader.node_id), "the drained node to lead nothing"
        )
        cluster.wait_until(lambda: None if cluster.leader() is not leader else "it leads", "another Raft leader")
        membership_helpers.change_node(kept[1], leader.node_id, NodeAction.DEMOTE)
        membership_helpers.wait_for_voter_letters(
            cluster, "".join("o" if each == leader.node_id else "V" for each in range(1, 5))
        )
        spare = next(node.node_id for node in kept if membership_helpers.partitions_on(kept[0], node.node_id) is None)
        membership_helpers.move_replicas(cluster, kept[0], leader.node_id, spare)
        membership_helpers.change_node(kept[2], leader.node_id, NodeAction.REMOVE)
        cluster.wait_until(
            lambda: "still there" if leader.node_id in membership_helpers.described_nodes(kept[0]) else None,
            "the removal of the node",
        )

        # A removed node cannot rejoin by itself, even with an empty disk.
        wait_until_logged(cluster, leader, UNEXPECTED)
        leader.stop()
        shutil.rmtree(leader.data_dir)
        since = len(leader.log)
        leader.start()
        wait_until_logged(cluster, leader, UNEXPECTED, since)
        assert leader.node_id not in membership_helpers.described_nodes(kept[0])
        cluster.nodes.pop(leader.node_id).kill()
        assert "registered broker" not in leader.log[since:]
        cluster.wait_until_listed([node.node_id for node in kept])
        wait_until_stable(cluster, places, load)
    assert not load.problems, load.problems[:3]
    assert replication_helpers.check_records(cluster.bootstrap, places, [load]) > 0

    check_addresses_are_stored(cluster, kept, leader)


def check_addresses_are_stored(cluster: Cluster, kept: list[ClusterNode], gone: ClusterNode) -> None:
    """Check that nodes find each other by the addresses on their disks.

    The config files of the first nodes do not contain the fourth, but a removed one. A node that moves is found again.
    """
    for node in kept:
        node.kill()
    first, second = next(node for node in kept if node.node_id in (1, 3)), cluster[4]
    first.start()
    second.start()
    cluster.wait_until_ready()
    cluster.wait_until_agreed()
    for node in kept:
        if not node.is_running:
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
            lambda: None if membership_helpers.described_nodes(first)[4].port == moved_to.port else "elsewhere",
            "the new address of node 4",
        )
        cluster.wait_until_agreed()
        assert gone.node_id not in membership_helpers.described_nodes(second)
    finally:
        second.kill()
        reserved.release()


def test_drained_nodes_get_no_leadership_or_new_partitions(chronik_cluster_factory: ClusterFactory) -> None:
    cluster = chronik_cluster_factory(4)
    assert membership_helpers.voter_letters(cluster[1]) == "VVVo", "three of four vote"
    places = replication_helpers.create_topic(cluster, "drained", 4)
    load = replication_helpers.ConfluentLoad(cluster.bootstrap, "drained", 4, rate=RATE)
    with replication_helpers.running_clients(load):
        load.wait_until_progress()
        drained = cluster.leader()
        other = next(node for node in cluster.live_nodes if node is not drained)
        membership_helpers.change_node(other, drained.node_id, NodeAction.DRAIN)
        cluster.wait_until(
            lambda: membership_helpers.partitions_led_by(other, drained.node_id), "the drained node to lead nothing"
        )
        cluster.wait_until(lambda: None if cluster.leader() is not drained else "it leads", "another Raft leader")
        assert membership_helpers.described_nodes(other)[drained.node_id].status == "maintenance"
        replication_helpers.create_topic(cluster, "elsewhere", 8)
        assert "elsewhere" not in (membership_helpers.partitions_on(other, drained.node_id) or "")
        assert drained.node_id in other.listed_brokers()
        wait_until_stable(cluster, places, load)

        drained.stop()
        drained.start()
        cluster.wait_until_ready()
        assert membership_helpers.described_nodes(other)[drained.node_id].status == "maintenance", (
            "a node stays drained across a restart"
        )
        wait_until_stable(cluster, places, load)
        assert membership_helpers.partitions_led_by(other, drained.node_id) is None

        membership_helpers.change_node(other, drained.node_id, NodeAction.UNDRAIN)
        assert membership_helpers.described_nodes(other)[drained.node_id].status == "online"
        wait_until_stable(cluster, places, load)
    assert not load.problems, load.problems[:3]
    assert replication_helpers.check_records(cluster.bootstrap, places, [load]) > 0


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
        answer = client.request(added, 1, AddRaftVoterResponse)
        assert (answer.error_code, answer.error_message) == (ErrorCode.NONE, None)
        assert membership_helpers.voter_letters(cluster[1]) == "VVVV"
        assert client.request(added, 1, AddRaftVoterResponse).error_code == ErrorCode.DUPLICATE_VOTER
        cluster.wait_until_ready()

        known = membership_helpers.described_nodes(cluster[1])[4].directory_id
        for directory, code in ((bytes(15) + b"x", ErrorCode.INVALID_VOTER_KEY), (known, ErrorCode.NONE)):
            removed = RemoveRaftVoterRequest(cluster_id=None, voter_id=4, voter_directory_id=directory)
            assert client.request(removed, 0, RemoveRaftVoterResponse).error_code == code
        assert membership_helpers.voter_letters(cluster[1]) == "VVVo"

        forgotten = UnregisterBrokerRequest(broker_id=4)
        answered = client.request(forgotten, 0, UnregisterBrokerResponse)
        assert answered.error_code == ErrorCode.POLICY_VIOLATION
        assert "stop it first" in (answered.error_message or "")
        newcomer.stop()
        assert client.request(forgotten, 0, UnregisterBrokerResponse).error_code == ErrorCode.NONE
        assert membership_helpers.described_nodes(cluster[1])[4].status == "unregistered"
