"""ListGroups (API key 16): lists the groups whose coordinator is this node, filtered by state and type."""

from __future__ import annotations

from collections.abc import Generator

from chronik.api.shared.context import Context, Services
from chronik.api.shared.rights import may_do, may_with_cluster
from chronik.exchange import Reply
from chronik.protocol.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from chronik.protocol.permissions import Operation, ResourceType


def handle(services: Services, request: ListGroupsRequest, context: Context) -> Reply[ListGroupsResponse]:
    return Reply.of_steps(_list_groups(services, request, context))


def _list_groups(
    services: Services, request: ListGroupsRequest, context: Context
) -> Generator[None, None, ListGroupsResponse]:
    """List the groups that the client may describe; all of them if it may describe the cluster."""
    groups = []
    may_see_all = may_with_cluster(services, context, Operation.DESCRIBE, audited=False)
    may_see = may_do(services, context, Operation.DESCRIBE, ResourceType.GROUP, audited=False)
    for group in services.groups.list_in_steps(request.states_filter, request.types_filter):
        if group is not None and (may_see_all or may_see(group.group_id)):
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
