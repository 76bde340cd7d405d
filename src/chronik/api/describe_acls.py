"""DescribeAcls (API key 29): returns the access control entries that match a filter, grouped by resource.

Without an authorizer, it fails with SECURITY_DISABLED, as in Kafka.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby

from chronik.admin.acls import matching
from chronik.api.shared.context import Context, Services
from chronik.api.shared.long_answers import Elements
from chronik.exchange import Reply
from chronik.metadata.records import Acl
from chronik.protocol.errors import ErrorCode, KafkaError
from chronik.protocol.failures import told
from chronik.protocol.messages.describe_acls import (
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)
from chronik.scheduler import Steps
from chronik.security.acls import Filter

NO_AUTHORIZER = "No Authorizer is configured on the broker"


def handle(services: Services, request: DescribeAclsRequest, context: Context) -> Reply[DescribeAclsResponse]:
    if services.authorizer is None:
        disabled = DescribeAclsResponse(error_code=ErrorCode.SECURITY_DISABLED, error_message=NO_AUTHORIZER)
        return Reply.of(disabled)
    return Reply.of_steps(_describe(services, request, context.version))


def _describe(services: Services, request: DescribeAclsRequest, version: int) -> Steps[DescribeAclsResponse]:
    acl_filter = Filter(
        request.resource_type_filter,
        request.resource_name_filter,
        request.pattern_type_filter,
        request.principal_filter,
        request.host_filter,
        request.operation,
        request.permission_type,
    )
    resources = Elements(DescribeAclsResponse, version)
    try:
        if not acl_filter.is_known:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "The filter contains an unknown type or operation.")
        acls_found = yield from matching(services.store, acl_filter)
        for pattern, acls in groupby(acls_found, lambda acl: (acl.resource_type, acl.name, acl.pattern_type)):
            resources.add(_resource(*pattern, acls))
            yield None
    except KafkaError as error:
        return DescribeAclsResponse(**told(error))
    return DescribeAclsResponse(error_message=None, resources=resources.as_array_of(DescribeAclsResource))


def _resource(kind: int, name: str, pattern_type: int, acls: Iterable[Acl]) -> DescribeAclsResource:
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
