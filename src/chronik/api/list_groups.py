"""ListGroups: the groups of this node, filtered by state and type."""

from __future__ import annotations

from collections.abc import Awaitable, Generator

from chronik.api.shared.context import Context, Services
from chronik.api.shared.long_answers import Long, at_once_or_in_slices
from chronik.protocol.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse


def handle(services: Services, request: ListGroupsRequest, context: Context) -> ListGroupsResponse | Awaitable[Long]:
    return at_once_or_in_slices(_answer(services, request))


def _answer(services: Services, request: ListGroupsRequest) -> Generator[None, None, ListGroupsResponse]:
    groups = []
    for group in services.groups.list_in_steps(request.states_filter, request.types_filter):
        if group is not None:
            groups.append(
                ListedGroup(
                    group_id=group.group_id,
                    protocol_type=group.protocol_type,
                    group_state=group.state,
                    group_type=group.group_type,
                )
            )
        yield
    return ListGroupsResponse(groups=groups)
