"""CreateAcls (API key 30): creates access control entries. Without an authorizer, it fails with SECURITY_DISABLED."""

from __future__ import annotations

from typing import cast

from chronik.admin.acls import create_acls
from chronik.api.shared.context import RequestContext, Services
from chronik.metadata.records import Acl
from chronik.protocol.codec import encode_element
from chronik.protocol.error_responses import build_error_fields
from chronik.protocol.errors import ErrorCode
from chronik.protocol.messages.create_acls import AclCreation, AclCreationResult, CreateAclsRequest, CreateAclsResponse
from chronik.request_reply import Reply

NO_AUTHORIZER = "No Authorizer is configured."


def handle(services: Services, request: CreateAclsRequest, context: RequestContext) -> Reply[CreateAclsResponse]:
    if services.authorizer is not None:
        return Reply.from_coroutine(_create_acls(services, request))
    result = AclCreationResult(error_code=ErrorCode.SECURITY_DISABLED, error_message=NO_AUTHORIZER)
    # Encoded once for all creations: a request may contain a quarter of a million.
    encoded = encode_element(CreateAclsResponse, result, context.version)
    results = cast("list[AclCreationResult]", [encoded] * len(request.creations))
    return Reply.from_response(CreateAclsResponse(results=results))


async def _create_acls(services: Services, request: CreateAclsRequest) -> CreateAclsResponse:
    outcomes = await create_acls(services.store, [decode_acl(each) for each in request.creations])
    return CreateAclsResponse(results=[AclCreationResult(**build_error_fields(outcome)) for outcome in outcomes])


def decode_acl(creation: AclCreation) -> Acl:
    return Acl(
        creation.resource_type,
        creation.resource_name,
        creation.resource_pattern_type,
        creation.principal,
        creation.host,
        creation.operation,
        creation.permission_type,
    )
