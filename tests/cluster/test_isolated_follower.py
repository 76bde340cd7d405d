"""A follower is disconnected from its leader only, while both reach the controller: acks=all continues."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from chronik.testing.cluster import Cluster
from chronik.testing.plugin import ClusterFactory
from tests.chaos import standing
from tests.chaos.history import Place
from tests.cluster import replicated
from tests.cluster.partitions import create

pytestmark = pytest.mark.xdist_group("cluster")

LAG_SECONDS = 1.0
GOES_ON_SECONDS_MAX = 10 * LAG_SECONDS


def cut_both(cluster: Cluster, leader: int, follower: int) -> None:
    cluster.cut(leader, follower)
    cluster.cut(follower, leader)


def cut_responses(cluster: Cluster, leader: int, follower: int) -> None:
    cluster.cut(leader, follower)


def cut_fetches(cluster: Cluster, leader: int, follower: int) -> None:
    cluster.cut(follower, leader)


@pytest.mark.parametrize("cut", [cut_both, cut_responses, cut_fetches])
def test_acks_all_continues_without_isolated_follower(
    chronik_cluster_factory: ClusterFactory,
    cut: Callable[[Cluster, int, int], None],
    record_property: Callable[[str, object], None],
) -> None:
    cluster = chronik_cluster_factory(links=True, broker={"replica.lag.time.max.ms": int(LAG_SECONDS * 1000)})
    controller = cluster.leader().node_id
    leader, follower = [node_id for node_id in cluster.nodes if node_id != controller]
    create(cluster.nodes[leader], "cut", [leader, follower, controller], min_insync_replicas="2")
    place = Place("cut", 0)
    replicated.wait_until_in_sync(cluster, [place])
    load = replicated.ConfluentLoad(cluster.bootstrap, "cut", 1)
    with replicated.running(load):
        load.wait_until_it_goes_on()
        assert replicated.leader_of(cluster, place).node_id == leader
        load.forget_gaps()
        cut(cluster, leader, follower)
        was_cut = time.monotonic()
        cluster.wait_until(
            lambda: (
                None
                if set(seen := standing.ask(cluster.nodes[leader], ["cut"])[place].in_sync) == {leader, controller}
                else f"in sync are {seen}"
            ),
            "the follower to leave the ISR",
        )
        load.wait_until_it_goes_on()
        went_on = time.monotonic() - was_cut
        gap = load.gap(0)
        cluster.heal()
        replicated.wait_until_in_sync(cluster, [place])
        load.wait_until_it_goes_on()
    assert not load.problems, load.problems
    assert replicated.check_records(cluster.bootstrap, [place], [load]) == load.count
    replicated.check_replicas(cluster, [place])
    assert went_on < GOES_ON_SECONDS_MAX
    record_property("summary", f"{cut.__name__}: no acknowledgement for {gap:.1f} s, with a lag of {LAG_SECONDS:g} s")
