"""IncrementalAlterConfigs: sets, deletes, appends to and subtracts from single config keys."""

from __future__ import annotations

from enum import IntEnum
from functools import partial

from chronik.admin.second_look import with_second_look
from chronik.api.broker_loggers import change_levels, refuse_other_nodes
from chronik.api.config_resources import (
    NAMED_TWICE,
    ResourceType,
    broker_named,
    change_configs,
    each_once,
    topic_named,
)
from chronik.api.shared.context import Context, Services
from chronik.api.shared.long_answers import Pace
from chronik.configs.keys import TOPIC_KEYS, ConfigType
from chronik.configs.known import broker_key
from chronik.protocol.errors import ErrorCode, KafkaError
from chronik.protocol.messages.incremental_alter_configs import (
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)


class Operation(IntEnum):
    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


async def handle(
    services: Services, request: IncrementalAlterConfigsRequest, context: Context
) -> IncrementalAlterConfigsResponse:
    pace = Pace()
    responses = []
    for resource, is_alone in each_once(request.resources):
        await pace.breathe()
        responses.append(
            await _alter(services, resource, request.validate_only) if is_alone else _result(resource, NAMED_TWICE)
        )
    return IncrementalAlterConfigsResponse(responses=responses)


def _result(resource: AlterConfigsResource, error: KafkaError | None = None) -> AlterConfigsResourceResponse:
    return AlterConfigsResourceResponse(
        error_code=error.code if error else ErrorCode.NONE,
        error_message=error.message if error else None,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )


async def _alter(
    services: Services, resource: AlterConfigsResource, validate_only: bool
) -> AlterConfigsResourceResponse:
    try:
        await with_second_look(services.store, partial(_change, services, resource, validate_only))
    except KafkaError as error:
        return _result(resource, error)
    return _result(resource)


async def _change(services: Services, resource: AlterConfigsResource, validate_only: bool) -> None:
    wanted, delete = _changes(services, resource)
    if resource.resource_type == ResourceType.BROKER_LOGGER:
        refuse_other_nodes(services, resource.resource_name)
        change_levels(wanted, delete, validate_only=validate_only)
        return
    await change_configs(
        services,
        resource.resource_type,
        resource.resource_name,
        wanted,
        delete,
        replace=False,
        validate_only=validate_only,
    )


def _changes(services: Services, resource: AlterConfigsResource) -> tuple[dict[str, str], tuple[str, ...]]:
    wanted: dict[str, str] = {}
    delete: dict[str, None] = {}
    for config in resource.configs:
        if config.name in wanted or config.name in delete:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"{config.name} is given twice")
        if config.config_operation == Operation.DELETE:
            delete[config.name] = None
            continue
        if config.value is None:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"{config.name} has no value")
        if config.config_operation == Operation.SET:
            wanted[config.name] = config.value
        elif config.config_operation in (Operation.APPEND, Operation.SUBTRACT):
            wanted[config.name] = _changed_list(
                _current(services, resource, config.name), config.value, config.config_operation
            )
        else:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"There is no config operation {config.config_operation}")
    return wanted, tuple(delete)


def _current(services: Services, resource: AlterConfigsResource, name: str) -> str:
    if resource.resource_type == ResourceType.BROKER_LOGGER:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "A level is no list: it can only be set or deleted")
    on_topic = resource.resource_type == ResourceType.TOPIC
    key = TOPIC_KEYS.get(name) if on_topic else broker_key(name)
    if key is None or key.type is not ConfigType.LIST:
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"{name} is not a list: it can only be set or deleted")
    if on_topic:
        return services.configs.topic(topic_named(services, resource.resource_name).configs, name)
    return services.configs.list_of_broker(key, broker_named(services, resource.resource_name))


def _changed_list(current: str, value: str, operation: int) -> str:
    items, given = ([item.strip() for item in text.split(",") if item.strip()] for text in (current, value))
    if operation == Operation.APPEND:
        return ",".join(items + [item for item in given if item not in items])
    return ",".join(item for item in items if item not in given)
