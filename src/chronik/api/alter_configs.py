"""AlterConfigs: replaces all configs of a topic or broker; what is not named gets its default."""

from __future__ import annotations

from functools import partial

from chronik.admin.second_look import with_second_look
from chronik.api.config_resources import NAMED_TWICE, change_configs, each_once
from chronik.api.shared.context import Context, Services
from chronik.api.shared.long_answers import Pace
from chronik.protocol.errors import ErrorCode, KafkaError
from chronik.protocol.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)


async def handle(services: Services, request: AlterConfigsRequest, context: Context) -> AlterConfigsResponse:
    pace = Pace()
    responses = []
    for resource, is_alone in each_once(request.resources):
        await pace.breathe()
        responses.append(
            await _alter(services, resource, request.validate_only) if is_alone else _result(resource, NAMED_TWICE)
        )
    return AlterConfigsResponse(responses=responses)


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
        wanted = {}
        for config in resource.configs:
            if config.value is None or config.name in wanted:
                raise KafkaError(ErrorCode.INVALID_REQUEST, f"{config.name} must be given once and with a value")
            wanted[config.name] = config.value
        change = partial(
            change_configs,
            services,
            resource.resource_type,
            resource.resource_name,
            wanted,
            replace=True,
            validate_only=validate_only,
        )
        await with_second_look(services.store, change)
    except KafkaError as error:
        return _result(resource, error)
    return _result(resource)
