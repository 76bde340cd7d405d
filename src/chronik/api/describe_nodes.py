"""DescribeNodes (Chronik API key 20000): returns the desired and the observed state of each node."""

from __future__ import annotations

from chronik.admin.nodes import NodeState, describe_nodes
from chronik.api.shared.context import RequestContext, Services
from chronik.metadata import levels
from chronik.protocol.error_responses import build_error_fields
from chronik.protocol.errors import KafkaError
from chronik.protocol.messages.describe_nodes import DescribedNode, DescribeNodesRequest, DescribeNodesResponse


async def handle(services: Services, request: DescribeNodesRequest, context: RequestContext) -> DescribeNodesResponse:
    try:
        states = await describe_nodes(services.store, services.node_id)
    except KafkaError as error:
        return DescribeNodesResponse(**build_error_fields(error))
    return DescribeNodesResponse(
        cluster_id=services.image.cluster_id or None,
        level=levels.get_cluster_level(services.image.features),
        nodes=[_encode_described_node(state) for state in states],
    )


def _encode_described_node(state: NodeState) -> DescribedNode:
    return DescribedNode(
        node_id=state.node.id,
        host=state.node.host,
        port=state.node.port,
        meant_to_vote=state.node.voter,
        draining=state.node.draining,
        is_member=state.member is not None,
        is_voter=state.member is not None and state.member.is_voter,
        directory_id=state.directory_id,
        rack=state.rack,
        status=state.status,
        broker_epoch=state.broker_epoch,
    )
