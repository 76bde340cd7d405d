"""Configs of topics, brokers and the cluster."""

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
"""What holds without any change that was made while brokers ran."""


def of_topic(call: Call, asked: NoQuestion) -> Configs:
    return Configs(described(call.cluster.any_broker(), Resource(TOPIC_RESOURCE, call.path["topic"])))


def of_node(call: Call, asked: NoQuestion) -> Configs:
    """Asks the node itself: it knows its own file, and nobody else does."""
    node_id = call.path["node"]
    check_node(call, node_id)
    return Configs(described(call.cluster.node(node_id), Resource(BROKER_RESOURCE, str(node_id))))


def of_cluster(call: Call, asked: NoQuestion) -> Configs:
    return Configs(described(call.cluster.any_broker(), Resource(BROKER_RESOURCE, "")))


def check_node(call: Call, node_id: int) -> None:
    """Whether a broker is there is no secret among those who may log in: every client's metadata lists them. Raises
    Refusal."""
    if node_id not in call.side.services.image.brokers:
        raise missing(f"there is no broker {node_id}")


def described(broker: Connection, resource: Resource) -> list[Config]:
    """Raises KafkaError, ClientError."""
    wanted = DescribeConfigsResource(resource_type=resource.type, resource_name=resource.name, configuration_keys=None)
    request = DescribeConfigsRequest(resources=[wanted], include_synonyms=True, include_documentation=True)
    (result,) = broker.request(request, DescribeConfigsResponse).results
    raise_for(result.error_code, str(resource), result.error_message)
    return [_config(each) for each in sorted(result.configs, key=lambda each: each.name)]


def _config(told: DescribeConfigsResourceResult) -> Config:
    defaults = [each.value for each in told.synonyms if each.source in DEFAULTS]
    return Config(
        told.name,
        None if told.is_sensitive else told.value,
        SOURCES.get(told.config_source, "default"),
        None if told.is_sensitive or not defaults else defaults[-1],
        told.read_only,
        told.is_sensitive,
        told.documentation,
    )


def alter_of_topic(call: Call, asked: ConfigChanges) -> Plan:
    return _alter(call, Resource(TOPIC_RESOURCE, call.path["topic"]), asked)


def alter_of_node(call: Call, asked: ConfigChanges) -> Plan:
    node_id = call.path["node"]
    check_node(call, node_id)
    return _alter(call, Resource(BROKER_RESOURCE, str(node_id)), asked)


def alter_of_cluster(call: Call, asked: ConfigChanges) -> Plan:
    return _alter(call, Resource(BROKER_RESOURCE, ""), asked)


def _alter(call: Call, resource: Resource, asked: ConfigChanges) -> Plan:
    changes: dict[str, str | None] = {**asked.set, **dict.fromkeys(asked.delete)}
    plan = Plan([f"set {name} = {value}" for name, value in asked.set.items()])
    plan.plan += [f"return {name} to its default" for name in asked.delete]
    try:
        alter_configs(call.cluster, {resource: changes}, validate_only=asked.dry_run)
    except KafkaError as error:
        if not asked.dry_run or error.code.name.endswith("AUTHORIZATION_FAILED"):
            raise
        plan.refused = sentence_of(error)
    plan.done = not asked.dry_run
    return plan
