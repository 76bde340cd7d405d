"""DescribeAcls: there is no authorizer, so there are no ACLs, and it says so in Kafka's words."""

from __future__ import annotations

from chronik.api.shared.context import Context, Services
from chronik.protocol.errors import ErrorCode
from chronik.protocol.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse

NO_AUTHORIZER = "No Authorizer is configured on the broker"


def handle(services: Services, request: DescribeAclsRequest, context: Context) -> DescribeAclsResponse:
    return DescribeAclsResponse(error_code=ErrorCode.SECURITY_DISABLED, error_message=NO_AUTHORIZER)
