"""DescribeGroups, versions 0 to 6: state, protocol and members of groups. A missing one is Dead, as in Kafka."""

from __future__ import annotations

from chronik.api import operations
from chronik.api.context import Context, Services
from chronik.protocol.errors import ErrorCode
from chronik.protocol.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)

FIRST_VERSION_WITH_GROUP_ID_NOT_FOUND = 6


def handle(services: Services, request: DescribeGroupsRequest, context: Context) -> DescribeGroupsResponse:
    return DescribeGroupsResponse(
        groups=[_describe(services, group_id, request, context.version) for group_id in request.groups]
    )


def failure(request: DescribeGroupsRequest, code: ErrorCode) -> DescribeGroupsResponse:
    return DescribeGroupsResponse(
        groups=[
            DescribedGroup(group_id=group_id, error_code=code, error_message=code.message)
            for group_id in request.groups
        ]
    )


def _describe(services: Services, group_id: str, request: DescribeGroupsRequest, version: int) -> DescribedGroup:
    found = services.groups.describe(group_id)
    error = found.error
    if error is ErrorCode.GROUP_ID_NOT_FOUND and version < FIRST_VERSION_WITH_GROUP_ID_NOT_FOUND:
        error = ErrorCode.NONE
    answer = DescribedGroup(
        error_code=error,
        error_message=error.message if error else None,
        group_id=group_id,
        group_state=found.state,
        protocol_type=found.protocol_type,
        protocol_data=found.protocol_name,
        members=[
            DescribedGroupMember(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                member_metadata=member.metadata,
                member_assignment=member.assignment,
            )
            for member in found.members
        ],
    )
    if request.include_authorized_operations:
        answer.authorized_operations = operations.ON_GROUP
    return answer
