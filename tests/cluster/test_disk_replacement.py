"""A node with a replaced disk is refilled by replication; a partition without any in-sync disk stays offline."""

from __future__ import annotations

import shutil

import pytest

from chronik.protocol.errors import ErrorCode
from chronik.testing.cluster import ClusterNode
from chronik.testing.plugin import ClusterFactory
from tests.api.request_builders import batch, describe_topic, produce
from tests.chaos.history import Place
from tests.cluster import replication_helpers
from tests.cluster.partitions import create_topic
from tests.raw import RawClient

pytestmark = pytest.mark.xdist_group("cluster")

WIPED = 2


def wait_until_known(client: RawClient, topic: str) -> None:
    """Wait until the node knows a topic that another node has created."""
    replication_helpers.wait_for(
        f"{topic} to be known", lambda: describe_topic(client, topic).error_code == ErrorCode.NONE
    )


def wipe(node: ClusterNode) -> None:
    node.kill()
    shutil.rmtree(node.data_dir)


def test_replaced_disk_is_refilled_under_load(
    chronik_cluster_factory: ClusterFactory,
) -> None:
    cluster = chronik_cluster_factory()
    wiped = cluster.nodes[WIPED]
    places = replication_helpers.create_topic(cluster, "copied", 3)
    create_topic(cluster.nodes[1], "single", [WIPED], [1])
    load = replication_helpers.ConfluentLoad(cluster.bootstrap, "copied", 3)
    with RawClient(wiped.bootstrap) as client:
        wait_until_known(client, "single")
        assert produce(client, "single", batch(b"the only copy")).error_code == ErrorCode.NONE
    with replication_helpers.running_clients(load):
        load.wait_until_progress(records=100)
        wipe(wiped)
        load.wait_until_progress(records=50)
        wiped.start()
        replication_helpers.wait_until_in_sync(cluster, places)
        load.wait_until_progress()
    assert not load.problems, load.problems
    assert replication_helpers.check_records(cluster.bootstrap, places, [load]) == load.count
    replication_helpers.check_replicas(cluster, places)
    for place in places:
        assert replication_helpers.read_stored_logs(cluster, place)[WIPED].start == 0
        assert replication_helpers.read_stored_logs(cluster, place)[WIPED].batches
    cluster.wait_until_ready()
    for node in cluster.nodes.values():
        with RawClient(node.bootstrap) as client:
            lost, kept = sorted(describe_topic(client, "single").partitions, key=lambda each: each.partition_index)
            assert ErrorCode(lost.error_code) is ErrorCode.LEADER_NOT_AVAILABLE
            assert (lost.leader_id, lost.isr_nodes, lost.replica_nodes) == (-1, [], [WIPED])
            assert ErrorCode(kept.error_code) is ErrorCode.NONE
            answer = produce(client, "single", batch(b"nobody takes it"))
            assert ErrorCode(answer.error_code) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    with RawClient(cluster.nodes[1].bootstrap) as client:
        assert produce(client, "single", batch(b"still taken"), partition=1).error_code == ErrorCode.NONE


def test_partition_stays_offline_without_last_in_sync_disk(
    chronik_cluster_factory: ClusterFactory,
) -> None:
    """The followers missed the last records and must not become leaders."""
    cluster = chronik_cluster_factory()
    last = cluster.nodes[1]
    create_topic(last, "shrunk", [1, 2], min_insync_replicas="1")
    place = Place("shrunk", 0)
    replication_helpers.wait_until_in_sync(cluster, [place])
    with RawClient(last.bootstrap) as client:
        wait_until_known(client, "shrunk")
        assert produce(client, "shrunk", batch(b"on both")).error_code == ErrorCode.NONE
    cluster.nodes[2].kill()
    with RawClient(last.bootstrap) as client:
        assert produce(client, "shrunk", batch(b"on one")).error_code == ErrorCode.NONE
    wipe(last)
    cluster.nodes[2].start()
    last.start()
    cluster.wait_until_ready()

    def missing() -> str | None:
        for node in cluster.nodes.values():
            with RawClient(node.bootstrap) as client:
                [seen] = describe_topic(client, "shrunk").partitions
            if (seen.error_code, seen.leader_id, seen.isr_nodes) != (ErrorCode.LEADER_NOT_AVAILABLE, -1, []):
                return f"node {node.node_id} sees {seen}"
        return None

    cluster.wait_until(missing, "the partition to be offline, with an empty ISR")
    for node in cluster.nodes.values():
        with RawClient(node.bootstrap) as client:
            answer = produce(client, "shrunk", batch(b"nobody takes it"))
            assert ErrorCode(answer.error_code) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert replication_helpers.read_stored_logs(cluster, place)[2].batches[0].content.endswith(b"on both\x00")
