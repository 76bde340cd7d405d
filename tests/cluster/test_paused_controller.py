"""A controller that resumes after a long pause has missed all heartbeats, and must not fence the other brokers."""

from __future__ import annotations

import pytest

from chronik.testing.plugin import ClusterFactory

pytestmark = pytest.mark.xdist_group("cluster")

PAUSES = 3


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
