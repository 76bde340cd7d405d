"""A follower is disconnected from its leader only, while both reach the controller: acks=all continues."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from chronik.testing.cluster import Cluster
from chronik.testing.plugin import ClusterFactory
from tests.chaos import partition_states
from tests.chaos.history import Place
from tests.cluster import replication_helpers
from tests.cluster.partitions import create_topic

pytestmark = pytest.mark.xdist_group("cluster")

LAG_SECONDS = 1.0
GOES_ON_SECONDS_MAX = 10 * LAG_SECONDS


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
