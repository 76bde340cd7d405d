"""IncrementalAlterConfigs (API key 44): sets, deletes, appends to and subtracts from single configs of a resource."""

from __future__ import annotations

from chronik.admin.configs import ConfigAdmin, ConfigChange, ConfigResourceKey
from chronik.api.shared.authorization import require_config_permission
from chronik.api.shared.bulk_changes import apply_change_to_each, index_by_unique_key
from chronik.api.shared.context import RequestContext, Services
from chronik.protocol.messages.alter_configs import AlterConfigsResourceResponse
from chronik.protocol.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    IncrementalAlterConfigsResponse,
)
from chronik.protocol.permissions import AclOperation


async def handle(
    services: Services, request: IncrementalAlterConfigsRequest, context: RequestContext
) -> IncrementalAlterConfigsResponse:
    configs = ConfigAdmin(services.config, services.store, services.configs, services.clock)

    async def change(wanted: IncrementalAlterConfigsResource) -> None:
        resource = ConfigResourceKey(wanted.resource_type, wanted.resource_name)
        require_config_permission(services, context, AclOperation.ALTER_CONFIGS, *resource)
        changes = [ConfigChange(config.name, config.value, config.config_operation) for config in wanted.configs]
        await configs.alter(resource, changes, validate_only=request.validate_only)

    resources = await index_by_unique_key(request.resources, lambda each: (each.resource_type, each.resource_name))
    outcomes = apply_change_to_each(resources, change, lambda _: "Each resource must appear at most once.")
    return IncrementalAlterConfigsResponse(
        responses=[
            AlterConfigsResourceResponse(resource_type=kind, resource_name=name, **outcome)
            async for (kind, name), outcome in outcomes
        ]
    )
