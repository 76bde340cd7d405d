"""Configs of topics and brokers: describe and alter them in batches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple

from chronik.client.cluster import ClusterClient, raise_for_code
from chronik.protocol.errors import ErrorCode
from chronik.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
)
from chronik.protocol.messages.incremental_alter_configs import (
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    IncrementalAlterConfigsResponse,
)

TOPIC_RESOURCE: Final = 2
BROKER_RESOURCE: Final = 4

DYNAMIC_TOPIC_CONFIG: Final = 1
"""Kafka's config source (1) for values that are set on a topic."""
DYNAMIC_DEFAULT_BROKER_CONFIG: Final = 3
"""Kafka's config source for values that are set for all brokers of the cluster."""

RESOURCES_PER_REQUEST_MAX: Final = 500
"""Maximum number of topics or brokers in one request that describes or alters configs."""

_SET, _DELETE = 0, 1


class ConfigTarget(NamedTuple):
    """A topic or a broker whose configs are described or altered."""

    type: int
    name: str
    """Topic name or broker id; empty for the cluster-wide broker configs."""

    def __str__(self) -> str:
        kind = "topic" if self.type == TOPIC_RESOURCE else "broker"
        return f"{kind} {self.name}" if self.name else f"all {kind}s"


def describe_configs(
    cluster: ClusterClient,
    resources: Sequence[ConfigTarget],
    keys: Sequence[str] | None = None,
    *,
    skip_deleted: bool = False,
) -> dict[ConfigTarget, list[DescribeConfigsResourceResult]]:
    """Return the configs of each resource with their sources, sorted by name. `keys` selects the configs to return.

    Any broker may respond, and it knows only its own configuration file. To see the file values of a particular broker,
    send the request to `cluster.broker(id)`.

    Raises:
        KafkaError: If a request fails, or a topic does not exist and `skip_deleted` is not set.
    """
    wanted = None if keys is None else list(keys)
    found = {}
    for chunk in _split_into_chunks(resources):
        requested = [
            DescribeConfigsResource(resource_type=each.type, resource_name=each.name, configuration_keys=wanted)
            for each in chunk
        ]
        request = DescribeConfigsRequest(resources=requested)
        response = cluster.retry(partial(_send_describe_request, cluster, request))
        for result in response.results:
            resource = ConfigTarget(result.resource_type, result.resource_name)
            if skip_deleted and result.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                continue
            raise_for_code(result.error_code, str(resource), result.error_message)
            found[resource] = sorted(result.configs, key=lambda config: config.name)
    return found


def _send_describe_request(cluster: ClusterClient, request: DescribeConfigsRequest) -> DescribeConfigsResponse:
    return cluster.any_broker().request(request, DescribeConfigsResponse)


def alter_configs(
    cluster: ClusterClient,
    changes: Mapping[ConfigTarget, Mapping[str, str | None]],
    *,
    validate_only: bool = False,
    skip_deleted: bool = False,
) -> None:
    """Set configs. A value of None resets the config to its default; unlisted configs are not changed.

    Raises:
        KafkaError: If a change is rejected, or a topic does not exist and `skip_deleted` is not set.
    """
    for chunk in _split_into_chunks(list(changes)):
        requested = [_build_config_change(each, changes[each]) for each in chunk]
        request = IncrementalAlterConfigsRequest(resources=requested, validate_only=validate_only)
        response = cluster.retry(partial(_send_alter_request, cluster, request))
        for answer in response.responses:
            resource = ConfigTarget(answer.resource_type, answer.resource_name)
            if skip_deleted and answer.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                continue
            raise_for_code(answer.error_code, str(resource), answer.error_message)


def _build_config_change(resource: ConfigTarget, values: Mapping[str, str | None]) -> IncrementalAlterConfigsResource:
    configs = [
        IncrementalAlterableConfig(name=name, config_operation=_DELETE if value is None else _SET, value=value)
        for name, value in values.items()
    ]
    return IncrementalAlterConfigsResource(resource_type=resource.type, resource_name=resource.name, configs=configs)


def _send_alter_request(
    cluster: ClusterClient, request: IncrementalAlterConfigsRequest
) -> IncrementalAlterConfigsResponse:
    return cluster.controller().request(request, IncrementalAlterConfigsResponse)


def _split_into_chunks(resources: Sequence[ConfigTarget]) -> Iterator[Sequence[ConfigTarget]]:
    for start in range(0, len(resources), RESOURCES_PER_REQUEST_MAX):
        yield resources[start : start + RESOURCES_PER_REQUEST_MAX]
