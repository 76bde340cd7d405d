"""Topic administration: create, list, alter and delete topics and their configs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from chronik.client.cluster import ClusterClient, raise_for_code
from chronik.client.configs import TOPIC_RESOURCE, ConfigTarget, alter_configs, describe_configs
from chronik.protocol.errors import ErrorCode, KafkaError
from chronik.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from chronik.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from chronik.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from chronik.protocol.messages.describe_configs import DescribeConfigsResourceResult
from chronik.protocol.messages.metadata import MetadataResponseTopic

BROKER_DEFAULT: Final = -1


@dataclass(frozen=True)
class NewTopic:
    """A topic to create. A partition count or replication factor of -1 selects the broker's default."""

    name: str
    partitions: int = BROKER_DEFAULT
    replication_factor: int = BROKER_DEFAULT
    configs: Mapping[str, str] = field(default_factory=dict)


def create_topics(cluster: ClusterClient, topics: Iterable[NewTopic], *, validate_only: bool = False) -> None:
    """Create topics. Raise the KafkaError of the first rejected topic; its message names all rejected topics."""
    request = CreateTopicsRequest(
        topics=[
            CreatableTopic(
                name=topic.name,
                num_partitions=topic.partitions,
                replication_factor=topic.replication_factor,
                configs=[CreatableTopicConfig(name=name, value=value) for name, value in topic.configs.items()],
            )
            for topic in topics
        ],
        timeout_ms=_get_timeout_ms(cluster),
        validate_only=validate_only,
    )
    response = cluster.retry(
        lambda: cluster.controller().request(request, CreateTopicsResponse), repeatable=validate_only
    )
    _raise_first_rejection((topic.name, topic.error_code, topic.error_message) for topic in response.topics)
    cluster.invalidate_metadata()


def create_partitions(cluster: ClusterClient, topic: str, count: int) -> None:
    """Increase the topic's number of partitions to `count`."""
    request = CreatePartitionsRequest(
        topics=[CreatePartitionsTopic(name=topic, count=count, assignments=None)], timeout_ms=_get_timeout_ms(cluster)
    )
    response = cluster.retry(lambda: cluster.controller().request(request, CreatePartitionsResponse), repeatable=False)
    _raise_first_rejection((result.name, result.error_code, result.error_message) for result in response.results)
    cluster.invalidate_metadata()


def delete_topics(cluster: ClusterClient, names: Sequence[str]) -> None:
    """Delete topics. Raise the KafkaError of the first rejected topic; its message names all rejected topics."""
    request = DeleteTopicsRequest(topic_names=list(names), timeout_ms=_get_timeout_ms(cluster))
    response = cluster.retry(lambda: cluster.controller().request(request, DeleteTopicsResponse), repeatable=False)
    _raise_first_rejection(
        (result.name or "", result.error_code, result.error_message) for result in response.responses
    )
    cluster.invalidate_metadata()


def list_topics(cluster: ClusterClient) -> list[MetadataResponseTopic]:
    """Return the metadata of all topics, including internal ones, sorted by name."""
    return sorted(cluster.retry(lambda: _fetch_all_topics(cluster)), key=lambda topic: topic.name or "")


def _fetch_all_topics(cluster: ClusterClient) -> list[MetadataResponseTopic]:
    """Return the metadata of all topics, or raise KafkaError if one has an error.

    A broker whose metadata is behind lists topics without partitions and with a retriable error.
    """
    topics = cluster.metadata(None).topics
    for topic in topics:
        raise_for_code(topic.error_code, f"topic {topic.name}")
    return topics


TopicConfigs = dict[str, list[DescribeConfigsResourceResult]]
"""Configs by topic name."""


def list_topics_with_configs(
    cluster: ClusterClient, keys: Sequence[str] | None = None
) -> tuple[list[MetadataResponseTopic], TopicConfigs]:
    """Return all topics and their configs. Topics that are deleted concurrently are omitted."""
    return cluster.retry(lambda: _fetch_topics_with_configs(cluster, keys))


def _fetch_topics_with_configs(
    cluster: ClusterClient, keys: Sequence[str] | None
) -> tuple[list[MetadataResponseTopic], TopicConfigs]:
    topics = list_topics(cluster)
    resources = [ConfigTarget(TOPIC_RESOURCE, topic.name or "") for topic in topics]
    found = {
        each.name: configs for each, configs in describe_configs(cluster, resources, keys, skip_deleted=True).items()
    }
    missing = {topic.name for topic in topics} - found.keys()
    # The broker that describes configs may be behind the one that listed the topics: then the topic is not deleted.
    if missing and (outdated := missing.intersection(topic.name for topic in list_topics(cluster))):
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"configs of topic {min(map(str, outdated))}")
    return [topic for topic in topics if topic.name in found], found


def describe_topic_configs(cluster: ClusterClient, topic: str) -> list[DescribeConfigsResourceResult]:
    """Return all configs of a topic with their sources, sorted by name."""
    (configs,) = describe_configs(cluster, [ConfigTarget(TOPIC_RESOURCE, topic)]).values()
    return configs


def alter_topic_configs(
    cluster: ClusterClient, topic: str, *, changes: Mapping[str, str], removals: Iterable[str] = ()
) -> None:
    """Set some configs of a topic and reset others to their defaults. Unlisted configs are not changed."""
    alter_configs(cluster, {ConfigTarget(TOPIC_RESOURCE, topic): {**changes, **dict.fromkeys(removals)}})


def _raise_first_rejection(results: Iterable[tuple[str, int, str | None]]) -> None:
    rejected = [(name, ErrorCode(code), message) for name, code, message in results if code]
    if rejected:
        summary = "; ".join(f"topic {name}: {message or code.message}" for name, code, message in rejected)
        raise KafkaError(rejected[0][1], summary)


def _get_timeout_ms(cluster: ClusterClient) -> int:
    return int(cluster.timeout_s * 1000)
