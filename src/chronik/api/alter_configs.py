"""AlterConfigs (API key 33): replaces all configs of a resource; configs that are not named are reset to defaults."""

from __future__ import annotations

from chronik.admin.configs import ConfigAdmin, ConfigChange, ConfigResourceKey
from chronik.api.shared.authorization import require_config_permission
from chronik.api.shared.bulk_changes import apply_change_to_each, index_by_unique_key
from chronik.api.shared.context import RequestContext, Services
from chronik.protocol.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)
from chronik.protocol.permissions import AclOperation


async def handle(services: Services, request: AlterConfigsRequest, context: RequestContext) -> AlterConfigsResponse:
    configs = ConfigAdmin(services.config, services.store, services.configs, services.clock)

    async def change(wanted: AlterConfigsResource) -> None:
        resource = ConfigResourceKey(wanted.resource_type, wanted.resource_name)
        require_config_permission(services, context, AclOperation.ALTER_CONFIGS, *resource)
        changes = [ConfigChange(config.name, config.value) for config in wanted.configs]
        await configs.replace_configs(resource, changes, validate_only=request.validate_only)

    resources = await index_by_unique_key(request.resources, lambda each: (each.resource_type, each.resource_name))
    outcomes = apply_change_to_each(resources, change, lambda _: "Each resource must appear at most once.")
    return AlterConfigsResponse(
        responses=[
            AlterConfigsResourceResponse(resource_type=kind, resource_name=name, **outcome)
            async for (kind, name), outcome in outcomes
        ]
    )
