"""Operations on the configs of topics, brokers and the cluster."""

from __future__ import annotations

from typing import Final

from chronik.client.cluster import raise_for_code
from chronik.client.configs import BROKER_RESOURCE, TOPIC_RESOURCE, ConfigTarget, alter_configs
from chronik.client.connection import BrokerConnection
from chronik.configs.broker_key_lookup import find_broker_key
from chronik.configs.constraints import ConfigConstraints, describe_constraints
from chronik.configs.keys import TOPIC_KEYS, ConfigKey, ConfigType
from chronik.console.rest.context import OperationContext, build_not_found_error
from chronik.console.rest.errors import error_message
from chronik.console.rest.models.cluster import Config, ConfigChanges, Configs
from chronik.console.rest.models.common import NoQuestion, Plan
from chronik.protocol.errors import KafkaError
from chronik.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsSynonym,
)

SOURCE_NAMES: Final = {1: "topic", 2: "broker", 3: "cluster", 4: "file", 5: "default", 8: "group"}
DEFAULT_SOURCES: Final = (4, 5)
"""Config sources in DescribeConfigs of values that were not changed at run time: the config file and the defaults."""


def of_topic(context: OperationContext, params: NoQuestion) -> Configs:
    """List the configs of a topic."""
    return Configs(
        describe_resource_configs(
            context.cluster.any_broker(), ConfigTarget(TOPIC_RESOURCE, context.path_parameters["topic"])
        )
    )


def of_node(context: OperationContext, params: NoQuestion) -> Configs:
    """List the configs of a broker, as reported by that broker: only it knows its config file."""
    node_id = context.path_parameters["node"]
    require_broker(context, node_id)
    return Configs(
        describe_resource_configs(context.cluster.node(node_id), ConfigTarget(BROKER_RESOURCE, str(node_id)))
    )


def of_cluster(context: OperationContext, params: NoQuestion) -> Configs:
    """List the cluster-wide default configs of all brokers."""
    return Configs(describe_resource_configs(context.cluster.any_broker(), ConfigTarget(BROKER_RESOURCE, "")))


def require_broker(context: OperationContext, node_id: int) -> None:
    """Raise RestError if the broker does not exist.

    The existence of a broker is not confidential: every client's metadata lists all brokers.
    """
    if node_id not in context.node.services.image.brokers:
        raise build_not_found_error(f"broker {node_id} does not exist")


def describe_resource_configs(broker: BrokerConnection, resource: ConfigTarget) -> list[Config]:
    """Return the configs of a resource.

    Raises:
        KafkaError: The principal lacks the DescribeConfigs permission, or the resource does not exist.
        ClientError: The broker cannot be reached.
    """
    wanted = DescribeConfigsResource(resource_type=resource.type, resource_name=resource.name, configuration_keys=None)
    request = DescribeConfigsRequest(resources=[wanted], include_synonyms=True, include_documentation=True)
    (result,) = broker.request(request, DescribeConfigsResponse).results
    raise_for_code(result.error_code, str(resource), result.error_message)
    find_key = TOPIC_KEYS.get if resource.type == TOPIC_RESOURCE else find_broker_key
    return [_to_config(each, find_key(each.name)) for each in sorted(result.configs, key=lambda each: each.name)]


def _to_config(entry: DescribeConfigsResourceResult, key: ConfigKey | None) -> Config:
    accepted = ConfigConstraints() if key is None else describe_constraints(key)
    defaults = [_convert_synonym(key, each) for each in entry.synonyms if each.source in DEFAULT_SOURCES]
    return Config(
        entry.name,
        None if entry.is_sensitive else entry.value,
        SOURCE_NAMES.get(entry.config_source, "default"),
        None if entry.is_sensitive or not defaults else defaults[-1],
        entry.read_only,
        entry.is_sensitive,
        entry.documentation,
        ConfigType(entry.config_type).name.lower(),
        accepted.unit,
        list(accepted.choices),
        accepted.low,
        accepted.high,
        accepted.unlimited,
    )


def _convert_synonym(key: ConfigKey | None, synonym: DescribeConfigsSynonym) -> str | None:
    """Return the value of a synonym in the unit of the config: log.retention.hours supplies retention.ms."""
    original = key if key is None or key.synonym is None else find_broker_key(key.synonym)
    for fallback in () if original is None else original.fallbacks:
        if fallback.name == synonym.name and synonym.value is not None:
            return str(int(synonym.value) * fallback.unit)
    return synonym.value


def alter_of_topic(context: OperationContext, params: ConfigChanges) -> Plan:
    """Alter the configs of a topic."""
    return _alter_configs(context, ConfigTarget(TOPIC_RESOURCE, context.path_parameters["topic"]), params)


def alter_of_node(context: OperationContext, params: ConfigChanges) -> Plan:
    """Alter the configs of a broker."""
    node_id = context.path_parameters["node"]
    require_broker(context, node_id)
    return _alter_configs(context, ConfigTarget(BROKER_RESOURCE, str(node_id)), params)


def alter_of_cluster(context: OperationContext, params: ConfigChanges) -> Plan:
    """Alter the cluster-wide default configs of all brokers."""
    return _alter_configs(context, ConfigTarget(BROKER_RESOURCE, ""), params)


def _alter_configs(context: OperationContext, resource: ConfigTarget, params: ConfigChanges) -> Plan:
    changes: dict[str, str | None] = {**params.set, **dict.fromkeys(params.delete)}
    plan = Plan([f"set {name} = {value}" for name, value in params.set.items()])
    plan.plan += [f"reset {name} to its default" for name in params.delete]
    try:
        alter_configs(context.cluster, {resource: changes}, validate_only=params.dry_run)
    except KafkaError as error:
        if not params.dry_run or error.code.name.endswith("AUTHORIZATION_FAILED"):
            raise
        plan.refused = error_message(error)
    plan.done = not params.dry_run
    return plan
