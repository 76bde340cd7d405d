"""DeleteAcls: there are none."""

from __future__ import annotations

from typing import cast

from chronik.api.shared.context import Context, Services
from chronik.protocol.codec import encode_element
from chronik.protocol.errors import ErrorCode
from chronik.protocol.messages.delete_acls import DeleteAclsFilterResult, DeleteAclsRequest, DeleteAclsResponse

NO_AUTHORIZER = "No Authorizer is configured."


def handle(services: Services, request: DeleteAclsRequest, context: Context) -> DeleteAclsResponse:
    result = DeleteAclsFilterResult(error_code=ErrorCode.SECURITY_DISABLED, error_message=NO_AUTHORIZER)
    # Encoded once, however many are asked for: a request may hold a quarter of a million.
    encoded = encode_element(DeleteAclsResponse, result, context.version)
    return DeleteAclsResponse(filter_results=cast("list[DeleteAclsFilterResult]", [encoded] * len(request.filters)))
