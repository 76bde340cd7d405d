"""AnswerSamples (Chronik API key 20009): a pipeline driver returns table samples and waits for new requests."""

from __future__ import annotations

from typing import Final

from chronik.api.shared.authorization import build_authorization_predicate
from chronik.api.shared.context import RequestContext, Services
from chronik.metadata.names import PIPELINES_TOPIC
from chronik.protocol.error_responses import build_error_fields, build_error_response
from chronik.protocol.errors import ErrorCode, KafkaError
from chronik.protocol.messages.answer_samples import AnswerSamplesRequest, AnswerSamplesResponse, SampleRequestEntry
from chronik.protocol.permissions import AclOperation, AclResourceType

WAIT_SECONDS_MAX: Final = 30.0
"""Maximum time in seconds that a pipeline driver's long-polling request waits for a sample request."""


async def handle(services: Services, request: AnswerSamplesRequest, context: RequestContext) -> AnswerSamplesResponse:
    """Send a pipeline driver's sample rows to the clients that requested them, and return the next request.

    Requires WRITE on the pipelines topic: a client that may report pipelines may also report their rows.
    """
    if not build_authorization_predicate(services, context, AclOperation.WRITE, AclResourceType.TOPIC)(PIPELINES_TOPIC):
        return build_error_response(AnswerSamplesResponse, request, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    samples = services.samples
    try:
        services.replicas.get_leader(PIPELINES_TOPIC, 0)
        for answer in request.answers:
            samples.respond(request.pipeline, answer.id, bytes(answer.sample))
        taken = await samples.take_request(
            request.pipeline, min(max(0.0, request.max_wait_ms / 1000), WAIT_SECONDS_MAX)
        )
    except KafkaError as error:
        return AnswerSamplesResponse(**build_error_fields(error))
    if taken is None:
        return AnswerSamplesResponse()
    return AnswerSamplesResponse(asked=[SampleRequestEntry(id=taken.id, topic=taken.topic, rows=taken.rows)])
