"""OffsetFetch in a cluster: every node returns committed offsets, and an isolated one makes clients retry."""

from __future__ import annotations

import pytest

from chronik.metadata.names import OFFSETS_TOPIC
from chronik.protocol.errors import ErrorCode
from chronik.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from chronik.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from chronik.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from chronik.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic, OffsetFetchResponse
from chronik.testing.cluster import ClusterNode
from chronik.testing.plugin import ClusterFactory
from tests.raw import RawClient

from .group_helpers import coordinator_of, create_topic, unique_name
from .test_group_offset_deletion import commit

pytestmark = pytest.mark.xdist_group("cluster")

VERSION_WITH_ERRORS_OF_THE_GROUP = 3
COMMITTED = 7


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
