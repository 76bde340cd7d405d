"""Creation and leadership of the system topics that clients and tools expect.

Their records are stored in the metadata log, so any online replica may become the leader without losing records. The
leader of a partition of `__consumer_offsets` coordinates the consumer groups of that partition.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from chronik.metadata.commands.partitions import SetPartitionLeader
from chronik.metadata.commands.topics import NO_LEADER, CreateTopic, PartitionAssignment
from chronik.metadata.elections import elect_unclean_leader
from chronik.metadata.image import Image
from chronik.metadata.names import META_TOPIC, OFFSETS_TOPIC, SYSTEM_TOPICS, TRANSACTIONS_TOPIC
from chronik.planning.placement import PlacementCandidate, place_replicas

PARTITIONS: Final = {OFFSETS_TOPIC: 50, TRANSACTIONS_TOPIC: 50, META_TOPIC: 1}

CONFIGS: Final = {
    "cleanup.policy": "compact",
    "compression.type": "snappy",
    "retention.ms": "-1",
    "retention.bytes": "-1",
    "segment.bytes": str(100 * 1024 * 1024),
}


def create_system_topics(
    image: Image,
    names: Sequence[str],
    nodes: Sequence[int],
    replication_factor: int,
    now_ms: int,
    make_id: Callable[[], bytes],
) -> tuple[CreateTopic, ...]:
    """Return the commands that create system topics with replicas on the given nodes, including offline ones."""
    candidates = [
        PlacementCandidate(node, image.brokers[node].rack if node in image.brokers else None) for node in nodes
    ]
    factor = min(replication_factor, len(nodes))
    topics = []
    for name in names:
        replicas = place_replicas(PARTITIONS[name], factor, candidates, 0)
        assignments = tuple(_build_assignment(image, each) for each in replicas)
        topics.append(CreateTopic(make_id(), name, assignments, CONFIGS, now_ms, internal=True))
    return tuple(topics)


def _build_assignment(image: Image, replicas: tuple[int, ...]) -> PartitionAssignment:
    online = tuple(replica for replica in replicas if _is_online(image, replica))
    return PartitionAssignment(replicas, online, online[0] if online else NO_LEADER)


def repair_system_topics(image: Image, raft_leader: int) -> Iterator[SetPartitionLeader]:
    """Yield leader changes that give a leader to every system topic partition with an online replica.

    The leader of `__meta` is the Raft leader. The partition leaders maintain the ISR, as for any topic.
    """
    for name in SYSTEM_TOPICS:
        topic = image.topics.get(name)
        if topic is None:
            continue
        for index, partition in enumerate(topic.partitions):
            online = [replica for replica in partition.replicas if _is_online(image, replica)]
            leader = raft_leader if name == META_TOPIC and raft_leader in online else partition.leader
            if leader == NO_LEADER:
                leader = online[0] if online else elect_unclean_leader(partition, image.brokers)
            if leader != partition.leader:
                yield SetPartitionLeader(topic.id, index, leader, partition.leader_epoch, leader not in partition.isr)


def _is_online(image: Image, broker_id: int) -> bool:
    return broker_id in image.brokers and image.brokers[broker_id].is_online
