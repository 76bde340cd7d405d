"""LeaveGroup (API key 13): removes a member or, from version 3 on, several members, by member or instance id."""

from __future__ import annotations

from chronik.api.shared.context import Context, Services
from chronik.api.shared.rights import may_do
from chronik.groups.requests import LeaveRequest, LeavingMember
from chronik.protocol.errors import ErrorCode
from chronik.protocol.failures import failed
from chronik.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberResponse
from chronik.protocol.permissions import Operation, ResourceType

FIRST_VERSION_WITH_MANY_MEMBERS = 3


async def handle(services: Services, request: LeaveGroupRequest, context: Context) -> LeaveGroupResponse:
    if not may_do(services, context, Operation.READ, ResourceType.GROUP)(request.group_id):
        return failed(LeaveGroupResponse, request, ErrorCode.GROUP_AUTHORIZATION_FAILED)
    has_many_members = context.version >= FIRST_VERSION_WITH_MANY_MEMBERS
    if has_many_members:
        leaving = tuple(
            LeavingMember(member.member_id, member.group_instance_id, member.reason) for member in request.members
        )
    else:
        leaving = (LeavingMember(request.member_id),)
    result = await services.groups.leave(LeaveRequest(request.group_id, leaving))
    if not has_many_members:
        code = result.error or next((member.error for member in result.members), ErrorCode.NONE)
        return LeaveGroupResponse(error_code=code)
    return LeaveGroupResponse(
        error_code=result.error,
        members=[
            MemberResponse(
                member_id=member.member_id, group_instance_id=member.group_instance_id, error_code=member.error
            )
            for member in result.members
        ],
    )
