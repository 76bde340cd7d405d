"""The topics that clients and tools expect to exist. Pure: image in, commands out.

Their records live in the metadata log, so that any replica that is online may lead: it lacks nothing. And the leader of
a partition of `__consumer_offsets` coordinates the groups that belong to it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from chronik.metadata.commands.partitions import SetPartitionLeader
from chronik.metadata.commands.topics import NO_LEADER, CreateTopic, PartitionAssignment
from chronik.metadata.elections import elect_uncleanly
from chronik.metadata.image import Image
from chronik.metadata.names import META_TOPIC, OFFSETS_TOPIC, SYSTEM_TOPICS, TRANSACTIONS_TOPIC
from chronik.planning.placement import Place, place_replicas

PARTITIONS: Final = {OFFSETS_TOPIC: 50, TRANSACTIONS_TOPIC: 50, META_TOPIC: 1}

CONFIGS: Final = {
    "cleanup.policy": "compact",
    "compression.type": "snappy",
    "retention.ms": "-1",
    "retention.bytes": "-1",
    "segment.bytes": str(100 * 1024 * 1024),
}


def system_topics(
    image: Image,
    names: Sequence[str],
    holders: Sequence[int],
    replication_factor: int,
    now_ms: int,
    make_id: Callable[[], bytes],
) -> tuple[CreateTopic, ...]:
    """Returns them placed over all these nodes, so that one that is missing at the first start is no obstacle."""
    places = [Place(node, image.brokers[node].rack if node in image.brokers else None) for node in holders]
    factor = min(replication_factor, len(holders))
    topics = []
    for name in names:
        replicas = place_replicas(PARTITIONS[name], factor, places, 0)
        assignments = tuple(_assignment(image, each) for each in replicas)
        topics.append(CreateTopic(make_id(), name, assignments, CONFIGS, now_ms, internal=True))
    return tuple(topics)


def _assignment(image: Image, replicas: tuple[int, ...]) -> PartitionAssignment:
    online = tuple(replica for replica in replicas if _is_online(image, replica))
    return PartitionAssignment(replicas, online, online[0] if online else NO_LEADER)


def system_topic_changes(image: Image, raft_leader: int) -> Iterator[SetPartitionLeader]:
    """Yields what is missing until every partition with a replica online has a leader, and `__meta` the Raft leader.
    Which replicas are in sync is for the leaders to say, as for any topic."""
    for name in SYSTEM_TOPICS:
        topic = image.topics.get(name)
        if topic is None:
            continue
        for index, partition in enumerate(topic.partitions):
            online = [replica for replica in partition.replicas if _is_online(image, replica)]
            leader = raft_leader if name == META_TOPIC and raft_leader in online else partition.leader
            if leader == NO_LEADER:
                leader = online[0] if online else elect_uncleanly(partition, image.brokers)
            if leader != partition.leader:
                yield SetPartitionLeader(topic.id, index, leader, partition.leader_epoch, leader not in partition.isr)


def _is_online(image: Image, broker_id: int) -> bool:
    return broker_id in image.brokers and image.brokers[broker_id].online
