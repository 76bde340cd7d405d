"""DeleteTopics: by name, and from 6 on also by id."""

from __future__ import annotations

import asyncio
from collections import Counter

from chronik.admin.second_look import with_second_look
from chronik.api.shared.admission import refuse_system_topic
from chronik.api.shared.context import Context, Services
from chronik.api.shared.long_answers import in_pieces
from chronik.ids import ZERO_ID
from chronik.metadata.records import Topic
from chronik.protocol.errors import ErrorCode, KafkaError
from chronik.protocol.failures import failed
from chronik.protocol.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)

FIRST_VERSION_WITH_DELETION_DISABLED = 3


async def handle(services: Services, request: DeleteTopicsRequest, context: Context) -> DeleteTopicsResponse:
    if not services.configs.broker_flag("delete.topic.enable"):
        known = context.version >= FIRST_VERSION_WITH_DELETION_DISABLED
        return failure(request, ErrorCode.TOPIC_DELETION_DISABLED if known else ErrorCode.INVALID_REQUEST)
    named = Counter((wanted.name, wanted.topic_id) for wanted in _wanted(request))
    responses = []
    for some in in_pieces(list(named.items())):
        deletions = (
            _delete(services, DeleteTopicState(name=name, topic_id=topic_id), once=count == 1)
            for (name, topic_id), count in some
        )
        responses += await asyncio.gather(*deletions)
    return DeleteTopicsResponse(responses=responses)


def failure(request: DeleteTopicsRequest, code: ErrorCode) -> DeleteTopicsResponse:
    """Topics are in one of two fields, as the version has it."""
    return failed(DeleteTopicsResponse, DeleteTopicsRequest(topics=_wanted(request)), code)


def _wanted(request: DeleteTopicsRequest) -> list[DeleteTopicState]:
    return request.topics or [DeleteTopicState(name=name) for name in request.topic_names]


async def _delete(services: Services, wanted: DeleteTopicState, *, once: bool) -> DeletableTopicResult:
    result = DeletableTopicResult(name=wanted.name, topic_id=wanted.topic_id)
    try:
        if not once:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "A topic is named twice")
        if (wanted.name is None) == (wanted.topic_id == ZERO_ID):
            raise KafkaError(ErrorCode.INVALID_REQUEST, "A topic is named either by its name or by its id")
        topic = await with_second_look(services.store, lambda: _delete_found(services, wanted))
        result.name, result.topic_id = topic.name, topic.id
    except KafkaError as error:
        result.error_code, result.error_message = error.code, error.message
    return result


async def _delete_found(services: Services, wanted: DeleteTopicState) -> Topic:
    if wanted.name is not None:
        topic = services.image.topics.get(wanted.name)
        if topic is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    else:
        topic = services.image.topics_by_id.get(wanted.topic_id)
        if topic is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
    refuse_system_topic(services, topic.name)
    await services.topics.delete(topic)
    return topic
