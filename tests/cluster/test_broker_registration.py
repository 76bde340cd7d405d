"""Broker registration, as each node reports it itself."""

from __future__ import annotations

import random
import time

import pytest

from chronik.client.errors import ConnectionLost
from chronik.testing import Cluster
from chronik.testing.plugin import ClusterFactory
from tests.run_size import SEED, sized

ALL = [1, 2, 3]
DELAY_SECONDS_MAX = 1.5
"""Longer than an election: some nodes start during the vote, some after it."""


def epochs(cluster: Cluster) -> list[dict[int, int]]:
    """Return the broker epochs that each live node sees."""
    return [{broker["id"]: broker["epoch"] for broker in node.status()["brokers"]} for node in cluster.live_nodes]


def start_at_random(cluster: Cluster, randomness: random.Random) -> str:
    """Start all nodes in random order with random delays, and return a description."""
    order = randomness.sample(ALL, len(ALL))
    starts = []
    for node_id in order:
        delay = randomness.uniform(0, DELAY_SECONDS_MAX)
        time.sleep(delay)
        cluster[node_id].start()
        starts.append(f"node {node_id} after {delay:.2f} s")
    return ", ".join(starts)


def test_all_nodes_list_all_brokers_after_start(chronik_cluster_factory: ClusterFactory) -> None:
    cluster = chronik_cluster_factory()
    assert [node.listed_brokers() for node in cluster.live_nodes] == [ALL, ALL, ALL]
    assert [node.not_ready_reason() for node in cluster.live_nodes] == [None, None, None]
    cluster.wait_until_agreed()


def test_dead_broker_is_removed_after_controller_change(
    chronik_cluster_factory: ClusterFactory,
) -> None:
    cluster = chronik_cluster_factory()
    for _ in range(sized(2, 20)):
        leader, term = cluster.leader(), cluster.leader().status()["term"]
        leader.kill()
        others = [node_id for node_id in ALL if node_id != leader.node_id]
        cluster.wait_until_listed(others)
        successor = cluster.leader()
        assert successor.node_id in others
        assert successor.status()["term"] > term
        leader.start()
        cluster.wait_until_listed(ALL)
    cluster.wait_until_ready()
    cluster.wait_until_agreed()


def wait_until_created(cluster: Cluster) -> None:
    """Wait until each node knows the cluster id, which is committed after the first registrations."""

    def find_unaware_node() -> str | None:
        return next((f"node {each.node_id}" for each in cluster.live_nodes if not each.status()["cluster_id"]), None)

    cluster.wait_until(find_unaware_node, "the cluster id on all nodes")


@pytest.mark.parametrize("crash", [False, True], ids=["graceful", "crash"])
def test_restarted_node_is_listed_with_new_incarnation(chronik_cluster_factory: ClusterFactory, crash: bool) -> None:
    cluster = chronik_cluster_factory()
    for node_id in ALL:
        before = epochs(cluster)[0][node_id]
        if crash:
            cluster[node_id].kill()
        cluster[node_id].restart()

        def find_old_epoch(node_id: int = node_id, before: int = before) -> str | None:
            seen = [each.get(node_id, -1) for each in epochs(cluster)]  # -1: removed after its session timed out
            return None if min(seen) > before else f"epochs {seen}, and {before} before"

        cluster.wait_until(find_old_epoch, f"a new epoch of node {node_id} on all nodes")
        cluster.wait_until_listed(ALL)
    cluster.wait_until_ready()
    cluster.wait_until_agreed()


def test_new_cluster_starts_in_any_order(chronik_cluster_factory: ClusterFactory) -> None:
    randomness = random.Random(SEED)
    for _ in range(sized(3, 20)):
        cluster = chronik_cluster_factory(start=False)
        starts = start_at_random(cluster, randomness)
        cluster.wait_until_listed(ALL)
        cluster.wait_until_ready()
        wait_until_created(cluster)
        assert len({node.status()["cluster_id"] for node in cluster.live_nodes}) == 1, starts
        cluster.wait_until_agreed()
        cluster.close()


def test_cluster_restarts_in_any_order_after_power_loss(
    chronik_cluster_factory: ClusterFactory,
) -> None:
    randomness = random.Random(SEED)
    cluster = chronik_cluster_factory()
    wait_until_created(cluster)
    index, cluster_id = cluster.wait_until_agreed(), cluster.status(1)["cluster_id"]
    for _ in range(sized(2, 20)):
        for node in cluster.live_nodes:
            node.kill()
        starts = start_at_random(cluster, randomness)
        cluster.wait_until_ready()
        cluster.wait_until_listed(ALL)
        assert {node.status()["cluster_id"] for node in cluster.live_nodes} == {cluster_id}, starts
        grown = cluster.wait_until_agreed()
        assert grown > index, "the log must contain three new registrations"
        index = grown


def test_stopped_cluster_restarts_with_same_state(chronik_cluster_factory: ClusterFactory) -> None:
    cluster = chronik_cluster_factory()
    cluster[1].create_topic("kept")
    cluster.wait_until_agreed()
    before = epochs(cluster)[0]
    cluster.restart()
    cluster.wait_until_listed(ALL)
    cluster.wait_until_ready()
    for seen in epochs(cluster):
        assert all(seen[node_id] > before[node_id] for node_id in ALL)
    for node in cluster.live_nodes:
        with node.cluster() as client:
            assert client.topic("kept").name == "kept"


def test_cluster_starts_without_one_node(chronik_cluster_factory: ClusterFactory) -> None:
    for missing in random.Random(SEED).sample(ALL, sized(1, len(ALL))):
        cluster = chronik_cluster_factory(start=False)
        present = [node_id for node_id in ALL if node_id != missing]
        for node_id in present:
            cluster[node_id].start()
        cluster.wait_until_listed(present)
        cluster.wait_until_ready()
        cluster[missing].start()
        cluster.wait_until_listed(ALL)
        cluster.wait_until_ready()
        cluster.wait_until_agreed()
        cluster.close()


def test_first_node_of_cluster_reports_not_ready(chronik_cluster_factory: ClusterFactory) -> None:
    """The node knows no brokers yet, and disconnects clients, which try their next bootstrap server."""
    cluster = chronik_cluster_factory(start=False)
    cluster[2].start()
    with pytest.raises(ConnectionLost):
        cluster[2].listed_brokers()
    why_not = cluster[2].not_ready_reason()
    assert why_not is not None
    assert why_not.startswith("not ready: ")
    assert cluster[2].status()["role"] != "leader"
    cluster[1].start()
    cluster[3].start()
    cluster.wait_until_ready()
    cluster.wait_until_listed(ALL)
