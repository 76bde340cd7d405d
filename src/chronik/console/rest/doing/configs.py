"""Operations on the configs of topics, brokers and the cluster."""

from __future__ import annotations

from typing import Final

from chronik.client.cluster import raise_for
from chronik.client.configs import BROKER_RESOURCE, TOPIC_RESOURCE, Resource, alter_configs
from chronik.client.connection import Connection
from chronik.console.rest.call import Call, missing
from chronik.console.rest.refusals import sentence_of
from chronik.console.rest.shapes.common import NoQuestion, Plan
from chronik.console.rest.shapes.configs import Config, ConfigChanges, Configs
from chronik.protocol.errors import KafkaError
from chronik.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
)

SOURCES: Final = {1: "topic", 2: "broker", 3: "cluster", 4: "file", 5: "default", 8: "group"}
DEFAULTS: Final = (4, 5)
"""Config sources that apply unless a config was altered at run time."""


def of_topic(context: Call, params: NoQuestion) -> Configs:
    """List the configs of a topic."""
    return Configs(described(context.cluster.any_broker(), Resource(TOPIC_RESOURCE, context.path["topic"])))


def of_node(context: Call, params: NoQuestion) -> Configs:
    """List the configs of a broker. The broker itself is asked, since only it knows its configuration file."""
    node_id = context.path["node"]
    check_node(context, node_id)
    return Configs(described(context.cluster.node(node_id), Resource(BROKER_RESOURCE, str(node_id))))


def of_cluster(context: Call, params: NoQuestion) -> Configs:
    """List the cluster-wide default configs of all brokers."""
    return Configs(described(context.cluster.any_broker(), Resource(BROKER_RESOURCE, "")))


def check_node(context: Call, node_id: int) -> None:
    """Raise RestError if the broker does not exist.

    The existence of a broker is not confidential: every client's metadata lists all brokers.
    """
    if node_id not in context.side.services.image.brokers:
        raise missing(f"broker {node_id} does not exist")


def described(broker: Connection, resource: Resource) -> list[Config]:
    """Return the configs of a resource.

    Raises:
        KafkaError: The principal lacks the DescribeConfigs permission, or the resource does not exist.
        ClientError: The broker cannot be reached.
    """
    wanted = DescribeConfigsResource(resource_type=resource.type, resource_name=resource.name, configuration_keys=None)
    request = DescribeConfigsRequest(resources=[wanted], include_synonyms=True, include_documentation=True)
    (result,) = broker.request(request, DescribeConfigsResponse).results
    raise_for(result.error_code, str(resource), result.error_message)
    return [_to_config(each) for each in sorted(result.configs, key=lambda each: each.name)]


def _to_config(entry: DescribeConfigsResourceResult) -> Config:
    defaults = [each.value for each in entry.synonyms if each.source in DEFAULTS]
    return Config(
        entry.name,
        None if entry.is_sensitive else entry.value,
        SOURCES.get(entry.config_source, "default"),
        None if entry.is_sensitive or not defaults else defaults[-1],
        entry.read_only,
        entry.is_sensitive,
        entry.documentation,
    )


def alter_of_topic(context: Call, params: ConfigChanges) -> Plan:
    """Alter the configs of a topic."""
    return _alter(context, Resource(TOPIC_RESOURCE, context.path["topic"]), params)


def alter_of_node(context: Call, params: ConfigChanges) -> Plan:
    """Alter the configs of a broker."""
    node_id = context.path["node"]
    check_node(context, node_id)
    return _alter(context, Resource(BROKER_RESOURCE, str(node_id)), params)


def alter_of_cluster(context: Call, params: ConfigChanges) -> Plan:
    """Alter the cluster-wide default configs of all brokers."""
    return _alter(context, Resource(BROKER_RESOURCE, ""), params)


def _alter(context: Call, resource: Resource, params: ConfigChanges) -> Plan:
    changes: dict[str, str | None] = {**params.set, **dict.fromkeys(params.delete)}
    plan = Plan([f"set {name} = {value}" for name, value in params.set.items()])
    plan.plan += [f"reset {name} to its default" for name in params.delete]
    try:
        alter_configs(context.cluster, {resource: changes}, validate_only=params.dry_run)
    except KafkaError as error:
        if not params.dry_run or error.code.name.endswith("AUTHORIZATION_FAILED"):
            raise
        plan.refused = sentence_of(error)
    plan.done = not params.dry_run
    return plan
