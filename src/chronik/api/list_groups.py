"""ListGroups (API key 16): lists the groups whose coordinator is this node, filtered by state and type."""

from __future__ import annotations

from collections.abc import Generator

from chronik.api.shared.authorization import build_authorization_predicate, is_authorized_on_cluster
from chronik.api.shared.context import RequestContext, Services
from chronik.protocol.messages.list_groups import ListGroupsGroup, ListGroupsRequest, ListGroupsResponse
from chronik.protocol.permissions import AclOperation, AclResourceType
from chronik.request_reply import Reply


def handle(services: Services, request: ListGroupsRequest, context: RequestContext) -> Reply[ListGroupsResponse]:
    return Reply.from_steps(_list_groups(services, request, context))


def _list_groups(
    services: Services, request: ListGroupsRequest, context: RequestContext
) -> Generator[None, None, ListGroupsResponse]:
    """Return the consumer groups that the client is authorized to describe."""
    groups = []
    may_see_all = is_authorized_on_cluster(services, context, AclOperation.DESCRIBE, audited=False)
    may_see = build_authorization_predicate(
        services, context, AclOperation.DESCRIBE, AclResourceType.GROUP, audited=False
    )
    for group in services.groups.iterate_groups(request.states_filter, request.types_filter):
        if group is not None and (may_see_all or may_see(group.group_id)):
            groups.append(
                ListGroupsGroup(
                    group_id=group.group_id,
                    protocol_type=group.protocol_type,
                    group_state=group.state,
                    group_type=group.group_type,
                )
            )
        yield
    return ListGroupsResponse(groups=groups)
