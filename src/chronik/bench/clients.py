"""What the load generators ask of librdkafka, and the topics that they use."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager

from chronik.client.admin import BROKER_DEFAULT, NewTopic, create_topics, delete_topics
from chronik.client.cluster import Cluster
from chronik.protocol.errors import ErrorCode

DEFAULT_TOPIC = "chronik-bench"

LIBRDKAFKA = {
    "socket.nagle.disable": "true",
    "log_level": "3",  # errors: a broker that goes away at the end of a measurement is none
    "broker.address.family": "v4",
}


def client_config(bootstrap: str, **settings: str) -> dict[str, str]:
    """Takes librdkafka's names, with underscores for their dots."""
    named = {name.replace("_", "."): value for name, value in settings.items()}
    return {"bootstrap.servers": bootstrap} | LIBRDKAFKA | named


def unique_name(what: str) -> str:
    return f"chronik-bench-{what}-{uuid.uuid4().hex[:8]}"


def ensure_topic(cluster: Cluster, name: str, partitions: int, replication_factor: int = BROKER_DEFAULT) -> int:
    """Creates the topic unless it is there; returns how many partitions it has."""
    (topic,) = cluster.metadata([name]).topics
    if topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        create_topics(cluster, [NewTopic(name, partitions, replication_factor)])
    return len(cluster.retrying(lambda: cluster.partitions(name)))


@contextmanager
def temporary_topics(
    cluster: Cluster, names: list[str], partitions: int = 1, replication_factor: int = BROKER_DEFAULT
) -> Iterator[None]:
    """Creates topics by one request, and deletes them at the end."""
    create_topics(cluster, [NewTopic(name, partitions, replication_factor) for name in names])
    try:
        yield
    finally:
        delete_topics(cluster, names)
