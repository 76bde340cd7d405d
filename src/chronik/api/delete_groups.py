"""DeleteGroups (API key 42): deletes groups without members, together with their committed offsets."""

from __future__ import annotations

from chronik.api.shared.authorization import build_authorization_predicate
from chronik.api.shared.context import RequestContext, Services
from chronik.metadata.chunking import YieldTimer, iter_chunks
from chronik.protocol.errors import ErrorCode
from chronik.protocol.messages.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)
from chronik.protocol.permissions import AclOperation, AclResourceType


async def handle(services: Services, request: DeleteGroupsRequest, context: RequestContext) -> DeleteGroupsResponse:
    may_delete, pace = (
        build_authorization_predicate(services, context, AclOperation.DELETE, AclResourceType.GROUP),
        YieldTimer(),
    )
    group_ids: list[str] = []
    for chunk in iter_chunks(request.groups_names):
        group_ids += filter(may_delete, chunk)
        await pace.yield_if_due()
    errors = await services.groups.delete(group_ids)
    unauthorized = ErrorCode.GROUP_AUTHORIZATION_FAILED
    return DeleteGroupsResponse(
        results=[
            DeletableGroupResult(group_id=group_id, error_code=errors.get(group_id, unauthorized))
            for group_id in dict.fromkeys(request.groups_names)
        ]
    )
