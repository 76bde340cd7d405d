"""A node without a quorum rejects every write with a definite error and without a traceback, and reports that it is
fenced.
"""

from __future__ import annotations

import pytest

from chronik.protocol.errors import ErrorCode
from chronik.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from chronik.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from chronik.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from chronik.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from chronik.protocol.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse, TopicPartitions
from chronik.protocol.messages.incremental_alter_configs import (
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    IncrementalAlterConfigsResponse,
)
from chronik.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from chronik.testing.plugin import ClusterFactory
from tests.cli.command_line import run_chronik
from tests.cluster import replication_helpers
from tests.raw import RawClient

pytestmark = pytest.mark.xdist_group("cluster")

WriteResult = tuple[ErrorCode, str | None]


def create_topics(client: RawClient) -> WriteResult:
    request = CreateTopicsRequest(topics=[CreatableTopic(name="x", num_partitions=1, replication_factor=1)])
    topic = client.request(request, 7, CreateTopicsResponse).topics[0]
    return ErrorCode(topic.error_code), topic.error_message


def delete_topics(client: RawClient) -> WriteResult:
    topic = client.request(DeleteTopicsRequest(topic_names=["x"]), 5, DeleteTopicsResponse).responses[0]
    return ErrorCode(topic.error_code), topic.error_message


def create_partitions(client: RawClient) -> WriteResult:
    request = CreatePartitionsRequest(topics=[CreatePartitionsTopic(name="x", count=2)])
    topic = client.request(request, 3, CreatePartitionsResponse).results[0]
    return ErrorCode(topic.error_code), topic.error_message


def alter_configs(client: RawClient) -> WriteResult:
    config = IncrementalAlterableConfig(name="retention.ms", config_operation=0, value="1")
    resource = IncrementalAlterConfigsResource(resource_type=2, resource_name="x", configs=[config])
    request = IncrementalAlterConfigsRequest(resources=[resource])
    answer = client.request(request, 1, IncrementalAlterConfigsResponse).responses[0]
    return ErrorCode(answer.error_code), answer.error_message


def elect_leaders(client: RawClient) -> WriteResult:
    wanted = TopicPartitions(topic="x", partitions=[0])
    answer = client.request(ElectLeadersRequest(topic_partitions=[wanted]), 2, ElectLeadersResponse)
    if answer.error_code:
        return ErrorCode(answer.error_code), "Nothing was changed"
    partition = answer.replica_election_results[0].partition_result[0]
    return ErrorCode(partition.error_code), partition.error_message


def reassign(client: RawClient) -> WriteResult:
    topic = ReassignableTopic(name="x", partitions=[ReassignablePartition(partition_index=0, replicas=[1])])
    request = AlterPartitionReassignmentsRequest(topics=[topic])
    answer = client.request(request, 0, AlterPartitionReassignmentsResponse)
    if answer.error_code:
        return ErrorCode(answer.error_code), "Nothing was changed"
    partition = answer.responses[0].partitions[0]
    return ErrorCode(partition.error_code), partition.error_message


def test_writes_to_node_without_quorum_get_definite_errors(
    chronik_cluster_factory: ClusterFactory,
) -> None:
    cluster = chronik_cluster_factory(start=False)
    node = cluster.nodes[1]
    node.start()
    writes = [create_topics, delete_topics, create_partitions, alter_configs, elect_leaders, reassign]
    with RawClient(node.bootstrap) as client:
        for write in writes:
            code, message = write(client)
            assert code is ErrorCode.NOT_CONTROLLER, write
            assert message is not None
            assert "Nothing was changed" in message or message == code.message, write
        request = MetadataRequest(topics=[MetadataRequestTopic(name="x")], allow_auto_topic_creation=True)
        client.send(request, 12)
        assert client.wait_for_close(), "the node knows no brokers"
    created = run_chronik("topics", "create", "x", bootstrap=node.bootstrap)
    assert created.code == 1
    assert "closed the connection; see the broker's log" in created.err
    assert "Traceback" not in node.log


def test_isolated_node_reports_missing_quorum(
    chronik_cluster_factory: ClusterFactory,
) -> None:
    cluster = chronik_cluster_factory()
    left = cluster.nodes[2]
    for node in cluster.nodes.values():
        if node is not left:
            node.pause()
    replication_helpers.wait_for("it is fenced", lambda: left.status()["fenced"])
    shown = run_chronik("cluster", "status", bootstrap=left.bootstrap).lines
    assert (
        shown[0]
        == "This broker is fenced: it cannot reach the controller, and its view of the cluster may be outdated."
    )
    told = run_chronik("cluster", "status", "--json", bootstrap=left.bootstrap).json
    assert {node["node_id"]: node["status"] for node in told["nodes"]} == {
        1: "not known",
        2: "fenced",
        3: "not known",
    }
