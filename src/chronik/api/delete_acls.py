"""DeleteAcls: allows or denies something no longer. Without an authorizer there is nothing to delete."""

from __future__ import annotations

from typing import cast

from chronik.admin.acls import Deleted, delete_acls
from chronik.api.shared.context import Context, Services
from chronik.exchange import Reply
from chronik.protocol.codec import encode_element
from chronik.protocol.errors import ErrorCode, KafkaError
from chronik.protocol.failures import told
from chronik.protocol.messages.delete_acls import (
    DeleteAclsFilter,
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from chronik.security.acls import Filter

NO_AUTHORIZER = "No Authorizer is configured."


def handle(services: Services, request: DeleteAclsRequest, context: Context) -> Reply[DeleteAclsResponse]:
    if services.authorizer is not None:
        return Reply.of_coroutine(_delete(services, request))
    result = DeleteAclsFilterResult(error_code=ErrorCode.SECURITY_DISABLED, error_message=NO_AUTHORIZER)
    # Encoded once, however many are asked for: a request may hold a quarter of a million.
    encoded = encode_element(DeleteAclsResponse, result, context.version)
    results = cast("list[DeleteAclsFilterResult]", [encoded] * len(request.filters))
    return Reply.of(DeleteAclsResponse(filter_results=results))


async def _delete(services: Services, request: DeleteAclsRequest) -> DeleteAclsResponse:
    found = await delete_acls(services.store, [_filter(each) for each in request.filters])
    return DeleteAclsResponse(filter_results=[_result(each) for each in found])


def _filter(asked: DeleteAclsFilter) -> Filter:
    return Filter(
        asked.resource_type_filter,
        asked.resource_name_filter,
        asked.pattern_type_filter,
        asked.principal_filter,
        asked.host_filter,
        asked.operation,
        asked.permission_type,
    )


def _result(found: list[Deleted] | KafkaError) -> DeleteAclsFilterResult:
    if isinstance(found, KafkaError):
        return DeleteAclsFilterResult(**told(found))
    return DeleteAclsFilterResult(
        error_message=None,
        matching_acls=[
            DeleteAclsMatchingAcl(
                **told(error),
                resource_type=acl.resource_type,
                resource_name=acl.name,
                pattern_type=acl.pattern_type,
                principal=acl.principal,
                host=acl.host,
                operation=acl.operation,
                permission_type=acl.permission,
            )
            for acl, error in found
        ],
    )
