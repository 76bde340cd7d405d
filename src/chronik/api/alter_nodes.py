"""AlterNodes (Chronik API key 20001): changes the desired state of nodes (voter, drained, removed), one by one."""

from __future__ import annotations

from chronik.admin.nodes import NodeChange, alter_nodes
from chronik.api.shared.context import RequestContext, Services
from chronik.protocol.error_responses import build_error_fields, build_error_response
from chronik.protocol.errors import KafkaError
from chronik.protocol.messages.alter_nodes import AlteredNode, AlterNodesRequest, AlterNodesResponse


async def handle(services: Services, request: AlterNodesRequest, context: RequestContext) -> AlterNodesResponse:
    changes = [NodeChange(each.node_id, each.action, each.host, each.port) for each in request.changes]
    try:
        outcomes = await alter_nodes(
            services.store,
            services.node_id,
            changes,
            cluster_id=request.cluster_id,
            seconds=request.timeout_ms / 1000,
            validate_only=request.validate_only,
        )
    except KafkaError as error:
        response = build_error_response(AlterNodesResponse, request, error.code)
        response.error_message = error.message
        return response
    results = [
        AlteredNode(node_id=change.node_id, **build_error_fields(outcome))
        for change, outcome in zip(changes, outcomes, strict=True)
    ]
    return AlterNodesResponse(results=results)
