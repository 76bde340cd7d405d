"""A killed broker is fenced long before its session expires, because its port refuses connections.

A controller that resumes after a long pause has missed all heartbeats, and must not fence the other brokers.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import pytest

from chronik.testing.cluster import Cluster, ClusterNode
from chronik.testing.plugin import ClusterFactory
from tests.run_size import sized

pytestmark = pytest.mark.xdist_group("cluster")

ALL = [1, 2, 3]
SESSION_SECONDS = 60
"""So long that the brokers cannot be fenced by a missing heartbeat during the test."""

DEADLINE_SECONDS = 30

KILLS = sized(3, 20)

Summary = Callable[[str, object], None]

PAUSES = 3


def measure_seconds_until_fenced(cluster: Cluster, victim: ClusterNode) -> float:
    """Kill the broker, and restart it when all others have removed it from their lists."""
    others = [node_id for node_id in ALL if node_id != victim.node_id]
    victim.kill()
    died = time.monotonic()
    cluster.wait_until_listed(others, DEADLINE_SECONDS)
    seconds = time.monotonic() - died
    victim.start()
    cluster.wait_until_listed(ALL)
    return seconds


@pytest.mark.parametrize("kind", ["a follower", "the controller"])
def test_killed_broker_is_fenced_before_session_timeout(
    chronik_cluster_factory: ClusterFactory, record_property: Summary, kind: str
) -> None:
    cluster = chronik_cluster_factory(broker_session_ms=SESSION_SECONDS * 1000)
    seconds = []
    for _ in range(KILLS):
        leader = cluster.leader()
        others = [node for node in cluster.live_nodes if node is not leader]
        seconds.append(measure_seconds_until_fenced(cluster, leader if kind == "the controller" else others[0]))
    cluster.wait_until_ready()
    cluster.wait_until_agreed()
    record_property(
        "summary",
        f"killed {kind}: removed from all lists after {statistics.median(seconds):.2f} s, at most {max(seconds):.2f} s "
        f"({KILLS} kills)",
    )


def test_paused_or_isolated_broker_keeps_its_session(chronik_cluster_factory: ClusterFactory) -> None:
    cluster = chronik_cluster_factory(broker_session_ms=SESSION_SECONDS * 1000, links=True)
    leader = cluster.leader()
    paused, cut_off = (node for node in cluster.live_nodes if node is not leader)
    paused.pause()
    deadline = time.monotonic() + 3
    while time.monotonic() < deadline:
        assert leader.listed_brokers() == ALL
        time.sleep(0.1)
    paused.resume()
    cluster.isolate(cut_off.node_id)
    deadline = time.monotonic() + 3
    while time.monotonic() < deadline:
        assert leader.listed_brokers() == ALL
        time.sleep(0.1)
    cluster.restore_links()
    cluster.wait_until_ready()


def test_controller_paused_beyond_session_fences_no_brokers(
    chronik_cluster_factory: ClusterFactory,
) -> None:
    cluster = chronik_cluster_factory(broker_session_ms=2000)
    for _ in range(PAUSES):
        paused = cluster.leader()
        log_before = len(paused.log)
        others = [node.node_id for node in cluster.live_nodes if node is not paused]
        paused.pause()
        cluster.wait_until_listed(others)  # they have elected a new leader and fenced the old one
        paused.resume()
        cluster.wait_until_ready()
        judged = [line for line in paused.log[log_before:].splitlines() if "is offline" in line]
        assert not judged, judged
    cluster.wait_until_agreed()
