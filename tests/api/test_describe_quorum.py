"""DescribeQuorum returns the leader's view on every node, and an error without a leader."""

from __future__ import annotations

import time

import pytest
from kafka.admin import KafkaAdminClient

from chronik.ids import ZERO_ID, parse_id
from chronik.protocol import codec
from chronik.protocol.codec import UnencodableMessage
from chronik.protocol.errors import ErrorCode
from chronik.protocol.messages.describe_quorum import (
    DescribeQuorumPartition,
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    DescribeQuorumTopic,
    QuorumListener,
    QuorumNode,
    QuorumPartitionData,
    QuorumReplicaState,
)
from chronik.testing import Broker, Cluster, ClusterNode
from chronik.testing.plugin import ClusterFactory
from tests.raw import RawClient

QUORUM_TOPIC = "__cluster_metadata"
MINUTE_MS = 60_000
SILENCE_MS = 1_500
"""Longer than a live peer is ever silent, in milliseconds."""
CLOCK_MS = 50
"""Tolerance in milliseconds: nodes send ages, which the receiver converts to timestamps by its own clock."""


def ask(bootstrap: str, topic: str = QUORUM_TOPIC, partition: int = 0, version: int = 2) -> DescribeQuorumResponse:
    asked = DescribeQuorumTopic(topic_name=topic, partitions=[DescribeQuorumPartition(partition_index=partition)])
    with RawClient(bootstrap) as client:
        return client.request(DescribeQuorumRequest(topics=[asked]), version, DescribeQuorumResponse)


def partition_of(response: DescribeQuorumResponse) -> QuorumPartitionData:
    assert response.error_code == ErrorCode.NONE
    return response.topics[0].partitions[0]


def directories(node: ClusterNode) -> dict[int, bytes]:
    return {member["id"]: parse_id(member["directory_id"]) for member in node.status()["members"]}


def test_standalone_node_is_the_only_voter(chronik_broker: Broker) -> None:
    response = ask(chronik_broker.bootstrap)
    found = partition_of(response)
    assert (found.error_code, found.error_message, found.leader_id) == (ErrorCode.NONE, None, 1)
    (voter,) = found.current_voters
    assert voter.replica_id == 1
    assert voter.replica_directory_id != ZERO_ID
    assert voter.log_end_offset == found.high_watermark > 1
    assert abs(voter.last_fetch_timestamp - time.time() * 1000) < MINUTE_MS
    assert voter.last_caught_up_timestamp == voter.last_fetch_timestamp
    assert found.observers == []
    (node,) = response.nodes
    assert (node.node_id, node.listeners[0].port) == (1, chronik_broker.port)


def test_describe_quorum_of_other_topics_returns_unknown_topic(chronik_broker: Broker) -> None:
    for topic, partition in (("orders", 0), (QUORUM_TOPIC, 1), ("", 0)):
        for version in (0, 1, 2):
            found = partition_of(ask(chronik_broker.bootstrap, topic, partition, version))
            assert found.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            assert (found.partition_index, found.current_voters) == (partition, [])


def test_quorum_listener_port_is_encoded_as_uint16() -> None:
    def response_with_port(port: int) -> DescribeQuorumResponse:
        return DescribeQuorumResponse(nodes=[QuorumNode(node_id=1, listeners=[QuorumListener(port=port)])])

    for port in (0, 65535):
        assert codec.decode(DescribeQuorumResponse, 2, codec.encode(response_with_port(port), 2)) == response_with_port(
            port
        )
    for port in (-1, 65536):
        with pytest.raises(UnencodableMessage, match=rf"nodes\[0\]\.listeners\[0\]\.port is {port}, not uint16"):
            codec.encode(response_with_port(port), 2)


@pytest.mark.xdist_group("cluster")
def test_every_node_returns_the_leaders_quorum_state(chronik_cluster_factory: ClusterFactory) -> None:
    cluster = chronik_cluster_factory()
    leader = cluster.leader()
    cluster.wait_until_agreed()

    def missing() -> str | None:
        """Return None when all nodes have the same high watermark and log end."""
        answers = [partition_of(ask(node.bootstrap)) for node in cluster.live_nodes]
        ends = {(answer.high_watermark, voter.log_end_offset) for answer in answers for voter in answer.current_voters}
        is_settled = len(ends) == 1 and all(watermark == end for watermark, end in ends)
        return None if is_settled else f"watermarks and ends: {ends}"

    cluster.wait_until(missing, "the same high watermark and log end of all voters on all nodes")
    answers = {node.node_id: ask(node.bootstrap) for node in cluster.live_nodes}
    for answer in answers.values():
        found = partition_of(answer)
        assert found.error_code == ErrorCode.NONE
        assert (found.leader_id, found.leader_epoch) == (leader.node_id, leader.status()["term"])
        assert _directory_ids(found.current_voters) == directories(leader)
        assert found.observers == []
        assert [node.node_id for node in answer.nodes] == [1, 2, 3]
        assert len({listener.port for node in answer.nodes for listener in node.listeners}) == 3

    admin = KafkaAdminClient(bootstrap_servers=cluster.bootstrap)
    try:
        quorum = admin.describe_metadata_quorum()["topics"][0]["partitions"][0]
    finally:
        admin.close()
    assert quorum["error"] is None
    assert quorum["leader_id"] == leader.node_id
    assert [voter["replica_id"] for voter in quorum["current_voters"]] == [1, 2, 3]

    _check_fetch_times_of_paused_node(cluster, leader)
    survivor, *others = cluster.live_nodes
    for node in others:
        node.kill()

    def has_error() -> str | None:
        found = partition_of(ask(survivor.bootstrap))
        return None if found.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER else f"answer: {found}"

    cluster.wait_until(has_error, "an error without a known leader")


def _directory_ids(replicas: list[QuorumReplicaState]) -> dict[int, bytes]:
    return {replica.replica_id: replica.replica_directory_id for replica in replicas}


def _check_fetch_times_of_paused_node(cluster: Cluster, leader: ClusterNode) -> None:
    paused = next(node for node in cluster.live_nodes if node is not leader)
    asked = next(node for node in cluster.live_nodes if node not in (leader, paused))
    before = _times(asked)
    assert all(abs(heard - time.time() * 1000) < MINUTE_MS for heard, _ in before.values())
    assert all(abs(caught_up - time.time() * 1000) < MINUTE_MS for _, caught_up in before.values())
    paused.pause()
    try:

        def has_stopped() -> str | None:
            now = _times(asked)
            last, _ = now.pop(paused.node_id)
            return None if min(heard for heard, _ in now.values()) - last > SILENCE_MS else f"{last}, others {now}"

        cluster.wait_until(has_stopped, "only the fetch times of running nodes to advance")
        heard = _times(asked)[paused.node_id]
        assert heard[1] <= heard[0] + CLOCK_MS
    finally:
        paused.resume()

    def has_resumed() -> str | None:
        now = _times(asked)
        return None if now[paused.node_id][1] > heard[0] + SILENCE_MS else f"times: {now}"

    cluster.wait_until(has_resumed, "the resumed node to catch up")


def _times(node: ClusterNode) -> dict[int, tuple[int, int]]:
    found = partition_of(ask(node.bootstrap))
    return {
        voter.replica_id: (voter.last_fetch_timestamp, voter.last_caught_up_timestamp) for voter in found.current_voters
    }
