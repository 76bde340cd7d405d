"""Heartbeat (API key 12): keeps a group member alive, and tells it about a rebalance."""

from __future__ import annotations

from chronik.api.shared.context import Context, Services
from chronik.api.shared.rights import may_do
from chronik.protocol.errors import ErrorCode
from chronik.protocol.failures import failed
from chronik.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from chronik.protocol.permissions import Operation, ResourceType


async def handle(services: Services, request: HeartbeatRequest, context: Context) -> HeartbeatResponse:
    if not may_do(services, context, Operation.READ, ResourceType.GROUP)(request.group_id):
        return failed(HeartbeatResponse, request, ErrorCode.GROUP_AUTHORIZATION_FAILED)
    code = await services.groups.heartbeat(
        request.group_id, request.generation_id, request.member_id, request.group_instance_id
    )
    return HeartbeatResponse(error_code=code)
