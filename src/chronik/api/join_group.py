"""JoinGroup (API key 11): adds a member to a group; the response is sent when the new generation starts."""

from __future__ import annotations

from chronik.api.shared.authorization import build_authorization_predicate
from chronik.api.shared.context import RequestContext, Services
from chronik.groups.requests import JoinRequest
from chronik.limits import CLIENT_ID_CHARACTERS_MAX
from chronik.protocol.error_responses import build_error_response
from chronik.protocol.errors import ErrorCode
from chronik.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse, JoinGroupResponseMember
from chronik.protocol.permissions import AclOperation, AclResourceType

FIRST_VERSION_WITH_KNOWN_MEMBERS = 4
FIRST_VERSION_WITH_NULL_PROTOCOL = 7
FIRST_VERSION_WITH_SKIP_ASSIGNMENT = 9


async def handle(services: Services, request: JoinGroupRequest, context: RequestContext) -> JoinGroupResponse:
    if not build_authorization_predicate(services, context, AclOperation.READ, AclResourceType.GROUP)(request.group_id):
        return build_error_response(JoinGroupResponse, request, ErrorCode.GROUP_AUTHORIZATION_FAILED)
    rebalance_timeout_ms = request.rebalance_timeout_ms
    if rebalance_timeout_ms < 0:  # version 0 has no such field
        rebalance_timeout_ms = request.session_timeout_ms
    result = await services.groups.join(
        JoinRequest(
            group_id=request.group_id,
            member_id=request.member_id,
            group_instance_id=request.group_instance_id,
            client_id=context.client_id[:CLIENT_ID_CHARACTERS_MAX],
            client_host=f"/{context.peer.host}",
            session_timeout_ms=request.session_timeout_ms,
            rebalance_timeout_ms=rebalance_timeout_ms,
            protocol_type=request.protocol_type,
            protocols=tuple((protocol.name, bytes(protocol.metadata)) for protocol in request.protocols),
            require_known_member_id=context.version >= FIRST_VERSION_WITH_KNOWN_MEMBERS,
            supports_skip_assignment=context.version >= FIRST_VERSION_WITH_SKIP_ASSIGNMENT,
            reason=request.reason,
        )
    )
    protocol_name = result.protocol_name
    if protocol_name is None and context.version < FIRST_VERSION_WITH_NULL_PROTOCOL:
        protocol_name = ""
    return JoinGroupResponse(
        error_code=result.error,
        generation_id=result.generation,
        protocol_type=result.protocol_type,
        protocol_name=protocol_name,
        leader=result.leader,
        skip_assignment=result.skip_assignment,
        member_id=result.member_id,
        members=[
            JoinGroupResponseMember(
                member_id=member.member_id, group_instance_id=member.group_instance_id, metadata=member.metadata
            )
            for member in result.members
        ],
    )
