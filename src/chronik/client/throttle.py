"""Replication throttling during reassignments, with Kafka's configs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from chronik.client.admin import list_topics
from chronik.client.cluster import ClusterClient
from chronik.client.configs import (
    BROKER_RESOURCE,
    DYNAMIC_DEFAULT_BROKER_CONFIG,
    DYNAMIC_TOPIC_CONFIG,
    TOPIC_RESOURCE,
    ConfigTarget,
    alter_configs,
    describe_configs,
)

THROTTLED_REPLICAS_KEYS: Final = ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas")
THROTTLED_RATE_KEYS: Final = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
ALL_BROKERS: Final = ConfigTarget(BROKER_RESOURCE, "")
ALL_REPLICAS: Final = "*"
"""All replicas. In-sync replicas are never throttled."""

EXPLICIT_SOURCES: Final = (DYNAMIC_TOPIC_CONFIG, DYNAMIC_DEFAULT_BROKER_CONFIG)


def set_replication_throttle(cluster: ClusterClient, topics: Iterable[str], bytes_per_s: int) -> None:
    """Limit how many bytes per second each broker sends and receives for out-of-sync replicas of the topics."""
    changes = {
        ConfigTarget(TOPIC_RESOURCE, topic): dict.fromkeys(THROTTLED_REPLICAS_KEYS, ALL_REPLICAS)
        for topic in sorted(set(topics))
    }
    rates = {ALL_BROKERS: dict.fromkeys(THROTTLED_RATE_KEYS, str(bytes_per_s))}
    alter_configs(cluster, {**rates, **changes}, skip_deleted=True)


def clear_replication_throttle(cluster: ClusterClient) -> bool:
    """Remove the replication throttle from all topics and brokers. Return whether there was any."""
    resources = [ALL_BROKERS, *(ConfigTarget(TOPIC_RESOURCE, topic.name or "") for topic in list_topics(cluster))]
    found = describe_configs(cluster, resources, [*THROTTLED_REPLICAS_KEYS, *THROTTLED_RATE_KEYS], skip_deleted=True)
    changes = {}
    for resource, configs in found.items():
        if names := [config.name for config in configs if config.config_source in EXPLICIT_SOURCES]:
            changes[resource] = dict.fromkeys(names)
    alter_configs(cluster, changes, skip_deleted=True)
    return bool(changes)
