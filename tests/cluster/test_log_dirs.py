"""DescribeLogDirs reports the lag of a replica that is catching up."""

from __future__ import annotations

import pytest

from chronik.protocol.errors import ErrorCode
from chronik.protocol.messages.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)
from chronik.testing.cluster import ClusterNode
from chronik.testing.plugin import ClusterFactory
from tests.api import request_builders
from tests.cluster import replication_helpers
from tests.raw import RawClient

pytestmark = pytest.mark.xdist_group("cluster")

BATCHES = 12
BATCH_BYTES = 1_000_000
"""A few batches fit into the first response to a follower; after that, the throttle applies."""

RATE = "follower.replication.throttled.rate"


def lag(node: ClusterNode, topic: str) -> int | None:
    """Return the lag, or None while a restarted node does not know the topic."""
    request = DescribeLogDirsRequest(topics=[DescribableLogDirTopic(topic=topic, partitions=[0])])
    with RawClient(node.bootstrap) as client:
        (result,) = client.request(request, 4, DescribeLogDirsResponse).results
    assert result.error_code == ErrorCode.NONE
    return result.topics[0].partitions[0].offset_lag if result.topics else None


def test_describe_log_dirs_reports_lag_of_throttled_replica(chronik_cluster_factory: ClusterFactory) -> None:
    cluster = chronik_cluster_factory()
    [place] = replication_helpers.create_topic(cluster, "slow", follower_replication_throttled_replicas="*")
    leader = replication_helpers.leader_of(cluster, place)
    behind = next(node for node in cluster.nodes.values() if node is not leader)
    behind.kill()
    with RawClient(leader.bootstrap) as client:
        assert (
            request_builders.alter_configs(
                client, request_builders.BROKER, str(behind.node_id), (RATE, request_builders.SET, "1")
            )
            is ErrorCode.NONE
        )
        for _ in range(BATCHES):
            sent = request_builders.produce(client, "slow", request_builders.batch(b"v" * BATCH_BYTES))
            assert sent.error_code == ErrorCode.NONE
    behind.start()
    reported_lag = replication_helpers.wait_for("a reported lag", lambda: lag(behind, "slow"))
    assert 0 < reported_lag <= BATCHES
    assert all(lag(node, "slow") == 0 for node in cluster.live_nodes if node is not behind)
