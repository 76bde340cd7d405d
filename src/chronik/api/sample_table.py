"""SampleTable (Chronik API key 20008): returns rows of a topic's table to clients that may read the topic."""

from __future__ import annotations

from typing import Final

from chronik.api.shared.context import Context, Services
from chronik.api.shared.rights import may_do
from chronik.exchange import account_key
from chronik.metadata.names import PIPELINES_TOPIC
from chronik.protocol.errors import ErrorCode, KafkaError
from chronik.protocol.failures import failed, told
from chronik.protocol.messages.sample_table import SampleTableRequest, SampleTableResponse
from chronik.protocol.permissions import Operation, ResourceType

WAIT_SECONDS_MAX: Final = 30.0
"""Maximum time in seconds that a request waits for the driver's rows."""


async def handle(services: Services, request: SampleTableRequest, context: Context) -> SampleTableResponse:
    may_read = may_do(services, context, Operation.READ, ResourceType.TOPIC)
    if not may_read(request.topic):
        return failed(SampleTableResponse, request, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    wait_s = min(max(0.0, request.timeout_ms / 1000), WAIT_SECONDS_MAX)
    account = account_key(context.peer.principal, context.peer.host)
    try:
        services.replicas.by_name(PIPELINES_TOPIC, 0)  # drivers connect to the leader of this partition
        sample = await services.samples.ask(request.pipeline, request.topic, request.rows, wait_s, account)
    except KafkaError as error:
        return SampleTableResponse(**told(error))
    if not may_read(request.topic):  # the permission may have been revoked while the driver was asked
        return failed(SampleTableResponse, request, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    return SampleTableResponse(sample=sample)
