"""The topics that each node of a cluster lists, read from that node's own Metadata API."""

from __future__ import annotations

from typing import Any

from chronik.protocol.messages.metadata import MetadataRequest, MetadataResponse
from chronik.testing.cluster import READY_SECONDS_MAX, Cluster, ClusterNode
from tests.raw import RawClient

NAMES_SHOWN = 3


def metadata_of(node: ClusterNode) -> MetadataResponse:
    """Return this node's response to a Metadata request for all topics."""
    with RawClient(node.bootstrap) as client:
        return client.request(MetadataRequest(topics=None), 12, MetadataResponse)


def topics_of(node: ClusterNode) -> dict[str, Any]:
    """Return the id and the partition leaders of each topic that this node lists."""
    return {
        topic.name or "": (topic.topic_id, [partition.leader_id for partition in topic.partitions])
        for topic in metadata_of(node).topics
    }


def wait_until_all_have(cluster: Cluster, *names: str, seconds: float = READY_SECONDS_MAX) -> dict[str, Any]:
    """Wait until every live node lists these topics with the same ids and leaders, and return one node's view."""

    def missing() -> str | None:
        views = [topics_of(node) for node in cluster.live_nodes]
        for node, view in zip(cluster.live_nodes, views, strict=True):
            absent = [name for name in names if name not in view]
            if absent:
                return f"node {node.node_id} does not list {len(absent)} of {len(names)}: {absent[:NAMES_SHOWN]}, …"
        return None if all(view == views[0] for view in views) else "the nodes' views differ"

    cluster.wait_until(missing, "every node lists the topics", seconds)
    return topics_of(cluster.live_nodes[0])


def wait_until_deleted(cluster: Cluster, *names: str) -> None:
    """Wait until no live node lists any of these topics."""

    def present() -> str | None:
        for node in cluster.live_nodes:
            left = sorted(set(names) & set(topics_of(node)))
            if left:
                return f"node {node.node_id} still lists {left[:NAMES_SHOWN]}"
        return None

    cluster.wait_until(present, "no node lists the deleted topics")


def leader_then_followers(cluster: Cluster) -> list[ClusterNode]:
    """Return the live nodes, the Raft leader first."""
    leader = cluster.leader()
    return [leader, *(node for node in cluster.live_nodes if node is not leader)]
