"""The topics that clients and tools expect to exist. Pure: image in, commands out.

Their records live in the metadata log, so that every replica that is online is in sync by definition; and whoever of
them leads a partition of `__consumer_offsets` coordinates the groups that fall into it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Final

from chronik.controller.placement import Place, place_replicas
from chronik.ids import new_id
from chronik.metadata.commands import (
    NO_LEADER,
    Command,
    CreateTopic,
    IsrChange,
    IsrMember,
    PartitionAssignment,
    SetPartitionLeader,
    UpdateISR,
)
from chronik.metadata.image import Image
from chronik.metadata.names import META_TOPIC, OFFSETS_TOPIC, SYSTEM_TOPICS, TRANSACTIONS_TOPIC
from chronik.metadata.records import Partition, Topic

PARTITIONS: Final = {OFFSETS_TOPIC: 50, TRANSACTIONS_TOPIC: 50, META_TOPIC: 1}

CONFIGS: Final = {
    "cleanup.policy": "compact",
    "compression.type": "snappy",
    "retention.ms": "-1",
    "retention.bytes": "-1",
    "segment.bytes": str(100 * 1024 * 1024),
}


def system_topics(
    image: Image, names: Sequence[str], voters: Sequence[int], replication_factor: int, now_ms: int
) -> tuple[CreateTopic, ...]:
    """Placed over all voters, so that one that is missing at the first start is no obstacle."""
    places = [Place(node, image.brokers[node].rack if node in image.brokers else None) for node in voters]
    factor = min(replication_factor, len(voters))
    topics = []
    for name in names:
        replicas = place_replicas(PARTITIONS[name], factor, places, 0)
        assignments = tuple(_assignment(image, each) for each in replicas)
        topics.append(CreateTopic(new_id(), name, assignments, CONFIGS, now_ms, internal=True))
    return tuple(topics)


def _assignment(image: Image, replicas: tuple[int, ...]) -> PartitionAssignment:
    online = tuple(replica for replica in replicas if _is_online(image, replica))
    return PartitionAssignment(replicas, online, online[0] if online else NO_LEADER)


def system_topic_changes(image: Image, raft_leader: int) -> Iterator[Command]:
    """What is missing until every online replica is in sync, every partition led, and `__meta` by the Raft leader."""
    grown: dict[int, list[IsrChange]] = defaultdict(list)
    for name in SYSTEM_TOPICS:
        topic = image.topics.get(name)
        if topic is None:
            continue
        for index, partition in enumerate(topic.partitions):
            online = [replica for replica in partition.replicas if _is_online(image, replica)]
            leader = raft_leader if name == META_TOPIC and raft_leader in online else partition.leader
            if leader == NO_LEADER and online:
                leader = online[0]
            if leader != partition.leader:
                yield SetPartitionLeader(topic.id, index, leader, partition.leader_epoch, leader not in partition.isr)
            elif leader != NO_LEADER and not set(online) <= set(partition.isr):
                grown[leader].append(_isr_change(image, topic, index, partition, online))
    for leader, changes in sorted(grown.items()):
        yield UpdateISR(leader, image.brokers[leader].epoch, tuple(changes))


def _isr_change(image: Image, topic: Topic, index: int, partition: Partition, online: list[int]) -> IsrChange:
    members = [replica for replica in partition.replicas if replica in online or replica in partition.isr]
    isr = tuple(IsrMember(member, image.brokers[member].epoch) for member in members)
    return IsrChange(topic.id, index, partition.leader_epoch, partition.partition_epoch, isr)


def _is_online(image: Image, broker_id: int) -> bool:
    return broker_id in image.brokers and image.brokers[broker_id].online
