"""CreateAcls: takes none, since nobody would heed them."""

from __future__ import annotations

from typing import cast

from chronik.api.shared.context import Context, Services
from chronik.protocol.codec import encode_element
from chronik.protocol.errors import ErrorCode
from chronik.protocol.messages.create_acls import AclCreationResult, CreateAclsRequest, CreateAclsResponse

NO_AUTHORIZER = "No Authorizer is configured."


def handle(services: Services, request: CreateAclsRequest, context: Context) -> CreateAclsResponse:
    result = AclCreationResult(error_code=ErrorCode.SECURITY_DISABLED, error_message=NO_AUTHORIZER)
    # Encoded once, however many are asked for: a request may hold a quarter of a million.
    encoded = encode_element(CreateAclsResponse, result, context.version)
    return CreateAclsResponse(results=cast("list[AclCreationResult]", [encoded] * len(request.creations)))
