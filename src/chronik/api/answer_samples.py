"""AnswerSamples: a driver comes with rows that it was asked for, and for what it is asked next."""

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


async def handle(services: Services, request: AnswerSamplesRequest, context: Context) -> AnswerSamplesResponse:
    """Is for those who may tell of pipelines: whoever may, may also say what is in their tables."""
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
