"""ListGroups, versions 0 to 5: the groups of this node, filtered by state and type."""

from __future__ import annotations

from chronik.api.context import Context, Services
from chronik.protocol.errors import ErrorCode
from chronik.protocol.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse


def handle(services: Services, request: ListGroupsRequest, context: Context) -> ListGroupsResponse:
    return ListGroupsResponse(
        groups=[
            ListedGroup(
                group_id=group.group_id,
                protocol_type=group.protocol_type,
                group_state=group.state,
                group_type=group.group_type,
            )
            for group in services.groups.list(request.states_filter, request.types_filter)
        ]
    )


def failure(request: ListGroupsRequest, code: ErrorCode) -> ListGroupsResponse:
    return ListGroupsResponse(error_code=code)
