"""CreateAcls, versions 0 to 3: nobody would heed them, so none are taken."""

from __future__ import annotations

from chronik.api.context import Context, Services
from chronik.protocol.errors import ErrorCode
from chronik.protocol.messages.create_acls import AclCreationResult, CreateAclsRequest, CreateAclsResponse

NO_AUTHORIZER = "No Authorizer is configured."


def handle(services: Services, request: CreateAclsRequest, context: Context) -> CreateAclsResponse:
    return _refused(request, ErrorCode.SECURITY_DISABLED, NO_AUTHORIZER)


def failure(request: CreateAclsRequest, code: ErrorCode) -> CreateAclsResponse:
    return _refused(request, code, code.message)


def _refused(request: CreateAclsRequest, code: ErrorCode, message: str) -> CreateAclsResponse:
    result = AclCreationResult(error_code=code, error_message=message)
    return CreateAclsResponse(results=[result] * len(request.creations))
