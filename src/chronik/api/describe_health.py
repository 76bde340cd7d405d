"""DescribeHealth (Chronik API key 20011): returns the problems of the cluster, as at `GET /health`."""

from __future__ import annotations

import msgspec

from chronik.api.shared.authorization import build_authorization_predicate
from chronik.api.shared.context import RequestContext, Services
from chronik.health.problems import SubjectType, find_subject_type, hide_subjects
from chronik.metadata.names import PIPELINES_TOPIC
from chronik.protocol.errors import ErrorCode
from chronik.protocol.messages.describe_health import DescribeHealthRequest, DescribeHealthResponse
from chronik.protocol.permissions import AclOperation, AclResourceType


async def handle(services: Services, request: DescribeHealthRequest, context: RequestContext) -> DescribeHealthResponse:
    if services.find_health is None:
        message = "This node does not monitor the health of its cluster."
        return DescribeHealthResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, error_message=message)
    report = await services.find_health()

    def predicate(operation: AclOperation, resource: AclResourceType):  # type: ignore[no-untyped-def]
        return build_authorization_predicate(services, context, operation, resource, audited=False)

    may_describe = {
        SubjectType.GROUP: predicate(AclOperation.DESCRIBE, AclResourceType.GROUP),
        SubjectType.TRANSACTIONAL_ID: predicate(AclOperation.DESCRIBE, AclResourceType.TRANSACTIONAL_ID),
        SubjectType.PIPELINE: lambda _: predicate(AclOperation.READ, AclResourceType.TOPIC)(PIPELINES_TOPIC),
    }
    problems = hide_subjects(
        report.problems,
        lambda each: (found := find_subject_type(each)) is None or may_describe[found](each.subject),
    )
    return DescribeHealthResponse(
        health=msgspec.json.encode(msgspec.structs.replace(report, problems=problems).to_json())
    )
