"""DescribeCluster, versions 0 to 2. The controllers (endpoint type 2) do not listen to clients."""

from __future__ import annotations

from chronik.api import operations
from chronik.api.context import Context, Services
from chronik.protocol.errors import ErrorCode
from chronik.protocol.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)

BROKERS = 1


def handle(services: Services, request: DescribeClusterRequest, context: Context) -> DescribeClusterResponse:
    if request.endpoint_type != BROKERS:
        return failure(request, ErrorCode.MISMATCHED_ENDPOINT_TYPE)
    image = services.image
    response = DescribeClusterResponse(
        cluster_id=image.cluster_id,
        controller_id=services.controller_id(),
        brokers=[
            DescribeClusterBroker(
                broker_id=broker.id, host=broker.host, port=broker.port, rack=broker.rack, is_fenced=broker.fenced
            )
            for _, broker in sorted(image.brokers.items())
            if request.include_fenced_brokers or not broker.fenced
        ],
    )
    if request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = operations.ON_CLUSTER
    return response


def failure(request: DescribeClusterRequest, code: ErrorCode) -> DescribeClusterResponse:
    return DescribeClusterResponse(
        error_code=code, error_message=code.message, endpoint_type=request.endpoint_type
    )
