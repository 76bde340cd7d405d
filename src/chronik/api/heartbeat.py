"""Heartbeat: a member is alive, and learns of a rebalance."""

from __future__ import annotations

from chronik.api.shared.context import Context, Services
from chronik.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse


async def handle(services: Services, request: HeartbeatRequest, context: Context) -> HeartbeatResponse:
    code = await services.groups.heartbeat(
        request.group_id, request.generation_id, request.member_id, request.group_instance_id
    )
    return HeartbeatResponse(error_code=code)
