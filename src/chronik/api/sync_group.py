"""SyncGroup (API key 14): the group leader sends the assignments, and every member receives its own."""

from __future__ import annotations

from chronik.api.shared.authorization import build_authorization_predicate
from chronik.api.shared.context import RequestContext, Services
from chronik.groups.requests import SyncRequest
from chronik.protocol.error_responses import build_error_response
from chronik.protocol.errors import ErrorCode
from chronik.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from chronik.protocol.permissions import AclOperation, AclResourceType


async def handle(services: Services, request: SyncGroupRequest, context: RequestContext) -> SyncGroupResponse:
    if not build_authorization_predicate(services, context, AclOperation.READ, AclResourceType.GROUP)(request.group_id):
        return build_error_response(SyncGroupResponse, request, ErrorCode.GROUP_AUTHORIZATION_FAILED)
    result = await services.groups.sync(
        SyncRequest(
            group_id=request.group_id,
            generation=request.generation_id,
            member_id=request.member_id,
            group_instance_id=request.group_instance_id,
            protocol_type=request.protocol_type,
            protocol_name=request.protocol_name,
            assignments=tuple((given.member_id, bytes(given.assignment)) for given in request.assignments),
        )
    )
    return SyncGroupResponse(
        error_code=result.error,
        protocol_type=result.protocol_type,
        protocol_name=result.protocol_name,
        assignment=result.assignment,
    )
