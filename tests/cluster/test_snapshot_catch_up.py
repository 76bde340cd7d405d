"""A node that missed more than the log retains receives a snapshot and then the rest of the log."""

from __future__ import annotations

import pytest

from chronik.protocol.errors import ErrorCode
from chronik.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from chronik.testing.cluster import ClusterNode
from chronik.testing.plugin import ClusterFactory
from tests.raw import RawClient

pytestmark = pytest.mark.xdist_group("cluster")

SNAPSHOT_ENTRIES = 100


def create_one_by_one(node: ClusterNode, names: list[str]) -> None:
    with RawClient(node.bootstrap) as client:
        for name in names:
            request = CreateTopicsRequest(topics=[CreatableTopic(name=name, num_partitions=1, replication_factor=1)])
            assert client.request(request, 7, CreateTopicsResponse).topics[0].error_code == ErrorCode.NONE


def test_returning_node_receives_snapshot_and_remaining_log(
    chronik_cluster_factory: ClusterFactory,
) -> None:
    cluster = chronik_cluster_factory(metadata_snapshot_entries=SNAPSHOT_ENTRIES, metadata_kept_bytes=0)
    leader = cluster.leader()
    away = next(node for node in cluster.live_nodes if node is not leader)
    before = away.status()["applied_index"]
    away.stop()
    create_one_by_one(leader, [f"topic-{number}" for number in range(3 * SNAPSHOT_ENTRIES)])
    cluster.wait_until(
        lambda: None if leader.status()["first_index"] > before + 1 else f"{leader.status()['first_index']} entries",
        "the log to be truncated after a snapshot",
    )
    away.start()
    cluster.wait_until_ready()
    create_one_by_one(leader, ["afterwards"])
    cluster.wait_until_agreed()
    assert away.status()["snapshot_index"] > before
    assert away.status()["topics"] == leader.status()["topics"] > 3 * SNAPSHOT_ENTRIES
    cluster.restart()
    cluster.wait_until_ready()
    cluster.wait_until_agreed()
    assert away.status()["topics"] > 3 * SNAPSHOT_ENTRIES
