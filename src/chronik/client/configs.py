"""Describes and alters configs of topics and brokers, many at a time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple

from chronik.client.cluster import Cluster, raise_for
from chronik.protocol.errors import ErrorCode
from chronik.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
)
from chronik.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

TOPIC_RESOURCE: Final = 2
BROKER_RESOURCE: Final = 4

DYNAMIC_TOPIC_CONFIG: Final = 1
"""The source of a config value that was set on the topic itself."""
DYNAMIC_DEFAULT_BROKER_CONFIG: Final = 3
"""… and of one that was set for all brokers."""

RESOURCES_PER_REQUEST_MAX: Final = 500
"""A few hundred kilobytes, whatever topics are called."""

_SET, _DELETE = 0, 1


class Resource(NamedTuple):
    type: int
    name: str
    """Of a topic, or the id of a broker; empty for all brokers."""

    def __str__(self) -> str:
        kind = "topic" if self.type == TOPIC_RESOURCE else "broker"
        return f"{kind} {self.name}" if self.name else f"all {kind}s"


def describe_configs(
    cluster: Cluster, resources: Sequence[Resource], keys: Sequence[str] | None = None, *, skip_deleted: bool = False
) -> dict[Resource, list[DescribeConfigsResourceResult]]:
    """Returns configs with their sources, by name: all of them, or those with these keys. Raises KafkaError, also for a
    topic that does not exist, unless those are to be skipped.

    Any broker is asked, and a broker knows its own file and no other: what stands in another's is missing. Who wants
    that asks each broker itself (`cluster.broker`), outside of `retrying` if one that is down is to be told, not
    waited for.
    """
    wanted = None if keys is None else list(keys)
    found = {}
    for some in _pieces(resources):
        asked = [
            DescribeConfigsResource(resource_type=each.type, resource_name=each.name, configuration_keys=wanted)
            for each in some
        ]
        request = DescribeConfigsRequest(resources=asked)
        response = cluster.retrying(partial(_ask_to_describe, cluster, request))
        for result in response.results:
            resource = Resource(result.resource_type, result.resource_name)
            if skip_deleted and result.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                continue
            raise_for(result.error_code, str(resource), result.error_message)
            found[resource] = sorted(result.configs, key=lambda config: config.name)
    return found


def _ask_to_describe(cluster: Cluster, request: DescribeConfigsRequest) -> DescribeConfigsResponse:
    return cluster.any_broker().request(request, DescribeConfigsResponse)


def alter_configs(
    cluster: Cluster,
    changes: Mapping[Resource, Mapping[str, str | None]],
    *,
    validate_only: bool = False,
    skip_deleted: bool = False,
) -> None:
    """Sets configs, or with None returns them to their defaults; the rest stays. Raises KafkaError, also for a topic
    that does not exist, unless those are to be skipped."""
    for some in _pieces(list(changes)):
        asked = [_to_alter(each, changes[each]) for each in some]
        request = IncrementalAlterConfigsRequest(resources=asked, validate_only=validate_only)
        response = cluster.retrying(partial(_ask_to_alter, cluster, request))
        for answer in response.responses:
            resource = Resource(answer.resource_type, answer.resource_name)
            if skip_deleted and answer.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                continue
            raise_for(answer.error_code, str(resource), answer.error_message)


def _to_alter(resource: Resource, values: Mapping[str, str | None]) -> AlterConfigsResource:
    configs = [
        AlterableConfig(name=name, config_operation=_DELETE if value is None else _SET, value=value)
        for name, value in values.items()
    ]
    return AlterConfigsResource(resource_type=resource.type, resource_name=resource.name, configs=configs)


def _ask_to_alter(cluster: Cluster, request: IncrementalAlterConfigsRequest) -> IncrementalAlterConfigsResponse:
    return cluster.controller().request(request, IncrementalAlterConfigsResponse)


def _pieces(resources: Sequence[Resource]) -> Iterator[Sequence[Resource]]:
    for start in range(0, len(resources), RESOURCES_PER_REQUEST_MAX):
        yield resources[start : start + RESOURCES_PER_REQUEST_MAX]
