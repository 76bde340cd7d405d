"""Who leads a partition that this node does not: told with the error, so that clients need not ask for metadata."""

from __future__ import annotations

from collections.abc import Iterable

from chronik.api.context import Services
from chronik.metadata.records import Broker, Partition


def partition_of(services: Services, topic: str | bytes, index: int) -> Partition | None:
    """By the topic's name or id."""
    image = services.image
    found = image.topics_by_id.get(topic) if isinstance(topic, bytes) else image.topics.get(topic)
    return found.partitions[index] if found is not None and 0 <= index < len(found.partitions) else None


def brokers_of(services: Services, leaders: Iterable[int]) -> list[Broker]:
    brokers = services.image.brokers
    return [brokers[leader] for leader in sorted(set(leaders)) if leader in brokers]
