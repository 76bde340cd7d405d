"""ListConfigResources: topics, brokers, their loggers, and groups that have configs of their own."""

from __future__ import annotations

from chronik.api.config_resources import ResourceType
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
        # Kafka's answer to kinds that it does not know
        return failed(ListConfigResourcesResponse, request, ErrorCode.UNSUPPORTED_VERSION)
    brokers = [str(broker) for broker in services.image.brokers]
    names: dict[ResourceType, list[str]] = {
        ResourceType.TOPIC: list(services.image.topics),
        ResourceType.BROKER: brokers,
        ResourceType.BROKER_LOGGER: brokers,
        ResourceType.GROUP: list(services.image.group_configs),
    }
    return ListConfigResourcesResponse(
        config_resources=[
            ConfigResource(resource_name=name, resource_type=kind)
            for kind, found in names.items()
            if kind in wanted
            for name in found
        ]
    )
