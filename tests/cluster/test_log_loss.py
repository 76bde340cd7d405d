"""Replicas that have lost their logs leave the ISR before they are refilled; if all have, the partition is offline
instead of empty.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable

import pytest

from chronik.protocol.errors import ErrorCode
from chronik.testing.cluster import Cluster, ClusterNode
from chronik.testing.plugin import ClusterFactory
from tests.api.request_builders import batch, produce
from tests.chaos import partition_states
from tests.cli.command_line import run_chronik
from tests.cluster import replication_helpers
from tests.cluster.test_data_directory_checks import PLACE, RECORDS, filled, read
from tests.raw import RawClient

pytestmark = pytest.mark.xdist_group("cluster")

GONE = "acct-0: synced records are missing on disk: offsets 0 to 299"


def delete_log(node: ClusterNode) -> None:
    shutil.move(node.data_dir / "topics", node.data_dir / "lost")


def restore_log(node: ClusterNode) -> None:
    shutil.rmtree(node.data_dir / "topics", ignore_errors=True)
    shutil.move(node.data_dir / "lost", node.data_dir / "topics")


def wait_until_offline(cluster: Cluster) -> None:
    """Wait until the partition has no leader and an empty ISR."""

    def missing() -> str | None:
        seen = partition_states.read_partition_states(cluster.nodes[1], [PLACE.topic])[PLACE]
        return None if (seen.leader, seen.in_sync) == (-1, ()) else f"{seen}"

    cluster.wait_until(missing, "nobody leads")


def kill_all(cluster: Cluster) -> None:
    """Kill all nodes at the same time, so that all stay in the ISR."""
    for node in cluster.nodes.values():
        node.pause()
    for node in cluster.nodes.values():
        node.kill()


def start_without(cluster: Cluster, losers: Iterable[ClusterNode]) -> None:
    for node in losers:
        delete_log(node)
    cluster.start()
    cluster.wait_until_ready()


def begin_anew(cluster: Cluster) -> None:
    begun = run_chronik("topics", "begin-anew", PLACE.topic, "--partition", "0", bootstrap=cluster.bootstrap)
    assert begun.lines == ["acct-0 continues with the records that its replicas have"]


def test_lost_logs_are_restored_from_in_sync_replica(chronik_cluster_factory: ClusterFactory) -> None:
    cluster = chronik_cluster_factory()
    values = filled(cluster)
    leader = partition_states.read_partition_states(cluster.nodes[1], [PLACE.topic])[PLACE].leader
    other = next(node_id for node_id in cluster.nodes if node_id != leader)
    kill_all(cluster)
    losers = [cluster.nodes[leader], cluster.nodes[other]]
    for node in losers:
        delete_log(node)
    for node in cluster.nodes.values():
        if node is not losers[1]:  # two nodes are a quorum and fence the third, which must not be the one with the log
            node.start()
    cluster.wait_until_ready()
    losers[1].start()
    assert read(cluster) == values
    for node in losers:
        assert GONE in node.log
    replication_helpers.check_replicas(cluster, [PLACE])


def test_loss_of_last_in_sync_log_requires_operator(
    chronik_cluster_factory: ClusterFactory,
) -> None:
    """Replicas that left the ISR earlier may lack records: only an operator can accept them."""
    cluster = chronik_cluster_factory()
    values = filled(cluster)
    last = cluster.nodes[3]
    for node in cluster.nodes.values():
        if node is not last:
            node.stop()
    last.kill()
    start_without(cluster, [last])
    wait_until_offline(cluster)
    shown = run_chronik("topics", "describe", PLACE.topic, bootstrap=cluster.bootstrap)
    assert shown.lines[-1].startswith("Partition 0 has lost records that were on ")
    begin_anew(cluster)
    assert read(cluster) == values


def test_partition_is_offline_until_lost_log_returns(chronik_cluster_factory: ClusterFactory) -> None:
    cluster = chronik_cluster_factory()
    values = filled(cluster)
    kill_all(cluster)
    start_without(cluster, cluster.nodes.values())
    wait_until_offline(cluster)
    for node in cluster.nodes.values():
        assert GONE in node.log
        with RawClient(node.bootstrap) as client:
            assert produce(client, PLACE.topic, batch(b"nobody takes it")).error_code != ErrorCode.NONE
    consumed = run_chronik("consume", PLACE.topic, "--from-beginning", "--timeout", "3", bootstrap=cluster.bootstrap)
    assert consumed.code == 1
    restored = cluster.nodes[2]
    restored.stop()
    restore_log(restored)
    restored.start()
    cluster.wait_until_ready()
    begin_anew(cluster)
    assert read(cluster) == values


def test_unclean_election_abandons_log_lost_on_all_replicas(chronik_cluster_factory: ClusterFactory) -> None:
    cluster = chronik_cluster_factory()
    filled(cluster)
    kill_all(cluster)
    start_without(cluster, cluster.nodes.values())
    wait_until_offline(cluster)
    begin_anew(cluster)
    replication_helpers.wait_until_in_sync(cluster, [PLACE])
    leader = partition_states.read_partition_states(cluster.nodes[1], [PLACE.topic])[PLACE].leader
    with RawClient(cluster.nodes[leader].bootstrap) as client:
        assert produce(client, PLACE.topic, batch(b"goes on")).base_offset == RECORDS
    assert read(cluster) == [b"goes on"]
