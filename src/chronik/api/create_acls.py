"""CreateAcls (API key 30): creates access control entries. Without an authorizer, it fails with SECURITY_DISABLED."""

from __future__ import annotations

from typing import cast

from chronik.admin.acls import create_acls
from chronik.api.shared.context import Context, Services
from chronik.exchange import Reply
from chronik.metadata.records import Acl
from chronik.protocol.codec import encode_element
from chronik.protocol.errors import ErrorCode
from chronik.protocol.failures import told
from chronik.protocol.messages.create_acls import AclCreation, AclCreationResult, CreateAclsRequest, CreateAclsResponse

NO_AUTHORIZER = "No Authorizer is configured."


def handle(services: Services, request: CreateAclsRequest, context: Context) -> Reply[CreateAclsResponse]:
    if services.authorizer is not None:
        return Reply.of_coroutine(_create(services, request))
    result = AclCreationResult(error_code=ErrorCode.SECURITY_DISABLED, error_message=NO_AUTHORIZER)
    # Encoded once for all creations: a request may contain a quarter of a million.
    encoded = encode_element(CreateAclsResponse, result, context.version)
    results = cast("list[AclCreationResult]", [encoded] * len(request.creations))
    return Reply.of(CreateAclsResponse(results=results))


async def _create(services: Services, request: CreateAclsRequest) -> CreateAclsResponse:
    outcomes = await create_acls(services.store, [acl_of(each) for each in request.creations])
    return CreateAclsResponse(results=[AclCreationResult(**told(outcome)) for outcome in outcomes])


def acl_of(creation: AclCreation) -> Acl:
    return Acl(
        creation.resource_type,
        creation.resource_name,
        creation.resource_pattern_type,
        creation.principal,
        creation.host,
        creation.operation,
        creation.permission_type,
    )
