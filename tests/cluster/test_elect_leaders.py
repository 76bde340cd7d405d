"""Leader elections: on request, automatic for imbalance, and unclean only where requested."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest
from confluent_kafka import ElectionType, TopicPartition
from confluent_kafka.admin import AdminClient

from chronik.protocol.errors import ErrorCode
from chronik.testing.cluster import Cluster
from chronik.testing.plugin import ClusterFactory
from tests.cluster.partitions import (
    PartitionView,
    create_topic,
    elect_leaders,
    read_partitions,
    wait_until_in_sync,
    wait_until_seen,
)

pytestmark = pytest.mark.xdist_group("cluster")

NONE = ErrorCode.NONE


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(3) as cluster:
        yield cluster


@pytest.fixture(autouse=True)
def whole_again(cluster: Cluster) -> Iterator[None]:
    yield
    cluster.start()
    cluster.wait_until_ready()


def test_preferred_election_restores_preferred_leaders(cluster: Cluster) -> None:
    create_topic(cluster[1], "orders", [1, 2, 3], [2, 3, 1], [1, 3, 2])
    assert elect_leaders(cluster[1], ("orders", 0)) == {("orders", 0): ErrorCode.ELECTION_NOT_NEEDED}
    cluster[1].kill()
    cluster.wait_until_listed([2, 3])
    assert [seen.leader for seen in read_partitions(cluster[2], "orders")] == [2, 2, 3]
    assert elect_leaders(cluster[2], ("orders", 0), version=0) == {
        ("orders", 0): ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    }
    cluster[1].start()
    wait_until_in_sync(cluster, "orders")
    assert elect_leaders(cluster[2], ("orders", 0), ("orders", 9), ("nothing", 0), version=1) == {
        ("orders", 0): NONE,
        ("orders", 9): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ("nothing", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    everything = elect_leaders(cluster[3])
    assert everything["orders", 2] is NONE
    assert ("orders", 0) not in everything, "a partition whose preferred replica leads is not reported"
    three = [1, 2, 3]
    expected = (
        PartitionView(1, [1, 2, 3], three),
        PartitionView(2, [2, 3, 1], three),
        PartitionView(1, [1, 3, 2], three),
    )
    wait_until_seen(cluster, "orders", *expected)


def test_elect_leaders_by_stock_client(cluster: Cluster) -> None:
    create_topic(cluster[1], "stock", [2, 1])
    admin = AdminClient({"bootstrap.servers": cluster[3].bootstrap})
    partition = TopicPartition("stock", 0)
    results = admin.elect_leaders(ElectionType.PREFERRED, [partition]).result(30)
    (error,) = results.values()
    assert error is not None
    assert error.name() == "ELECTION_NOT_NEEDED"


def test_only_unclean_election_succeeds_without_isr_member(cluster: Cluster) -> None:
    create_topic(cluster[3], "strict", [1, 2])
    create_topic(cluster[3], "loose", [1, 2], unclean_leader_election_enable="true")
    cluster[2].kill()
    wait_until_seen(cluster, "strict", PartitionView(1, [1, 2], [1]))
    wait_until_seen(cluster, "loose", PartitionView(1, [1, 2], [1]))
    cluster[1].kill()
    cluster[2].start()
    cluster.wait_until_listed([2, 3])
    wait_until_seen(cluster, "loose", PartitionView(2, [1, 2], [2]))
    offline = PartitionView(-1, [1, 2], [1], ErrorCode.LEADER_NOT_AVAILABLE)
    wait_until_seen(cluster, "strict", offline)
    assert elect_leaders(cluster[3], ("strict", 0)) == {("strict", 0): ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE}
    assert elect_leaders(cluster[3], unclean=True)["strict", 0] is NONE
    wait_until_seen(cluster, "strict", PartitionView(2, [1, 2], [2]))
    again = elect_leaders(cluster[3], ("strict", 0), unclean=True)
    assert again == {("strict", 0): ErrorCode.ELECTION_NOT_NEEDED}
    cluster[1].start()
    wait_until_in_sync(cluster, "strict")


def test_no_leader_is_elected_without_live_replica(cluster: Cluster) -> None:
    create_topic(cluster[3], "alone", [1])
    cluster[1].kill()
    cluster.wait_until_listed([2, 3])
    wait_until_seen(cluster, "alone", PartitionView(-1, [1], [1], ErrorCode.LEADER_NOT_AVAILABLE))
    nobody = {("alone", 0): ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE}
    assert elect_leaders(cluster[3], ("alone", 0), unclean=True) == nobody
    cluster[1].start()
    wait_until_seen(cluster, "alone", PartitionView(1, [1], [1]))


def test_auto_rebalance_restores_preferred_leaders(chronik_cluster_factory: ClusterFactory) -> None:
    cluster = chronik_cluster_factory(
        broker={"leader.imbalance.check.interval.seconds": "1", "leader.imbalance.per.broker.percentage": "0"}
    )
    create_topic(cluster[1], "orders", [1, 2, 3], [2, 3, 1])
    cluster[1].restart()
    three = [1, 2, 3]
    wait_until_seen(cluster, "orders", PartitionView(1, [1, 2, 3], three), PartitionView(2, [2, 3, 1], three))


def test_partition_stays_offline_after_loss_of_last_disk(
    chronik_cluster_factory: ClusterFactory,
) -> None:
    cluster = chronik_cluster_factory(min_insync_replicas=1)
    victim = next(node for node in cluster.live_nodes if node is not cluster.leader())
    create_topic(victim, "lost", [victim.node_id])
    victim.kill()
    shutil.rmtree(victim.data_dir)
    victim.start()
    offline = PartitionView(-1, [victim.node_id], [], ErrorCode.LEADER_NOT_AVAILABLE)
    wait_until_seen(cluster, "lost", offline)
    cluster.wait_until_ready()

    def warnings() -> list[str]:
        logs = "\n".join(node.log for node in cluster.nodes.values())
        return [line for line in logs.splitlines() if "partition lost-0 is offline" in line]

    cluster.wait_until(lambda: None if warnings() else "no warning", "a warning in a log")
    create_topic(victim, "other", [1, 2, 3])
    wait_until_in_sync(cluster, "other")
    victim.restart()  # triggers another check of all partitions
    wait_until_in_sync(cluster, "other")
    wait_until_seen(cluster, "lost", offline)
    assert len(warnings()) == 1, warnings()
    assert " WARNING " in warnings()[0]
    assert elect_leaders(cluster.leader(), ("lost", 0), unclean=True) == {("lost", 0): NONE}
    wait_until_seen(cluster, "lost", PartitionView(victim.node_id, [victim.node_id], [victim.node_id]))


def test_system_topics_are_in_sync_after_restart(cluster: Cluster) -> None:
    for node in list(cluster.live_nodes):
        node.restart()
    for topic in ("__consumer_offsets", "__transaction_state", "__meta"):
        wait_until_in_sync(cluster, topic)
