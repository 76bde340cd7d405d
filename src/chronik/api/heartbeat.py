"""Heartbeat, versions 0 to 4: a member is alive, and learns of a rebalance."""

from __future__ import annotations

from chronik.api.context import Context, Services
from chronik.protocol.errors import ErrorCode
from chronik.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse


async def handle(services: Services, request: HeartbeatRequest, context: Context) -> HeartbeatResponse:
    code = await services.groups.heartbeat(
        request.group_id, request.generation_id, request.member_id, request.group_instance_id
    )
    return HeartbeatResponse(error_code=code)


def failure(request: HeartbeatRequest, code: ErrorCode) -> HeartbeatResponse:
    return HeartbeatResponse(error_code=code)
