"""Committed offsets are in every node's image, and clients can read them after the death of any node."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from chronik.testing.cluster import Cluster, ClusterNode
from chronik.testing.plugin import ClusterFactory

pytestmark = pytest.mark.xdist_group("cluster")

PARTITIONS = 6
GROUPS = [f"group-{number}" for number in range(6)]


def consumer(cluster: Cluster, group: str) -> Consumer:
    return Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": group, "enable.auto.commit": False})


def commit(cluster: Cluster, group: str, base: int) -> dict[int, tuple[int, str]]:
    client = consumer(cluster, group)
    offsets = {partition: (base + partition, f"note {base} {partition}") for partition in range(PARTITIONS)}
    client.commit(
        offsets=[
            TopicPartition("topic", partition, offset, metadata=note) for partition, (offset, note) in offsets.items()
        ],
        asynchronous=False,
    )
    client.close()
    return offsets


def committed(cluster: Cluster, group: str) -> dict[int, tuple[int, str]]:
    client = consumer(cluster, group)
    found = client.committed([TopicPartition("topic", partition) for partition in range(PARTITIONS)], timeout=60)
    client.close()
    return {each.partition: (each.offset, _text(each.metadata)) for each in found}


def _text(metadata: Any) -> str:
    """Return the metadata without the zero byte that confluent-kafka appends."""
    return str(metadata).rstrip("\0")


def held_by(node: ClusterNode, group: str) -> dict[int, tuple[int, str]]:
    view = node.group(group)
    if view is None:
        return {}
    return {each["partition"]: (each["offset"], _text(each["metadata"])) for each in view["offsets"]}


def wait_until_held_everywhere(cluster: Cluster, expected: dict[str, dict[int, tuple[int, str]]]) -> None:
    def missing() -> str | None:
        for node in cluster.live_nodes:
            for group, offsets in expected.items():
                if held_by(node, group) != offsets:
                    return f"{group} on {node!r}"
        return None

    cluster.wait_until(missing, "every node's image to contain the offsets")


def test_committed_offsets_survive_death_of_every_node(chronik_cluster_factory: ClusterFactory) -> None:
    cluster = chronik_cluster_factory()
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.create_topics([NewTopic("topic", PARTITIONS, 3)])["topic"].result(30)
    expected = {group: commit(cluster, group, 100 * number) for number, group in enumerate(GROUPS)}
    wait_until_held_everywhere(cluster, expected)
    for node_id, victim in cluster.nodes.items():
        victim.kill()
        cluster.wait_until_listed([other for other in cluster.nodes if other != node_id])
        for group in GROUPS:
            assert committed(cluster, group) == expected[group], f"{group} after the death of node {node_id}"
        expected[GROUPS[node_id]] = commit(cluster, GROUPS[node_id], 1000 * node_id)
        victim.start()
        cluster.wait_until_ready()
        wait_until_held_everywhere(cluster, expected)
    cluster.wait_until_agreed()
