"""DeleteAcls (API key 31): deletes access control entries by filter. Without an authorizer, it fails."""

from __future__ import annotations

from typing import cast

from chronik.admin.acls import AclDeletion, delete_acls
from chronik.api.shared.context import RequestContext, Services
from chronik.protocol.codec import encode_element
from chronik.protocol.error_responses import build_error_fields
from chronik.protocol.errors import ErrorCode, KafkaError
from chronik.protocol.messages.delete_acls import (
    DeleteAclsFilter,
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from chronik.request_reply import Reply
from chronik.security.acls import AclFilterPattern

NO_AUTHORIZER = "No Authorizer is configured."


def handle(services: Services, request: DeleteAclsRequest, context: RequestContext) -> Reply[DeleteAclsResponse]:
    if services.authorizer is not None:
        return Reply.from_coroutine(_delete_acls(services, request))
    result = DeleteAclsFilterResult(error_code=ErrorCode.SECURITY_DISABLED, error_message=NO_AUTHORIZER)
    # Encoded once for all filters: a request may contain a quarter of a million.
    encoded = encode_element(DeleteAclsResponse, result, context.version)
    results = cast("list[DeleteAclsFilterResult]", [encoded] * len(request.filters))
    return Reply.from_response(DeleteAclsResponse(filter_results=results))


async def _delete_acls(services: Services, request: DeleteAclsRequest) -> DeleteAclsResponse:
    deleted = await delete_acls(services.store, [_decode_filter(each) for each in request.filters])
    return DeleteAclsResponse(filter_results=[_build_acl_filter_result(each) for each in deleted])


def _decode_filter(requested: DeleteAclsFilter) -> AclFilterPattern:
    return AclFilterPattern(
        requested.resource_type_filter,
        requested.resource_name_filter,
        requested.pattern_type_filter,
        requested.principal_filter,
        requested.host_filter,
        requested.operation,
        requested.permission_type,
    )


def _build_acl_filter_result(deleted: list[AclDeletion] | KafkaError) -> DeleteAclsFilterResult:
    if isinstance(deleted, KafkaError):
        return DeleteAclsFilterResult(**build_error_fields(deleted))
    return DeleteAclsFilterResult(
        error_message=None,
        matching_acls=[
            DeleteAclsMatchingAcl(
                **build_error_fields(error),
                resource_type=acl.resource_type,
                resource_name=acl.name,
                pattern_type=acl.pattern_type,
                principal=acl.principal,
                host=acl.host,
                operation=acl.operation,
                permission_type=acl.permission,
            )
            for acl, error in deleted
        ],
    )
