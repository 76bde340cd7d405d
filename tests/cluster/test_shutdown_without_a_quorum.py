"""SIGTERM stops a node promptly even without a quorum and with many waiting clients."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import pytest

from chronik.admin.nodes import NodeAction
from chronik.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from chronik.protocol.messages.init_producer_id import InitProducerIdRequest
from chronik.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from chronik.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from chronik.protocol.schema import Request
from chronik.testing.cluster import Cluster, ClusterNode
from chronik.testing.plugin import ClusterFactory
from tests.api import request_builders
from tests.cluster import membership_helpers
from tests.cluster.partitions import create_topic, wait_until_in_sync
from tests.raw import RawClient

pytestmark = pytest.mark.xdist_group("cluster")

STOP_SECONDS_MAX = 4.0
"""The documented limit is two seconds; the rest is for a busy machine."""

TOPIC = "topic"
CLIENTS_OF_EACH_KIND = 20
UNREAD_BATCH_BYTES = 900_000
UNREAD_FETCHES = 12


def create_topics(number: int) -> tuple[Request, int]:
    topic = CreatableTopic(name=f"new-{number}", num_partitions=1, replication_factor=1)
    return CreateTopicsRequest(topics=[topic], timeout_ms=30_000), 7


def init_producer_id(number: int) -> tuple[Request, int]:
    return InitProducerIdRequest(transactional_id=f"id-{number}", transaction_timeout_ms=60_000), 4


def commit_offsets(number: int) -> tuple[Request, int]:
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=number)
    topics = [OffsetCommitRequestTopic(name=TOPIC, partitions=[partition])]
    return OffsetCommitRequest(group_id=f"group-{number}", topics=topics), 8


def join_group(number: int) -> tuple[Request, int]:
    return (
        JoinGroupRequest(
            group_id=f"group-{number}",
            session_timeout_ms=60_000,
            rebalance_timeout_ms=60_000,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
        ),
        3,
    )


def produce(number: int) -> tuple[Request, int]:
    return request_builders.produce_request(TOPIC, request_builders.batch(b"value"), timeout_ms=60_000), 9


def wait_for_records(number: int) -> tuple[Request, int]:
    return request_builders.fetch_request((TOPIC, 0, 0), min_bytes=1 << 26, max_wait_ms=60_000), 12


KINDS: list[Callable[[int], tuple[Request, int]]] = [
    create_topics,
    init_producer_id,
    commit_offsets,
    join_group,
    produce,
    wait_for_records,
]


@contextmanager
def waiting_clients(node: ClusterNode) -> Iterator[None]:
    """Connect clients with a waiting request of every kind."""
    with ExitStack() as stack:
        for number in range(CLIENTS_OF_EACH_KIND):
            for kind in KINDS:
                client = stack.enter_context(RawClient(node.bootstrap))
                client.send(*kind(number))
        yield


@contextmanager
def clients_that_do_not_read(node: ClusterNode) -> Iterator[None]:
    """Connect clients with more unread responses than the sockets hold, while the node serves the topic."""
    with ExitStack() as stack:
        for _ in range(CLIENTS_OF_EACH_KIND):
            client = stack.enter_context(RawClient(node.bootstrap))
            for _ in range(UNREAD_FETCHES):
                client.send(request_builders.fetch_request((TOPIC, 0, 0), min_bytes=1, max_wait_ms=1000), 12)
        yield


def seconds_to_stop(node: ClusterNode) -> float:
    began = time.monotonic()
    node.stop()
    return time.monotonic() - began


def cluster_with_a_topic(factory: ClusterFactory) -> Cluster:
    cluster = factory(links=True)
    create_topic(cluster[1], TOPIC, [1, 2, 3])
    wait_until_in_sync(cluster, TOPIC)
    with RawClient(cluster[1].bootstrap) as client:
        request_builders.produce(client, TOPIC, request_builders.batch(b"x" * UNREAD_BATCH_BYTES))
    return cluster


def test_isolated_node_stops_promptly_before_its_lease_expires(
    chronik_cluster_factory: ClusterFactory, record_property: Callable[[str, object], None]
) -> None:
    cluster = cluster_with_a_topic(chronik_cluster_factory)
    node = cluster[1]
    with clients_that_do_not_read(node):
        cluster.isolate(1)
        with waiting_clients(node):
            seconds = seconds_to_stop(node)
    cluster.restore_links()
    record_property("summary", f"an isolated node stopped in {seconds:.1f} s")
    assert seconds < STOP_SECONDS_MAX


def test_fenced_node_stops_promptly(
    chronik_cluster_factory: ClusterFactory, record_property: Callable[[str, object], None]
) -> None:
    cluster = cluster_with_a_topic(chronik_cluster_factory)
    node = cluster[1]
    with clients_that_do_not_read(node):
        cluster.isolate(1)
        cluster.wait_until(lambda: None if node.status()["fenced"] else "not yet", "node 1 to be fenced")
        with waiting_clients(node):
            seconds = seconds_to_stop(node)
    cluster.restore_links()
    record_property("summary", f"a fenced node stopped in {seconds:.1f} s")
    assert seconds < STOP_SECONDS_MAX


def test_removed_node_stops_promptly(
    chronik_cluster_factory: ClusterFactory, record_property: Callable[[str, object], None]
) -> None:
    cluster = chronik_cluster_factory()
    node = cluster.add_node(4)
    node.start()
    membership_helpers.change_node(cluster[1], 4, NodeAction.ADD, cluster.raft_address(4))
    membership_helpers.wait_for_voter_letters(cluster, "VVVo")
    cluster.wait_until_ready()
    create_topic(cluster[1], TOPIC, [4, 1, 2])
    wait_until_in_sync(cluster, TOPIC)
    with RawClient(node.bootstrap) as client:
        request_builders.produce(client, TOPIC, request_builders.batch(b"x" * UNREAD_BATCH_BYTES))
    with clients_that_do_not_read(node):
        membership_helpers.move_replicas(cluster, cluster[1], 4, 3)
        membership_helpers.change_node(cluster[1], 4, NodeAction.REMOVE)
        with waiting_clients(node):
            seconds = seconds_to_stop(node)
    record_property("summary", f"a removed node stopped in {seconds:.1f} s")
    assert seconds < STOP_SECONDS_MAX
