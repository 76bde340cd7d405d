"""The ISR of a partition stays complete while producers with many requests in flight send at full speed."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from chronik.client.offsets import list_latest_offsets
from chronik.client.records import TopicPartition
from chronik.limits import MIB
from chronik.testing.cluster import Cluster
from chronik.testing.plugin import ClusterFactory
from tests.chaos import partition_states
from tests.chaos.history import Place
from tests.cluster import replication_helpers
from tests.cluster.fast_producers import IsrChanges, produce_at_full_speed
from tests.run_size import IS_LONG_RUN, sized

pytestmark = pytest.mark.xdist_group("cluster")

LAG_MS = sized(2000, 10_000)
"""Short in `make test`, so that a follower that is not caught up leaves the ISR during the test."""

ISR_CHANGE_LINES_MAX = 100
"""For 51 partitions on three nodes that lose a follower and get it back, with at most three lines per command. A leader
that lets a stopped follower rejoin repeatedly logs hundreds."""

SECONDS = sized(5, 60)
LOADS = [(100, 1), (10_000, 1), (500_000, 1), (10_000, 64)] if IS_LONG_RUN else [(10_000, 1)]


@pytest.mark.parametrize(("size", "producers"), LOADS)
def test_isr_stays_complete_without_duplicates_at_full_load(
    size: int,
    producers: int,
    chronik_cluster_factory: ClusterFactory,
    record_property: Callable[[str, object], None],
) -> None:
    cluster = chronik_cluster_factory(
        broker_session_ms=30_000,  # a busy machine must not fence a slow node
        broker={"replica.lag.time.max.ms": LAG_MS, "log.retention.check.interval.ms": 1000},
    )
    [place] = replication_helpers.create_topic(
        cluster,
        "loaded",
        min_insync_replicas="2",
        segment_bytes=str(64 * MIB),
        retention_bytes=str(256 * MIB),  # a minute at full load is 20 GB, and deleted files stay for a minute
        file_delete_delay_ms="1000",
    )
    changes = IsrChanges(cluster)
    delivered = produce_at_full_speed(cluster.bootstrap, "loaded", size, SECONDS, producers)
    end, lines = log_end(cluster, place), changes.lines()
    record_property(
        "summary",
        f"{producers} producers, values of {size} bytes, {delivered.seconds:.1f} s: {delivered.records} records"
        f" delivered, {delivered.megabytes_per_second(size):.1f} MB/s, log end {end}, {len(lines)} ISR changes",
    )
    assert lines == []
    assert delivered.failures == []
    assert delivered.records == end
    assert partition_states.out_of_sync_reason(cluster, [place]) is None


def test_stopped_follower_leaves_isr_once_and_returns_once(chronik_cluster_factory: ClusterFactory) -> None:
    cluster = chronik_cluster_factory(broker_session_ms=30_000, broker={"replica.lag.time.max.ms": 1000})
    [place] = replication_helpers.create_topic(cluster, "loaded", min_insync_replicas="2")
    leader = replication_helpers.leader_of(cluster, place)
    follower = next(node for node in cluster.nodes.values() if node is not leader)
    changes = IsrChanges(cluster)
    follower.pause()
    try:
        delivered = produce_at_full_speed(leader.bootstrap, "loaded", 10_000, 4.0, enable_idempotence=True)
        assert follower.node_id not in partition_states.read_partition_states(leader, ["loaded"])[place].in_sync
    finally:
        follower.resume()
    replication_helpers.wait_until_in_sync(cluster, [place])
    assert delivered.failures == []
    assert delivered.records == log_end(cluster, place)
    lines = [line for line in changes.lines() if "more partitions" not in line]
    assert 2 <= len(lines) <= ISR_CHANGE_LINES_MAX, "\n".join(lines)


def log_end(cluster: Cluster, place: Place) -> int:
    partition = TopicPartition(place.topic, place.partition)
    with cluster.live_nodes[0].cluster() as client:
        return list_latest_offsets(client, [partition])[partition]
