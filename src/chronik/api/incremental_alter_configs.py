"""IncrementalAlterConfigs (API key 44): sets, deletes, appends to and subtracts from single configs of a resource."""

from __future__ import annotations

from chronik.admin.configs import Change, ConfigAdmin, Resource
from chronik.api.shared.context import Context, Services
from chronik.api.shared.many_changes import changed, named_once
from chronik.api.shared.rights import check_configs
from chronik.protocol.messages.alter_configs import AlterConfigsResourceResponse
from chronik.protocol.messages.incremental_alter_configs import (
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from chronik.protocol.permissions import Operation


async def handle(
    services: Services, request: IncrementalAlterConfigsRequest, context: Context
) -> IncrementalAlterConfigsResponse:
    configs = ConfigAdmin(services.config, services.store, services.configs, services.clock)

    async def change(wanted: AlterConfigsResource) -> None:
        resource = Resource(wanted.resource_type, wanted.resource_name)
        check_configs(services, context, Operation.ALTER_CONFIGS, *resource)
        changes = [Change(config.name, config.value, config.config_operation) for config in wanted.configs]
        await configs.change(resource, changes, validate_only=request.validate_only)

    resources = await named_once(request.resources, lambda each: (each.resource_type, each.resource_name))
    outcomes = changed(resources, change, lambda _: "Each resource must appear at most once.")
    return IncrementalAlterConfigsResponse(
        responses=[
            AlterConfigsResourceResponse(resource_type=kind, resource_name=name, **outcome)
            async for (kind, name), outcome in outcomes
        ]
    )
