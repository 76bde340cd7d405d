"""DeleteAcls, versions 0 to 3: there are none."""

from __future__ import annotations

from chronik.api.context import Context, Services
from chronik.protocol.errors import ErrorCode
from chronik.protocol.messages.delete_acls import DeleteAclsFilterResult, DeleteAclsRequest, DeleteAclsResponse

NO_AUTHORIZER = "No Authorizer is configured."


def handle(services: Services, request: DeleteAclsRequest, context: Context) -> DeleteAclsResponse:
    return _refused(request, ErrorCode.SECURITY_DISABLED, NO_AUTHORIZER)


def failure(request: DeleteAclsRequest, code: ErrorCode) -> DeleteAclsResponse:
    return _refused(request, code, code.message)


def _refused(request: DeleteAclsRequest, code: ErrorCode, message: str) -> DeleteAclsResponse:
    result = DeleteAclsFilterResult(error_code=code, error_message=message)
    return DeleteAclsResponse(filter_results=[result] * len(request.filters))
