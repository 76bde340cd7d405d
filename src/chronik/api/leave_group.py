"""LeaveGroup (API key 13): removes a member or, from version 3 on, several members, by member or instance id."""

from __future__ import annotations

from chronik.api.shared.authorization import build_authorization_predicate
from chronik.api.shared.context import RequestContext, Services
from chronik.groups.requests import LeaveRequest, LeavingMember
from chronik.protocol.error_responses import build_error_response
from chronik.protocol.errors import ErrorCode
from chronik.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberResponse
from chronik.protocol.permissions import AclOperation, AclResourceType

FIRST_VERSION_WITH_MANY_MEMBERS = 3


async def handle(services: Services, request: LeaveGroupRequest, context: RequestContext) -> LeaveGroupResponse:
    if not build_authorization_predicate(services, context, AclOperation.READ, AclResourceType.GROUP)(request.group_id):
        return build_error_response(LeaveGroupResponse, request, ErrorCode.GROUP_AUTHORIZATION_FAILED)
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
