"""Lookup of the topics to land and their configs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from chronik.client.cluster import ClusterClient, raise_for_code
from chronik.client.configs import TOPIC_RESOURCE
from chronik.ids import format_id
from chronik.pipeline.landing.settings import ENABLED_CONFIG, FORMAT_CONFIG, PARTITION_BY_CONFIG, is_landing_enabled
from chronik.protocol.errors import ErrorCode, KafkaError
from chronik.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)

Configs = dict[str, str]


@dataclass(frozen=True, slots=True)
class TopicDescription:
    """A topic's current id and landing configs."""

    name: str
    topic_id: str
    configs: Configs


def list_enabled_topics(cluster: ClusterClient) -> list[str]:
    """Return the names of topics with `columnar.enabled`.

    Raises:
        ClientError: No broker responds.
        KafkaError: A broker rejects a request.
    """
    response = cluster.retry(lambda: cluster.metadata(None))
    names = sorted(topic.name for topic in response.topics if topic.name and not topic.is_internal)
    configs = cluster.retry(lambda: _fetch_configs(cluster, names))
    return [name for name in names if is_landing_enabled(configs.get(name, {}))]


def describe_landing_topic(cluster: ClusterClient, name: str) -> TopicDescription:
    """Return a topic's current id and configs, bypassing cached metadata.

    Raises:
        ClientError: No broker responds.
        KafkaError: The topic does not exist, or a broker rejects a request.
    """
    cluster.invalidate_metadata()
    topic = cluster.retry(lambda: cluster.topic(name))
    configs = cluster.retry(lambda: _fetch_configs(cluster, [name]))
    return TopicDescription(name, format_id(topic.topic_id), configs.get(name, {}))


def fetch_topic_id(cluster: ClusterClient, name: str) -> str | None:
    """Return a topic's current id, or None if the topic does not exist.

    Raises:
        ClientError: No broker responds.
        KafkaError: A broker rejects a request.
    """
    cluster.invalidate_metadata()
    try:
        return format_id(cluster.retry(lambda: cluster.topic(name)).topic_id)
    except KafkaError as error:
        if error.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            return None
        raise


def _fetch_configs(cluster: ClusterClient, names: Sequence[str]) -> dict[str, Configs]:
    """Return the landing configs of topics; other Kafka brokers have none of them."""
    if not names:
        return {}
    request = DescribeConfigsRequest(resources=[_resource(name) for name in names])
    response = cluster.any_broker().request(request, DescribeConfigsResponse)
    found: dict[str, Configs] = {}
    for result in response.results:
        raise_for_code(result.error_code, f"topic {result.resource_name}", result.error_message)
        found[result.resource_name] = _without_nulls((config.name, config.value) for config in result.configs)
    return found


def _resource(name: str) -> DescribeConfigsResource:
    keys = [ENABLED_CONFIG, FORMAT_CONFIG, PARTITION_BY_CONFIG]
    return DescribeConfigsResource(resource_type=TOPIC_RESOURCE, resource_name=name, configuration_keys=keys)


def _without_nulls(configs: Iterable[tuple[str, str | None]]) -> Configs:
    return {name: value for name, value in configs if value is not None}
