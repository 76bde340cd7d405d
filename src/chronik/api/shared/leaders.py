"""Who leads a partition, as clients are told: with metadata, or with the error of a node that does not lead it."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from chronik.api.shared.context import Services
from chronik.metadata.commands import NO_LEADER
from chronik.metadata.records import Broker, Partition
from chronik.protocol.errors import ErrorCode


def partition_of(services: Services, topic: str | bytes, index: int) -> Partition | None:
    """By the topic's name or id."""
    image = services.image
    found = image.topics_by_id.get(topic) if isinstance(topic, bytes) else image.topics.get(topic)
    return found.partitions[index] if found is not None and 0 <= index < len(found.partitions) else None


def gone_brokers(services: Services) -> Collection[int]:
    """To whom clients are not sent: this node too, while it serves nobody."""
    gone = [broker_id for broker_id in services.image.brokers if services.is_gone(broker_id)]
    return [*gone, services.node_id] if services.is_fenced() else gone


def named_leader(partition: Partition, gone: Collection[int]) -> tuple[int, ErrorCode]:
    """Nobody also while the one that it has is gone, and no other is elected: clients are to ask again."""
    leader = NO_LEADER if partition.leader in gone else partition.leader
    return leader, ErrorCode.LEADER_NOT_AVAILABLE if leader == NO_LEADER else ErrorCode.NONE


def brokers_of(services: Services, leaders: Iterable[int]) -> list[Broker]:
    brokers = services.image.brokers
    return [brokers[leader] for leader in sorted(set(leaders)) if leader in brokers]
