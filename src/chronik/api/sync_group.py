"""SyncGroup (API key 14): the group leader sends the assignments, and every member receives its own."""

from __future__ import annotations

from chronik.api.shared.context import Context, Services
from chronik.api.shared.rights import may_do
from chronik.groups.requests import SyncRequest
from chronik.protocol.errors import ErrorCode
from chronik.protocol.failures import failed
from chronik.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from chronik.protocol.permissions import Operation, ResourceType


async def handle(services: Services, request: SyncGroupRequest, context: Context) -> SyncGroupResponse:
    if not may_do(services, context, Operation.READ, ResourceType.GROUP)(request.group_id):
        return failed(SyncGroupResponse, request, ErrorCode.GROUP_AUTHORIZATION_FAILED)
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
