"""Finds partitions that should get their preferred leader again. Pure: image in, partitions out.

Placement spreads the preferred leaders over the brokers. When a broker goes away others lead in its place, and go on
when it is back; without this it would only follow, and never lead again.
"""

from __future__ import annotations

from collections import Counter, defaultdict

from chronik.metadata.commands.partitions import PartitionKey
from chronik.metadata.image import Image
from chronik.metadata.names import META_TOPIC


def partitions_out_of_balance(image: Image, imbalance_percent: int) -> list[PartitionKey]:
    """Returns, for each broker that fails to lead more than `imbalance_percent` of those that prefer it, all that it
    can lead now. Partitions being reassigned are left alone, and so is `__meta`, which the Raft leader leads."""
    preferred: Counter[int] = Counter()
    away: dict[int, list[tuple[PartitionKey, bool]]] = defaultdict(list)
    for topic in image.topics.values():
        if topic.name == META_TOPIC:
            continue
        for index, partition in enumerate(topic.partitions):
            broker_id = partition.replicas[0]
            preferred[broker_id] += 1
            if partition.leader != broker_id:
                can_lead = broker_id in partition.isr and not partition.is_reassigning
                away[broker_id].append((PartitionKey(topic.id, index), can_lead))
    return [
        key
        for broker_id, partitions in sorted(away.items())
        if _is_online(image, broker_id) and 100 * len(partitions) > imbalance_percent * preferred[broker_id]
        for key, can_lead in partitions
        if can_lead
    ]


def _is_online(image: Image, broker_id: int) -> bool:
    broker = image.brokers.get(broker_id)
    return broker is not None and broker.online
