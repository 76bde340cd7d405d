"""DeleteTopics, versions 0 to 6: by name, and from 6 on also by id."""

from __future__ import annotations

from chronik.api.context import Context, Services
from chronik.ids import ZERO_ID
from chronik.protocol.errors import ErrorCode, KafkaError
from chronik.protocol.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)


async def handle(services: Services, request: DeleteTopicsRequest, context: Context) -> DeleteTopicsResponse:
    return DeleteTopicsResponse(responses=[await _delete(services, wanted) for wanted in _wanted(request)])


def failure(request: DeleteTopicsRequest, code: ErrorCode) -> DeleteTopicsResponse:
    return DeleteTopicsResponse(
        responses=[
            DeletableTopicResult(
                name=wanted.name, topic_id=wanted.topic_id, error_code=code, error_message=code.message
            )
            for wanted in _wanted(request)
        ]
    )


def _wanted(request: DeleteTopicsRequest) -> list[DeleteTopicState]:
    return request.topics or [DeleteTopicState(name=name) for name in request.topic_names]


async def _delete(services: Services, wanted: DeleteTopicState) -> DeletableTopicResult:
    image = services.image
    result = DeletableTopicResult(name=wanted.name, topic_id=wanted.topic_id)
    try:
        if wanted.name is not None and wanted.topic_id != ZERO_ID:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "A topic is named by its name or by its id, not by both")
        if wanted.name is not None:
            topic = image.topics.get(wanted.name)
            if topic is None:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        else:
            topic = image.topics_by_id.get(wanted.topic_id)
            if topic is None:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
        await services.topics.delete(topic)
        result.name, result.topic_id = topic.name, topic.id
    except KafkaError as error:
        result.error_code, result.error_message = error.code, error.message
    return result
