"""SampleTable (Chronik API key 20008): returns rows of a topic's table to clients that may read the topic."""

from __future__ import annotations

from typing import Final

from chronik.api.shared.authorization import build_authorization_predicate
from chronik.api.shared.context import RequestContext, Services
from chronik.metadata.names import PIPELINES_TOPIC
from chronik.protocol.error_responses import build_error_fields, build_error_response
from chronik.protocol.errors import ErrorCode, KafkaError
from chronik.protocol.messages.sample_table import SampleTableRequest, SampleTableResponse
from chronik.protocol.permissions import AclOperation, AclResourceType
from chronik.request_reply import build_account_key

WAIT_SECONDS_MAX: Final = 30.0
"""Maximum time in seconds that a client waits for sample rows of a table from the pipeline driver."""


async def handle(services: Services, request: SampleTableRequest, context: RequestContext) -> SampleTableResponse:
    may_read = build_authorization_predicate(services, context, AclOperation.READ, AclResourceType.TOPIC)
    if not may_read(request.topic):
        return build_error_response(SampleTableResponse, request, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    wait_s = min(max(0.0, request.timeout_ms / 1000), WAIT_SECONDS_MAX)
    account = build_account_key(context.peer.principal, context.peer.host)
    try:
        services.replicas.get_leader(PIPELINES_TOPIC, 0)  # drivers connect to the leader of this partition
        sample = await services.samples.request(request.pipeline, request.topic, request.rows, wait_s, account)
    except KafkaError as error:
        return SampleTableResponse(**build_error_fields(error))
    if not may_read(request.topic):  # the permission may have been revoked while the driver was asked
        return build_error_response(SampleTableResponse, request, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    return SampleTableResponse(sample=sample)
