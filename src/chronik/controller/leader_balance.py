"""Selection of partitions that should have another leader: preferred leaders, and replacements for drained ones.

When a broker stops, other replicas become leaders and keep the leadership after it returns. Without balancing, a
restarted broker would only follow.
"""

from __future__ import annotations

from collections import Counter, defaultdict

from chronik.metadata.commands.brokers import BrokerStatus
from chronik.metadata.commands.partitions import PartitionKey, SetPartitionLeader
from chronik.metadata.commands.topics import NO_LEADER
from chronik.metadata.elections import elect
from chronik.metadata.image import Image
from chronik.metadata.names import META_TOPIC


def find_unbalanced_partitions(image: Image, imbalance_percent: int) -> list[PartitionKey]:
    """Return the partitions to move back to their preferred leaders.

    A broker qualifies if it does not lead more than `imbalance_percent` of the partitions that prefer it. Partitions
    under reassignment are excluded, and so is `__meta`, which the Raft leader leads.
    """
    preferred: Counter[int] = Counter()
    not_leading: dict[int, list[tuple[PartitionKey, bool]]] = defaultdict(list)
    for topic in image.all_topics_by_id.values():
        if topic.name == META_TOPIC:
            continue
        for index, partition in enumerate(topic.partitions):
            broker_id = partition.replicas[0]
            preferred[broker_id] += 1
            if partition.leader != broker_id:
                can_lead = broker_id in partition.isr and not partition.is_reassigning
                not_leading[broker_id].append((PartitionKey(topic.id, index), can_lead))
    return [
        key
        for broker_id, partitions in sorted(not_leading.items())
        if _is_online(image, broker_id) and 100 * len(partitions) > imbalance_percent * preferred[broker_id]
        for key, can_lead in partitions
        if can_lead
    ]


def replace_drained_leaders(image: Image, count_max: int) -> list[SetPartitionLeader]:
    """Return new leaders for partitions that a drained broker still leads although another replica is in sync.

    When a broker is drained, it keeps the partitions for which no other replica is in sync at that time.
    """
    found: list[SetPartitionLeader] = []
    drained = {broker.id for broker in image.brokers.values() if broker.status is BrokerStatus.MAINTENANCE}
    for topic in {
        topic.id: topic for broker_id in sorted(drained) for topic in image.topics_on_broker(broker_id)
    }.values():
        for index, partition in enumerate(topic.partitions):
            if partition.leader in drained and len(found) < count_max:
                leader = elect(partition, partition.isr, image.brokers)
                if leader not in drained and leader != NO_LEADER:
                    found.append(SetPartitionLeader(topic.id, index, leader, partition.leader_epoch))
    return found


def _is_online(image: Image, broker_id: int) -> bool:
    broker = image.brokers.get(broker_id)
    return broker is not None and broker.is_online
