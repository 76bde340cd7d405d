"""Replication throttling during reassignments, with Kafka's configs."""

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
"""All replicas. In-sync replicas are never throttled."""

SET: Final = (DYNAMIC_TOPIC_CONFIG, DYNAMIC_DEFAULT_BROKER_CONFIG)


def set_throttle(cluster: Cluster, topics: Iterable[str], bytes_per_s: int) -> None:
    """Limit how many bytes per second each broker sends and receives for out-of-sync replicas of the topics."""
    changes = {Resource(TOPIC_RESOURCE, topic): dict.fromkeys(REPLICAS, EVERY_REPLICA) for topic in sorted(set(topics))}
    rates = {EVERY_BROKER: dict.fromkeys(RATES, str(bytes_per_s))}
    alter_configs(cluster, {**rates, **changes}, skip_deleted=True)


def clear_throttle(cluster: Cluster) -> bool:
    """Remove the replication throttle from all topics and brokers. Return whether there was any."""
    resources = [EVERY_BROKER, *(Resource(TOPIC_RESOURCE, topic.name or "") for topic in list_topics(cluster))]
    found = describe_configs(cluster, resources, [*REPLICAS, *RATES], skip_deleted=True)
    changes = {}
    for resource, configs in found.items():
        if names := [config.name for config in configs if config.config_source in SET]:
            changes[resource] = dict.fromkeys(names)
    alter_configs(cluster, changes, skip_deleted=True)
    return bool(changes)
