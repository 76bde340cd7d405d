"""Fifteen nodes on one machine, with five voters.

Five nodes, including the leader and another voter, are killed under load and never return: no record is lost, and the
cluster stays available.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import combinations

import pytest

from chronik.client.cluster import ClusterClient as ClusterClient
from chronik.testing.cluster import Cluster
from chronik.testing.plugin import ClusterFactory
from tests.cluster import membership_helpers, replication_helpers
from tests.run_size import SEED

pytestmark = pytest.mark.xdist_group("cluster")

NODES = 15
VOTERS = 5
COPIES = 5
MIN_IN_SYNC = 2
LOST_VOTERS, LOST_OBSERVERS = 2, 3
PARTITIONS = NODES
RATE = 150.0


def test_fifteen_node_cluster_survives_loss_of_five(
    chronik_cluster_factory: ClusterFactory, record_property: Callable[[str, object], None]
) -> None:
    began = time.monotonic()
    cluster = chronik_cluster_factory(NODES, replication_factor=COPIES, min_insync_replicas=MIN_IN_SYNC)
    up_seconds = time.monotonic() - began
    assert membership_helpers.voter_letters(cluster[1]) == "V" * VOTERS + "o" * (NODES - VOTERS)
    places = replication_helpers.create_topic(cluster, "kept", PARTITIONS, COPIES)
    cluster.wait_until_agreed()

    load = replication_helpers.ConfluentLoad(cluster.bootstrap, "kept", PARTITIONS, rate=RATE)
    follower = replication_helpers.ConfluentConsumerLoad(cluster.bootstrap, "kept", "readers")
    with replication_helpers.running_clients(load, follower):
        load.wait_until_progress()
        follower.wait_until_progress()
        acknowledged = load.count
        lost = sorted(choose_victims(cluster))
        load.reset_gaps()
        with ThreadPoolExecutor(len(lost)) as threads:
            list(threads.map(lambda node_id: cluster[node_id].kill(), lost))
        load.wait_until_progress()
        cluster.wait_until_listed(set(cluster.nodes) - set(lost))
        assert cluster.leader().node_id not in lost
        load.wait_until_progress()
        gaps = [load.longest_gap(partition) for partition in range(PARTITIONS)]
        assert load.count > acknowledged
        cluster.wait_until_agreed()
        load.stop()
        load.join()
        ends = {
            place.partition: end for place, end in replication_helpers.end_offsets(cluster.bootstrap, places).items()
        }
        follower.wait_until_read(ends)
    assert not load.problems, load.problems[:3]

    records = replication_helpers.check_records(cluster.bootstrap, places, [load])
    assert records == load.count
    replication_helpers.check_consumer(cluster.bootstrap, places, follower)
    assert cluster.wait_until_agreed() > 0
    assert len(cluster.live_nodes) == NODES - len(lost)
    record_property(
        "summary",
        f"15 nodes, started in {up_seconds:.1f} s, lost five ({lost}): {records:,} records acknowledged, 0 lost; "
        f"without an acknowledgement for {replication_helpers.format_median_and_max(gaps)}",
    )


def choose_victims(cluster: Cluster) -> Collection[int]:
    """Return the leader, another voter and three observers that all partitions can lose.

    Every partition keeps at least `min.insync.replicas` replicas; five replicas survive the loss of three.
    """
    leader = cluster.leader().node_id
    with ClusterClient(cluster.bootstrap, client_id="loss") as client:
        topics = client.metadata(None).topics
    held = {frozenset(each.replica_nodes) for topic in topics for each in topic.partitions}
    candidates = list(_candidate_losses(leader))
    random.Random(SEED).shuffle(candidates)
    return next(lost for lost in candidates if all(len(replicas - lost) >= MIN_IN_SYNC for replicas in held))


def _candidate_losses(leader: int) -> Iterator[frozenset[int]]:
    other_voters = [voter for voter in range(1, VOTERS + 1) if voter != leader]
    for voters in combinations(other_voters, LOST_VOTERS - 1):
        for observers in combinations(range(VOTERS + 1, NODES + 1), LOST_OBSERVERS):
            yield frozenset({leader, *voters, *observers})
