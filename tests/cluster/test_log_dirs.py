"""DescribeLogDirs: a replica that has not got everything yet says by how much."""

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
from tests.api import talk
from tests.cluster import replicated
from tests.raw import RawClient

pytestmark = pytest.mark.xdist_group("cluster")

BATCHES = 12
BATCH_BYTES = 1_000_000
"""A few of them fit the first answer that a follower gets; behind it, it keeps to its rate."""

RATE = "follower.replication.throttled.rate"


def lag(node: ClusterNode, topic: str) -> int | None:
    """None as long as a node that has just started knows nothing of the topic."""
    request = DescribeLogDirsRequest(topics=[DescribableLogDirTopic(topic=topic, partitions=[0])])
    with RawClient(node.bootstrap) as client:
        (result,) = client.ask(request, 4, DescribeLogDirsResponse).results
    assert result.error_code == ErrorCode.NONE
    return result.topics[0].partitions[0].offset_lag if result.topics else None


def test_describe_log_dirs_reports_lag_of_throttled_replica(chronik_cluster_factory: ClusterFactory) -> None:
    cluster = chronik_cluster_factory()
    [place] = replicated.make_topic(cluster, "slow", follower_replication_throttled_replicas="*")
    leader = replicated.leader_of(cluster, place)
    behind = next(node for node in cluster.nodes.values() if node is not leader)
    behind.kill()
    with RawClient(leader.bootstrap) as client:
        assert talk.alter(client, talk.BROKER, str(behind.node_id), (RATE, talk.SET, "1")) is ErrorCode.NONE
        for _ in range(BATCHES):
            sent = talk.produce(client, "slow", talk.batch(b"v" * BATCH_BYTES))
            assert sent.error_code == ErrorCode.NONE
    behind.start()
    told = replicated.wait_for("it says that it lacks some", lambda: lag(behind, "slow"))
    assert 0 < told <= BATCHES
    assert all(lag(node, "slow") == 0 for node in cluster.live if node is not behind)
