"""How fast partitions that move may be copied: Kafka's configs for it, set on the topics that move and taken away."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from chronik.client.admin import list_topics
from chronik.client.cluster import Cluster
from chronik.client.configs import (
    BROKER_RESOURCE,
    DYNAMIC_DEFAULT_BROKER_CONFIG,
    DYNAMIC_TOPIC_CONFIG,
    TOPIC_RESOURCE,
    Resource,
    alter_configs,
    describe_configs,
)

REPLICAS: Final = ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas")
RATES: Final = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
EVERY_BROKER: Final = Resource(BROKER_RESOURCE, "")
EVERY_REPLICA: Final = "*"
"""Of replicas that are in sync none is slowed down, whatever is set."""

SET: Final = (DYNAMIC_TOPIC_CONFIG, DYNAMIC_DEFAULT_BROKER_CONFIG)


def set_throttle(cluster: Cluster, topics: Iterable[str], bytes_per_s: int) -> None:
    """Lets each broker copy so many bytes a second to, and from, replicas of these topics that are not in sync."""
    changes = {Resource(TOPIC_RESOURCE, topic): dict.fromkeys(REPLICAS, EVERY_REPLICA) for topic in sorted(set(topics))}
    rates = {EVERY_BROKER: dict.fromkeys(RATES, str(bytes_per_s))}
    alter_configs(cluster, {**rates, **changes}, skip_deleted=True)


def clear_throttle(cluster: Cluster) -> bool:
    """Takes all of it away, from all topics. Returns whether there was any."""
    resources = [EVERY_BROKER, *(Resource(TOPIC_RESOURCE, topic.name or "") for topic in list_topics(cluster))]
    found = describe_configs(cluster, resources, [*REPLICAS, *RATES], skip_deleted=True)
    changes = {}
    for resource, configs in found.items():
        if names := [config.name for config in configs if config.config_source in SET]:
            changes[resource] = dict.fromkeys(names)
    alter_configs(cluster, changes, skip_deleted=True)
    return bool(changes)
