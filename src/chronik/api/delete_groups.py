"""DeleteGroups: groups without members go, and their offsets with them."""

from __future__ import annotations

from chronik.api.shared.context import Context, Services
from chronik.protocol.messages.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)


async def handle(services: Services, request: DeleteGroupsRequest, context: Context) -> DeleteGroupsResponse:
    errors = await services.groups.delete(request.groups_names)
    return DeleteGroupsResponse(
        results=[DeletableGroupResult(group_id=group_id, error_code=code) for group_id, code in errors.items()]
    )
