"""DeleteTopics: by name, and from version 6 on also by id."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from chronik.api.shared.context import Context, Services
from chronik.api.shared.many_changes import named_once
from chronik.ids import ZERO_ID
from chronik.metadata.slices import in_pieces
from chronik.protocol.errors import ErrorCode, KafkaError
from chronik.protocol.failures import failed, told
from chronik.protocol.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)

FIRST_VERSION_WITH_DELETION_DISABLED = 3


async def handle(services: Services, request: DeleteTopicsRequest, context: Context) -> DeleteTopicsResponse:
    if not services.topics.may_be_deleted:
        known = context.version >= FIRST_VERSION_WITH_DELETION_DISABLED
        return failure(request, ErrorCode.TOPIC_DELETION_DISABLED if known else ErrorCode.INVALID_REQUEST)
    named = await named_once(_wanted(request), lambda each: (each.name, each.topic_id))
    responses: list[DeletableTopicResult] = []
    for some in in_pieces(named.items()):
        responses += await asyncio.gather(*(_delete(services, *names, wanted) for names, wanted in some))
    return DeleteTopicsResponse(responses=responses)


def failure(request: DeleteTopicsRequest, code: ErrorCode) -> DeleteTopicsResponse:
    """Topics are in one of two fields, as the version has it."""
    return failed(DeleteTopicsResponse, DeleteTopicsRequest(topics=list(_wanted(request))), code)


def _wanted(request: DeleteTopicsRequest) -> Iterable[DeleteTopicState]:
    return request.topics or (DeleteTopicState(name=name) for name in request.topic_names)


async def _delete(
    services: Services, name: str | None, topic_id: bytes, wanted: DeleteTopicState | None
) -> DeletableTopicResult:
    try:
        if wanted is None:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "A topic is named twice")
        key = name if topic_id == ZERO_ID else topic_id if name is None else None
        if key is None:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "A topic is named either by its name or by its id")
        topic = await services.topics.delete(key)
        return DeletableTopicResult(name=topic.name, topic_id=topic.id)
    except KafkaError as error:
        return DeletableTopicResult(name=name, topic_id=topic_id, **told(error))
