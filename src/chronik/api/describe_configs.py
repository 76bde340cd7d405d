"""DescribeConfigs: values with their source, synonyms, type and documentation."""

from __future__ import annotations

from collections.abc import Awaitable, Generator, Iterable, Iterator
from dataclasses import replace

from chronik.api.broker_loggers import describe_levels, refuse_other_nodes
from chronik.api.config_resources import ResourceType, broker_named, topic_named, unknown_resource
from chronik.api.shared.context import Context, Services
from chronik.api.shared.long_answers import Elements, Long, at_once_or_in_slices
from chronik.configs.resolver import ConfigEntry, ConfigSource, Synonym
from chronik.metadata.commands import CLUSTER_DEFAULT
from chronik.metadata.names import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from chronik.protocol.errors import KafkaError
from chronik.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)

SYSTEM_TOPIC_CONFIGS = {OFFSETS_TOPIC: "offsets.topic", TRANSACTIONS_TOPIC: "transaction.state.log"}
"""Broker configs that say what a topic has: once it is there, they say what is true of it."""


def handle(
    services: Services, request: DescribeConfigsRequest, context: Context
) -> DescribeConfigsResponse | Awaitable[Long]:
    return at_once_or_in_slices(_answer(services, request, context))


def _answer(
    services: Services, request: DescribeConfigsRequest, context: Context
) -> Generator[None, None, DescribeConfigsResponse]:
    results = Elements(DescribeConfigsResponse, context.version)
    for resource, keys in _each_once(request.resources):
        result = _result(resource)
        try:
            result.configs = [
                _described(entry, request)
                for entry in _entries(services, resource)
                if not keys or entry.key.name in keys
            ]
            results.add(result)
        except KafkaError as error:
            result.configs, result.error_code, result.error_message = [], error.code, error.message
            results.refuse(result)
        yield
    return DescribeConfigsResponse(results=results.as_array_of(DescribeConfigsResult))


def _each_once(resources: list[DescribeConfigsResource]) -> Iterator[tuple[DescribeConfigsResource, set[str]]]:
    """With all keys that it was named with. None are all: so it is in a resource that was named without any."""
    first: dict[tuple[int, str], DescribeConfigsResource] = {}
    keys: dict[tuple[int, str], set[str]] = {}
    in_full = set()
    for resource in resources:
        name = resource.resource_type, resource.resource_name
        first.setdefault(name, resource)
        keys.setdefault(name, set()).update(resource.configuration_keys or ())
        if not resource.configuration_keys:
            in_full.add(name)
    return ((resource, set() if name in in_full else keys[name]) for name, resource in first.items())


def _result(resource: DescribeConfigsResource) -> DescribeConfigsResult:
    return DescribeConfigsResult(
        resource_type=resource.resource_type, resource_name=resource.resource_name, error_message=None
    )


def _entries(services: Services, resource: DescribeConfigsResource) -> Iterable[ConfigEntry]:
    if resource.resource_type == ResourceType.TOPIC:
        return services.configs.describe_topic(topic_named(services, resource.resource_name).configs)
    if resource.resource_type == ResourceType.BROKER:
        broker = broker_named(services, resource.resource_name)
        if broker == CLUSTER_DEFAULT:
            return services.configs.describe_cluster_default()
        return _with_own_facts(services, broker)
    if resource.resource_type == ResourceType.BROKER_LOGGER:
        refuse_other_nodes(services, resource.resource_name)
        return describe_levels()
    if resource.resource_type == ResourceType.GROUP and resource.resource_name:
        return services.configs.describe_group(resource.resource_name)
    raise unknown_resource(resource.resource_type)


def _with_own_facts(services: Services, broker_id: int) -> Iterable[ConfigEntry]:
    """The keys whose values are not configured in Kafka's words but follow from what the node is."""
    broker = services.image.brokers[broker_id]
    facts = {
        "node.id": str(broker_id),
        "broker.id": str(broker_id),
        "broker.rack": broker.rack,
        "advertised.listeners": f"PLAINTEXT://{broker.host}:{broker.port}",
    }
    if broker_id == services.node_id:
        facts["listeners"] = f"PLAINTEXT://{services.config.kafka.host}:{broker.port}"
        facts["log.dirs"] = str(services.config.data_dir)
    for name, prefix in SYSTEM_TOPIC_CONFIGS.items():
        topic = services.image.topics.get(name)
        if topic is not None:
            facts[f"{prefix}.num.partitions"] = str(len(topic.partitions))
            facts[f"{prefix}.replication.factor"] = str(topic.replication_factor)
    for entry in services.configs.describe_broker(broker_id):
        value = facts.get(entry.key.name)
        if value is not None:
            own = Synonym(entry.key.name, value, ConfigSource.STATIC_BROKER)
            entry = replace(entry, value=value, source=own.source, synonyms=[own])
        yield entry


def _described(entry: ConfigEntry, request: DescribeConfigsRequest) -> DescribeConfigsResourceResult:
    hidden = entry.key.sensitive
    return DescribeConfigsResourceResult(
        name=entry.key.name,
        value=None if hidden else entry.value,
        read_only=entry.read_only,
        config_source=entry.source,
        is_default=entry.source is ConfigSource.DEFAULT,
        is_sensitive=hidden,
        synonyms=[
            DescribeConfigsSynonym(
                name=synonym.name, value=None if hidden else synonym.value, source=synonym.source
            )
            for synonym in entry.synonyms
        ]
        if request.include_synonyms
        else [],
        config_type=entry.key.type,
        documentation=entry.key.doc if request.include_documentation else None,
    )
