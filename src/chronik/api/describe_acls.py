"""DescribeAcls (API key 29): returns the access control entries that match a filter, grouped by resource.

Without an authorizer, it fails with SECURITY_DISABLED, as in Kafka.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby

from chronik.admin.acls import find_acls
from chronik.api.shared.context import RequestContext, Services
from chronik.api.shared.long_responses import ResponseElements
from chronik.metadata.records import Acl
from chronik.protocol.error_responses import build_error_fields
from chronik.protocol.errors import ErrorCode, KafkaError
from chronik.protocol.messages.describe_acls import (
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)
from chronik.request_reply import Reply
from chronik.scheduler import Steps
from chronik.security.acls import AclFilterPattern

NO_AUTHORIZER = "No Authorizer is configured on the broker"


def handle(services: Services, request: DescribeAclsRequest, context: RequestContext) -> Reply[DescribeAclsResponse]:
    if services.authorizer is None:
        disabled = DescribeAclsResponse(error_code=ErrorCode.SECURITY_DISABLED, error_message=NO_AUTHORIZER)
        return Reply.from_response(disabled)
    return Reply.from_steps(_describe_acls(services, request, context.version))


def _describe_acls(services: Services, request: DescribeAclsRequest, version: int) -> Steps[DescribeAclsResponse]:
    acl_filter = AclFilterPattern(
        request.resource_type_filter,
        request.resource_name_filter,
        request.pattern_type_filter,
        request.principal_filter,
        request.host_filter,
        request.operation,
        request.permission_type,
    )
    resources = ResponseElements(DescribeAclsResponse, version)
    try:
        if not acl_filter.is_valid:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "The filter contains an unknown type or operation.")
        acls_found = yield from find_acls(services.store, acl_filter)
        for pattern, acls in groupby(acls_found, lambda acl: (acl.resource_type, acl.name, acl.pattern_type)):
            resources.add(_build_acl_resource(*pattern, acls))
            yield None
    except KafkaError as error:
        return DescribeAclsResponse(**build_error_fields(error))
    return DescribeAclsResponse(error_message=None, resources=resources.to_list(DescribeAclsResource))


def _build_acl_resource(kind: int, name: str, pattern_type: int, acls: Iterable[Acl]) -> DescribeAclsResource:
    return DescribeAclsResource(
        resource_type=kind,
        resource_name=name,
        pattern_type=pattern_type,
        acls=[
            AclDescription(
                principal=acl.principal, host=acl.host, operation=acl.operation, permission_type=acl.permission
            )
            for acl in acls
        ],
    )
