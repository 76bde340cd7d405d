"""An isolated node fences itself, returns no stale success, and catches up after it is reconnected.

If a follower is disconnected from its leader only, while both reach the controller, acks=all continues.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from chronik.protocol.errors import ErrorCode
from chronik.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from chronik.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from chronik.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from chronik.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from chronik.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from chronik.protocol.records import Record, encode_batch
from chronik.testing.cluster import Cluster, ClusterNode
from chronik.testing.plugin import ClusterFactory
from tests.chaos import partition_states
from tests.chaos.history import Place
from tests.cluster import replication_helpers
from tests.cluster.partitions import create_topic
from tests.raw import RawClient

pytestmark = pytest.mark.xdist_group("cluster")

LAG_SECONDS = 1.0
GOES_ON_SECONDS_MAX = 10 * LAG_SECONDS


def create(node: ClusterNode, name: str) -> ErrorCode:
    request = CreateTopicsRequest(topics=[CreatableTopic(name=name, num_partitions=3, replication_factor=1)])
    with RawClient(node.bootstrap) as client:
        return ErrorCode(client.request(request, 7, CreateTopicsResponse).topics[0].error_code)


def topics(node: ClusterNode) -> MetadataResponse:
    with RawClient(node.bootstrap) as client:
        return client.request(MetadataRequest(topics=None), 12, MetadataResponse)


def produce(node: ClusterNode, topic: str, index: int) -> ErrorCode:
    batch = encode_batch([Record(0, -1, b"key", b"value")])
    partition = PartitionProduceData(index=index, records=batch)
    request = ProduceRequest(
        acks=-1, timeout_ms=5000, topic_data=[TopicProduceData(name=topic, partition_data=[partition])]
    )
    with RawClient(node.bootstrap) as client:
        return ErrorCode(client.request(request, 9, ProduceResponse).responses[0].partition_responses[0].error_code)


@pytest.mark.parametrize("read_quorum", [False, True], ids=["local reads", "quorum reads"])
@pytest.mark.parametrize("who", ["leader", "follower"])
def test_isolated_node_fences_itself_and_catches_up_after_healing(
    chronik_cluster_factory: ClusterFactory, who: str, read_quorum: bool
) -> None:
    cluster = chronik_cluster_factory(links=True, read_quorum=read_quorum)
    leader = cluster.leader()
    victim = leader if who == "leader" else next(node for node in cluster.live_nodes if node is not leader)
    others = [node for node in cluster.live_nodes if node is not victim]
    assert create(others[0], "before") is ErrorCode.NONE
    cluster.wait_until_agreed()
    led_by_victim = [
        partition.partition_index
        for topic in topics(others[0]).topics
        if topic.name == "before"
        for partition in topic.partitions
        if partition.leader_id == victim.status()["node_id"]
    ]
    assert led_by_victim
    assert produce(victim, "before", led_by_victim[0]) is ErrorCode.NONE

    cluster.isolate(victim.status()["node_id"])
    cluster.wait_until(lambda: None if victim.status()["fenced"] else "it serves", "the node to fence itself")
    assert produce(victim, "before", led_by_victim[0]) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    with RawClient(victim.bootstrap) as client:
        assert client.request(ApiVersionsRequest(), 0, ApiVersionsResponse).api_keys
        coordinator = client.request(FindCoordinatorRequest(key="group"), 2, FindCoordinatorResponse)
        assert (coordinator.error_code, coordinator.node_id != victim.status()["node_id"]) == (ErrorCode.NONE, True)
        asked = MetadataRequest(topics=[MetadataRequestTopic(name="before")])
        answer = client.request(asked, 12, MetadataResponse).topics[0]
        assert answer.error_code == (ErrorCode.REQUEST_TIMED_OUT if read_quorum else ErrorCode.NONE)
        assert {partition.leader_id for partition in answer.partitions} == (set() if read_quorum else {-1})
    assert create(victim, "in-the-minority") in {ErrorCode.NOT_CONTROLLER, ErrorCode.REQUEST_TIMED_OUT}

    def majority_problem() -> str | None:
        code = create(others[0], "in-the-majority")
        return None if code in {ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS} else code.name

    cluster.wait_until(majority_problem, "the majority to continue")
    cluster.restore_links()
    cluster.wait_until_ready()
    cluster.wait_until_agreed()

    def find_difference() -> str | None:
        names = [{topic.name for topic in topics(node).topics} for node in cluster.live_nodes]
        return None if names[0] == names[1] == names[2] and "in-the-majority" in names[0] else str(names)

    cluster.wait_until(find_difference, "all nodes to have the same topics")
    cluster.wait_until(
        lambda: None if produce(victim, "before", led_by_victim[0]) is ErrorCode.NONE else "not yet",
        "the node to serve its partitions again",
    )


def cut_both(cluster: Cluster, leader: int, follower: int) -> None:
    cluster.interrupt_link(leader, follower)
    cluster.interrupt_link(follower, leader)


def cut_responses(cluster: Cluster, leader: int, follower: int) -> None:
    cluster.interrupt_link(leader, follower)


def cut_fetches(cluster: Cluster, leader: int, follower: int) -> None:
    cluster.interrupt_link(follower, leader)


@pytest.mark.parametrize("cut", [cut_both, cut_responses, cut_fetches])
def test_acks_all_continues_without_isolated_follower(
    chronik_cluster_factory: ClusterFactory,
    cut: Callable[[Cluster, int, int], None],
    record_property: Callable[[str, object], None],
) -> None:
    cluster = chronik_cluster_factory(links=True, broker={"replica.lag.time.max.ms": int(LAG_SECONDS * 1000)})
    controller = cluster.leader().node_id
    leader, follower = [node_id for node_id in cluster.nodes if node_id != controller]
    create_topic(cluster.nodes[leader], "cut", [leader, follower, controller], min_insync_replicas="2")
    place = Place("cut", 0)
    replication_helpers.wait_until_in_sync(cluster, [place])
    load = replication_helpers.ConfluentLoad(cluster.bootstrap, "cut", 1)
    with replication_helpers.running_clients(load):
        load.wait_until_progress()
        assert replication_helpers.leader_of(cluster, place).node_id == leader
        load.reset_gaps()
        cut(cluster, leader, follower)
        was_cut = time.monotonic()
        cluster.wait_until(
            lambda: (
                None
                if set(seen := partition_states.read_partition_states(cluster.nodes[leader], ["cut"])[place].in_sync)
                == {leader, controller}
                else f"in sync are {seen}"
            ),
            "the follower to leave the ISR",
        )
        load.wait_until_progress()
        went_on = time.monotonic() - was_cut
        gap = load.longest_gap(0)
        cluster.restore_links()
        replication_helpers.wait_until_in_sync(cluster, [place])
        load.wait_until_progress()
    assert not load.problems, load.problems
    assert replication_helpers.check_records(cluster.bootstrap, [place], [load]) == load.count
    replication_helpers.check_replicas(cluster, [place])
    assert went_on < GOES_ON_SECONDS_MAX
    record_property("summary", f"{cut.__name__}: no acknowledgement for {gap:.1f} s, with a lag of {LAG_SECONDS:g} s")
