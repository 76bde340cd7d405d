"""DeleteGroups, OffsetDelete and OffsetFetch in a cluster.

Only the coordinator executes deletions, and they apply on every node. Every node returns committed offsets, and an
isolated one makes clients retry.
"""

from __future__ import annotations

import pytest
from confluent_kafka import Consumer, TopicPartition

from chronik.metadata.names import OFFSETS_TOPIC
from chronik.protocol.errors import ErrorCode
from chronik.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from chronik.protocol.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from chronik.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from chronik.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from chronik.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from chronik.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic, OffsetFetchResponse
from chronik.testing.cluster import Cluster, ClusterNode
from chronik.testing.plugin import ClusterFactory
from tests.cli.command_line import run_chronik
from tests.raw import RawClient

from .group_helpers import coordinator_of, create_topic, offsets_held_by, unique_name, wait_until_held_everywhere

pytestmark = pytest.mark.xdist_group("cluster")

VERSION_WITH_ERRORS_OF_THE_GROUP = 3
COMMITTED = 7


def consumer(cluster: Cluster, group: str) -> Consumer:
    return Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": group, "enable.auto.commit": False})


def commit(cluster: Cluster, group: str, *topics: str) -> None:
    client = consumer(cluster, group)
    client.commit(offsets=[TopicPartition(topic, 0, 7) for topic in topics], asynchronous=False)
    client.close()


def delete_group(node: ClusterNode, group: str) -> ErrorCode:
    with RawClient(node.bootstrap) as client:
        (result,) = client.request(DeleteGroupsRequest(groups_names=[group]), 2, DeleteGroupsResponse).results
    return ErrorCode(result.error_code)


def delete_offsets(node: ClusterNode, group: str, *topics: str) -> tuple[ErrorCode, list[ErrorCode]]:
    partitions = [OffsetDeleteRequestPartition(partition_index=0)]
    wanted = [OffsetDeleteRequestTopic(name=topic, partitions=partitions) for topic in topics]
    with RawClient(node.bootstrap) as client:
        answer = client.request(OffsetDeleteRequest(group_id=group, topics=wanted), 0, OffsetDeleteResponse)
    return ErrorCode(answer.error_code), [ErrorCode(topic.partitions[0].error_code) for topic in answer.topics]


def test_only_coordinator_deletes_groups_and_offsets(chronik_cluster_factory: ClusterFactory) -> None:
    cluster = chronik_cluster_factory()
    read, unread, group = create_topic(cluster, 1), create_topic(cluster, 1), unique_name("group")
    commit(cluster, group, read, unread)
    both = {(topic, 0): (7, "") for topic in (read, unread)}
    wait_until_held_everywhere(cluster, group, both)
    coordinator = coordinator_of(cluster, group)
    for other in cluster.live_nodes:
        if other is not coordinator:
            assert delete_group(other, group) is ErrorCode.NOT_COORDINATOR
            assert delete_offsets(other, group, read) == (ErrorCode.NOT_COORDINATOR, [])

    member = consumer(cluster, group)
    member.subscribe([read])
    while not member.assignment():
        member.poll(0.1)
    assert delete_group(coordinator, group) is ErrorCode.NON_EMPTY_GROUP
    assert delete_offsets(coordinator, group, read, unread, "no-such-topic") == (
        ErrorCode.NONE,
        [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION],
    )
    assert delete_offsets(coordinator, group, "no-such-topic") == (
        ErrorCode.NONE,
        [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION],
    )
    wait_until_held_everywhere(cluster, group, {(read, 0): (7, "")})
    member.close()

    assert run_chronik("groups", "delete", group, bootstrap=cluster.bootstrap).lines == [f"deleted {group}"]
    cluster.wait_until(
        lambda: next((repr(node) for node in cluster.live_nodes if node.group(group) is not None), None),
        "every node to delete the group",
    )
    assert delete_group(coordinator_of(cluster, group), group) is ErrorCode.GROUP_ID_NOT_FOUND


def test_offset_reset_works_with_any_coordinator(chronik_cluster_factory: ClusterFactory) -> None:
    cluster = chronik_cluster_factory()
    topic, group = create_topic(cluster, 2), unique_name("group")
    commit(cluster, group, topic)
    victim = coordinator_of(cluster, group)
    victim.kill()
    addresses = ",".join(node.bootstrap for node in cluster.live_nodes)
    reset = ("groups", "reset-offsets", group, "--topic", topic, "--to-latest", "--execute", "--json")
    assert {each["new_offset"] for each in run_chronik(*reset, bootstrap=addresses).json} == {0}
    victim.start()
    cluster.wait_until_ready()
    wait_until_held_everywhere(cluster, group, {(topic, 0): (0, ""), (topic, 1): (0, "")})
    assert offsets_held_by(victim, group) != {}


def fetch_offset(node: ClusterNode, group: str, topic: str) -> tuple[ErrorCode, int, ErrorCode]:
    """Return the error of the group, the offset, and the error of the partition."""
    request = OffsetFetchRequest(group_id=group, topics=[OffsetFetchRequestTopic(name=topic, partition_indexes=[0])])
    with RawClient(node.bootstrap) as client:
        response = client.request(request, VERSION_WITH_ERRORS_OF_THE_GROUP, OffsetFetchResponse)
    (partition,) = response.topics[0].partitions
    return ErrorCode(response.error_code), partition.committed_offset, ErrorCode(partition.error_code)


def producer_id_error(node: ClusterNode) -> ErrorCode:
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000)
    with RawClient(node.bootstrap) as client:
        return ErrorCode(client.request(request, 2, InitProducerIdResponse).error_code)


def test_group_offsets_are_available_from_every_node(chronik_cluster_factory: ClusterFactory) -> None:
    cluster = chronik_cluster_factory(links=True)
    topic, group = create_topic(cluster, 1), unique_name("group")
    commit(cluster, group, topic)
    for node in cluster.live_nodes:  # immediately, even if the node has not applied the commit yet
        assert fetch_offset(node, group, topic) == (ErrorCode.NONE, COMMITTED, ErrorCode.NONE)

    alone = coordinator_of(cluster, group)
    cluster.isolate(alone.node_id)
    loading = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    cluster.wait_until(
        lambda: None if producer_id_error(alone) is loading else f"{alone!r} is not fenced yet",
        "the isolated node to fence itself",
    )
    assert fetch_offset(alone, group, topic) == (loading, -1, loading)
    cluster.restore_links()
    healed = (ErrorCode.NONE, COMMITTED, ErrorCode.NONE)
    cluster.wait_until(
        lambda: None if (fetched := fetch_offset(alone, group, topic)) == healed else f"{alone!r} says {fetched}",
        "the node to return offsets again",
    )


def test_coordinator_topics_cannot_be_deleted_or_extended(chronik_cluster_factory: ClusterFactory) -> None:
    cluster = chronik_cluster_factory()
    group = unique_name("group")
    coordinator = coordinator_of(cluster, group).node_id
    wider = CreatePartitionsRequest(topics=[CreatePartitionsTopic(name=OFFSETS_TOPIC, count=60)], timeout_ms=10_000)
    deletion = DeleteTopicsRequest(topic_names=[OFFSETS_TOPIC], timeout_ms=10_000)
    with RawClient(cluster.live_nodes[0].bootstrap) as client:
        (refused,) = client.request(wider, 1, CreatePartitionsResponse).results
        assert refused.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
        (kept,) = client.request(deletion, 4, DeleteTopicsResponse).responses
        assert kept.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert coordinator_of(cluster, group).node_id == coordinator
