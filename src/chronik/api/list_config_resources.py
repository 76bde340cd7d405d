"""ListConfigResources (API key 74): lists topics, brokers, broker loggers, and groups that have configs."""

from __future__ import annotations

from chronik.admin.configs import ConfigAdmin, ResourceType
from chronik.api.shared.context import Context, Services
from chronik.protocol.errors import ErrorCode
from chronik.protocol.failures import failed
from chronik.protocol.messages.list_config_resources import (
    CLIENT_METRICS,
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)


def handle(services: Services, request: ListConfigResourcesRequest, context: Context) -> ListConfigResourcesResponse:
    wanted = {CLIENT_METRICS} if context.version == 0 else set(request.resource_types or ResourceType)
    if not wanted.issubset(ResourceType):
        # the same error as in Kafka for unknown resource types
        return failed(ListConfigResourcesResponse, request, ErrorCode.UNSUPPORTED_VERSION)
    found = ConfigAdmin(services.config, services.store, services.configs, services.clock).resources()
    return ListConfigResourcesResponse(
        config_resources=[
            ConfigResource(resource_name=name, resource_type=kind)
            for kind, names in found.items()
            if kind in wanted
            for name in names
        ]
    )
