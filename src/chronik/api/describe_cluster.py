"""DescribeCluster (API key 60): returns the brokers and the controller.

Controller endpoints (endpoint type 2) are not available to clients.
"""

from __future__ import annotations

from chronik.api.shared.authorization import authorized_cluster_operations
from chronik.api.shared.context import RequestContext, Services
from chronik.api.shared.leaders import iter_broker_endpoints, select_advertised_controller
from chronik.protocol.error_responses import build_error_response
from chronik.protocol.errors import ErrorCode
from chronik.protocol.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)

BROKERS = 1

FENCED_WARNING = "This broker is fenced: it cannot reach the controller, and its view of the cluster may be outdated."
"""Message in a fenced broker's DescribeCluster response: its view of the cluster may be stale."""


def handle(services: Services, request: DescribeClusterRequest, context: RequestContext) -> DescribeClusterResponse:
    if request.endpoint_type != BROKERS:
        return build_error_response(DescribeClusterResponse, request, ErrorCode.MISMATCHED_ENDPOINT_TYPE)
    response = DescribeClusterResponse(
        cluster_id=services.image.cluster_id,
        controller_id=select_advertised_controller(services, context.listener),
        brokers=[
            broker
            for broker in _list_brokers(services, context.listener)
            if request.include_fenced_brokers or not broker.is_fenced
        ],
        error_message=FENCED_WARNING if services.is_fenced() else None,
    )
    if request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = authorized_cluster_operations(services, context)
    return response


def _list_brokers(services: Services, listener: str) -> list[DescribeClusterBroker]:
    """Return the brokers to list in a DescribeCluster response.

    This node may be fenced although the metadata image does not show it yet.
    """
    own = services.config.node_id if services.is_fenced() else None
    brokers = services.image.brokers
    return [
        DescribeClusterBroker(
            broker_id=broker.id,
            host=place.host,
            port=place.port,
            rack=broker.rack,
            is_fenced=broker.is_fenced or broker.id == own,
        )
        for broker, place in iter_broker_endpoints(brokers, brokers, listener)
    ]
