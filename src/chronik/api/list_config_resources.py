"""ListConfigResources (API key 74): lists topics, brokers, broker loggers, and groups that have configs."""

from __future__ import annotations

from chronik.admin.configs import ConfigAdmin, ConfigResourceType
from chronik.api.shared.context import RequestContext, Services
from chronik.protocol.error_responses import build_error_response
from chronik.protocol.errors import ErrorCode
from chronik.protocol.messages.list_config_resources import (
    CLIENT_METRICS,
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)


def handle(
    services: Services, request: ListConfigResourcesRequest, context: RequestContext
) -> ListConfigResourcesResponse:
    wanted = {CLIENT_METRICS} if context.version == 0 else set(request.resource_types or ConfigResourceType)
    if not wanted.issubset(ConfigResourceType):
        # the same error as in Kafka for unknown resource types
        return build_error_response(ListConfigResourcesResponse, request, ErrorCode.UNSUPPORTED_VERSION)
    found = ConfigAdmin(services.config, services.store, services.configs, services.clock).list_resources()
    return ListConfigResourcesResponse(
        config_resources=[
            ConfigResource(resource_name=name, resource_type=kind)
            for kind, names in found.items()
            if kind in wanted
            for name in names
        ]
    )
