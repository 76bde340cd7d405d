"""Facts of a healthy cluster, which tests modify."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from chronik.cli.monitoring.facts import ClusterFacts, NodeFacts, PartitionFacts


def node(node_id: int, **facts: Any) -> NodeFacts:
    known: dict[str, Any] = {
        "kafka": f"127.0.0.1:{9091 + node_id}",
        "http": f"127.0.0.1:{8080 + node_id}",
        "role": "leader" if node_id == 1 else "follower",
        "is_voter": True,
        "term": 3,
        "applied_index": 100,
        "log_end": 101,
        "state_hash": "ab" * 16,
        "version": "0.6.0",
        "levels": (1, 4),
        "uptime_s": 60.0,
        "clock_ahead_ms": 1.0,
        "clock_doubt_ms": 2.0,
        "disk_bytes": 100 << 30,
        "disk_free_bytes": 50 << 30,
    }
    return NodeFacts(id=node_id, **(known | facts))


def partition(topic: str, index: int, first: int, **facts: Any) -> PartitionFacts:
    """Return the facts of a partition; by default its first replica leads and all replicas are in sync."""
    replicas = (first, *(each for each in (1, 2, 3) if each != first))
    known: dict[str, Any] = {"leader": first, "replicas": replicas, "isr": replicas, "end": 10, "bytes": 1000}
    return PartitionFacts(topic, index, **(known | facts))


def cluster(**facts: Any) -> ClusterFacts:
    known: dict[str, Any] = {
        "time_ms": 1_700_000_000_000,
        "cluster_id": "abc",
        "controller": 1,
        "term": 3,
        "level": 4,
        "compared_nodes": 3,
        "compared_index": 100,
        "same_state": True,
        "nodes": tuple(node(node_id) for node_id in (1, 2, 3)),
        "partitions": tuple(partition("orders", index, 1 + index % 3) for index in range(6)),
    }
    return ClusterFacts(asked="127.0.0.1:9092", **(known | facts))


def with_node(facts: ClusterFacts, node_id: int, **changes: Any) -> ClusterFacts:
    return replace(facts, nodes=tuple(replace(each, **changes) if each.id == node_id else each for each in facts.nodes))
