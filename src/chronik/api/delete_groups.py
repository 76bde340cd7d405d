"""DeleteGroups (API key 42): deletes groups without members, together with their committed offsets."""

from __future__ import annotations

from chronik.api.shared.context import Context, Services
from chronik.api.shared.rights import may_do
from chronik.metadata.slices import Pace, in_pieces
from chronik.protocol.errors import ErrorCode
from chronik.protocol.messages.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)
from chronik.protocol.permissions import Operation, ResourceType


async def handle(services: Services, request: DeleteGroupsRequest, context: Context) -> DeleteGroupsResponse:
    may_delete, pace = may_do(services, context, Operation.DELETE, ResourceType.GROUP), Pace()
    group_ids: list[str] = []
    for chunk in in_pieces(request.groups_names):
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
