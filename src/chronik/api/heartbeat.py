"""Heartbeat: a member is alive, and learns of a rebalance."""

from __future__ import annotations

from chronik.api.shared.context import Context, Services
from chronik.groups import requests
from chronik.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse


async def handle(services: Services, request: HeartbeatRequest, context: Context) -> HeartbeatResponse:
    code = await services.groups.heartbeat(
        requests.HeartbeatRequest(
            group_id=request.group_id,
            generation=request.generation_id,
            member_id=request.member_id,
            group_instance_id=request.group_instance_id,
        )
    )
    return HeartbeatResponse(error_code=code)
