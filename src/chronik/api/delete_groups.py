"""DeleteGroups: groups without members go, and their offsets with them."""

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
    wanted: list[str] = []
    for some in in_pieces(request.groups_names):
        wanted += filter(may_delete, some)
        await pace.yield_if_due()
    errors = await services.groups.delete(wanted)
    refused = ErrorCode.GROUP_AUTHORIZATION_FAILED
    return DeleteGroupsResponse(
        results=[
            DeletableGroupResult(group_id=group_id, error_code=errors.get(group_id, refused))
            for group_id in dict.fromkeys(request.groups_names)
        ]
    )
