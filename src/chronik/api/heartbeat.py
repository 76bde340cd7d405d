"""Heartbeat (API key 12): renews a group member's session, and notifies the member of a rebalance."""

from __future__ import annotations

from chronik.api.shared.authorization import build_authorization_predicate
from chronik.api.shared.context import RequestContext, Services
from chronik.protocol.error_responses import build_error_response
from chronik.protocol.errors import ErrorCode
from chronik.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from chronik.protocol.permissions import AclOperation, AclResourceType


async def handle(services: Services, request: HeartbeatRequest, context: RequestContext) -> HeartbeatResponse:
    if not build_authorization_predicate(services, context, AclOperation.READ, AclResourceType.GROUP)(request.group_id):
        return build_error_response(HeartbeatResponse, request, ErrorCode.GROUP_AUTHORIZATION_FAILED)
    code = await services.groups.heartbeat(
        request.group_id, request.generation_id, request.member_id, request.group_instance_id
    )
    return HeartbeatResponse(error_code=code)
