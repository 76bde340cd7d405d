"""AlterConfigs: replaces all configs of a topic or broker; what is not named gets its default."""

from __future__ import annotations

from chronik.admin.configs import Change, ConfigAdmin, Resource
from chronik.api.shared.context import Context, Services
from chronik.protocol.failures import told
from chronik.protocol.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)


async def handle(services: Services, request: AlterConfigsRequest, context: Context) -> AlterConfigsResponse:
    wanted = [
        (
            Resource(resource.resource_type, resource.resource_name),
            [Change(config.name, config.value) for config in resource.configs],
        )
        for resource in request.resources
    ]
    configs = ConfigAdmin(services.config, services.store, services.configs)
    outcomes = await configs.replace_all(wanted, validate_only=request.validate_only)
    return AlterConfigsResponse(
        responses=[
            AlterConfigsResourceResponse(resource_type=kind, resource_name=name, **told(error))
            for (kind, name), error in outcomes.items()
        ]
    )
