"""ListConfigResources, versions 0 and 1: topics and brokers; of Kafka's other kinds there are none here."""

from __future__ import annotations

from chronik.api.config_resources import ResourceType
from chronik.api.context import Context, Services
from chronik.protocol.errors import ErrorCode
from chronik.protocol.messages.list_config_resources import (
    CLIENT_METRICS,
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)

BROKER_LOGGER = 8
GROUP = 32
KINDS = (ResourceType.TOPIC, ResourceType.BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP)


def handle(services: Services, request: ListConfigResourcesRequest, context: Context) -> ListConfigResourcesResponse:
    wanted = {CLIENT_METRICS} if context.version == 0 else set(request.resource_types or KINDS)
    if not wanted.issubset(KINDS):
        return failure(request, ErrorCode.UNSUPPORTED_VERSION)  # Kafka's answer to kinds that it does not know
    names: dict[ResourceType, list[str]] = {
        ResourceType.TOPIC: list(services.image.topics),
        ResourceType.BROKER: [str(broker) for broker in services.image.brokers],
    }
    return ListConfigResourcesResponse(
        config_resources=[
            ConfigResource(resource_name=name, resource_type=kind)
            for kind, found in names.items()
            if kind in wanted
            for name in found
        ]
    )


def failure(request: ListConfigResourcesRequest, code: ErrorCode) -> ListConfigResourcesResponse:
    return ListConfigResourcesResponse(error_code=code)
