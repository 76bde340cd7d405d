"""AnswerSamples (Chronik API key 20009): a pipeline driver returns table samples and waits for new requests."""

from __future__ import annotations

from typing import Final

from chronik.api.shared.context import Context, Services
from chronik.api.shared.rights import may_do
from chronik.metadata.names import PIPELINES_TOPIC
from chronik.protocol.errors import ErrorCode, KafkaError
from chronik.protocol.failures import failed, told
from chronik.protocol.messages.answer_samples import AnswerSamplesRequest, AnswerSamplesResponse, SampleAsked
from chronik.protocol.permissions import Operation, ResourceType

WAIT_SECONDS_MAX: Final = 30.0
"""Maximum time in seconds that a driver's request waits for sample requests."""


async def handle(services: Services, request: AnswerSamplesRequest, context: Context) -> AnswerSamplesResponse:
    """Require WRITE on the pipelines topic: a client that may report pipelines may also report their rows."""
    if not may_do(services, context, Operation.WRITE, ResourceType.TOPIC)(PIPELINES_TOPIC):
        return failed(AnswerSamplesResponse, request, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    samples = services.samples
    try:
        services.replicas.by_name(PIPELINES_TOPIC, 0)
        for answer in request.answers:
            samples.answer(request.pipeline, answer.id, bytes(answer.sample))
        taken = await samples.take(request.pipeline, min(max(0.0, request.max_wait_ms / 1000), WAIT_SECONDS_MAX))
    except KafkaError as error:
        return AnswerSamplesResponse(**told(error))
    if taken is None:
        return AnswerSamplesResponse()
    return AnswerSamplesResponse(asked=[SampleAsked(id=taken.id, topic=taken.topic, rows=taken.rows)])
