"""DescribeGroups (API key 15): returns state, protocol and members of groups. A missing group is Dead, as in Kafka."""

from __future__ import annotations

from collections.abc import Generator

from chronik.api.shared.authorization import authorized_operations, build_authorization_predicate
from chronik.api.shared.context import RequestContext, Services
from chronik.api.shared.long_responses import ResponseElements
from chronik.protocol.errors import ErrorCode, KafkaError
from chronik.protocol.messages.describe_groups import (
    DescribedGroupMember,
    DescribeGroupsGroup,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from chronik.protocol.permissions import AclOperation, AclResourceType
from chronik.request_reply import Reply

FIRST_VERSION_WITH_GROUP_ID_NOT_FOUND = 6


def handle(
    services: Services, request: DescribeGroupsRequest, context: RequestContext
) -> Reply[DescribeGroupsResponse]:
    return Reply.from_steps(_describe_groups(services, request, context))


def _describe_groups(
    services: Services, request: DescribeGroupsRequest, context: RequestContext
) -> Generator[None, None, DescribeGroupsResponse]:
    groups = ResponseElements(DescribeGroupsResponse, context.version)
    may_see = build_authorization_predicate(services, context, AclOperation.DESCRIBE, AclResourceType.GROUP)
    for group_id in dict.fromkeys(request.groups):
        yield
        if not may_see(group_id):
            groups.add_error(_build_unauthorized_group(group_id))
            continue
        described = _describe_group(services, group_id, request, context)
        try:
            if described.error_code:
                groups.add_error(described)
            else:
                groups.add(described)
        except KafkaError as error:
            groups.add_error(DescribeGroupsGroup(group_id=group_id, error_code=error.code, error_message=error.message))
    return DescribeGroupsResponse(groups=groups.to_list(DescribeGroupsGroup))


def _build_unauthorized_group(group_id: str) -> DescribeGroupsGroup:
    code = ErrorCode.GROUP_AUTHORIZATION_FAILED
    return DescribeGroupsGroup(group_id=group_id, error_code=code, error_message=code.message)


def _describe_group(
    services: Services, group_id: str, request: DescribeGroupsRequest, context: RequestContext
) -> DescribeGroupsGroup:
    group = services.groups.describe(group_id)
    error = group.error
    if error is ErrorCode.GROUP_ID_NOT_FOUND and context.version < FIRST_VERSION_WITH_GROUP_ID_NOT_FOUND:
        error = ErrorCode.NONE
    response_group = DescribeGroupsGroup(
        error_code=error,
        error_message=error.message if error else None,
        group_id=group_id,
        group_state=group.state,
        protocol_type=group.protocol_type,
        protocol_data=group.protocol_name,
        members=[
            DescribedGroupMember(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                member_metadata=member.metadata,
                member_assignment=member.assignment,
            )
            for member in group.members
        ],
    )
    if request.include_authorized_operations:
        response_group.authorized_operations = authorized_operations(services, context, AclResourceType.GROUP, group_id)
    return response_group
