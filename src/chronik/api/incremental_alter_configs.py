"""IncrementalAlterConfigs: sets, deletes, appends to and subtracts from single config keys."""

from __future__ import annotations

from chronik.admin.configs import Change, ConfigAdmin, Resource
from chronik.api.shared.context import Context, Services
from chronik.protocol.failures import told
from chronik.protocol.messages.alter_configs import AlterConfigsResourceResponse
from chronik.protocol.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)


async def handle(
    services: Services, request: IncrementalAlterConfigsRequest, context: Context
) -> IncrementalAlterConfigsResponse:
    wanted = [
        (
            Resource(resource.resource_type, resource.resource_name),
            [Change(config.name, config.value, config.config_operation) for config in resource.configs],
        )
        for resource in request.resources
    ]
    configs = ConfigAdmin(services.config, services.store, services.configs)
    outcomes = await configs.change(wanted, validate_only=request.validate_only)
    return IncrementalAlterConfigsResponse(
        responses=[
            AlterConfigsResourceResponse(resource_type=kind, resource_name=name, **told(error))
            for (kind, name), error in outcomes.items()
        ]
    )
