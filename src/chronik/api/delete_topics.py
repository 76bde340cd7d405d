"""DeleteTopics: by name, and from version 6 on also by id."""

from __future__ import annotations

from chronik.admin.topics import TopicKey
from chronik.api.shared.context import Context, Services
from chronik.ids import ZERO_ID
from chronik.metadata.records import Topic
from chronik.protocol.errors import ErrorCode, KafkaError
from chronik.protocol.failures import failed, told
from chronik.protocol.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)

FIRST_VERSION_WITH_DELETION_DISABLED = 3

MISNAMED = KafkaError(ErrorCode.INVALID_REQUEST, "A topic is named either by its name or by its id")


async def handle(services: Services, request: DeleteTopicsRequest, context: Context) -> DeleteTopicsResponse:
    if not services.topics.may_be_deleted:
        known = context.version >= FIRST_VERSION_WITH_DELETION_DISABLED
        return failure(request, ErrorCode.TOPIC_DELETION_DISABLED if known else ErrorCode.INVALID_REQUEST)
    wanted = [(each.name, each.topic_id) for each in _wanted(request)]
    keys = {each: _key(*each) for each in wanted}
    outcomes = await services.topics.delete([key for each in wanted if (key := keys[each]) is not None])
    return DeleteTopicsResponse(
        responses=[
            _result(name, topic_id, MISNAMED if key is None else outcomes[key])
            for (name, topic_id), key in keys.items()
        ]
    )


def failure(request: DeleteTopicsRequest, code: ErrorCode) -> DeleteTopicsResponse:
    """Topics are in one of two fields, as the version has it."""
    return failed(DeleteTopicsResponse, DeleteTopicsRequest(topics=_wanted(request)), code)


def _wanted(request: DeleteTopicsRequest) -> list[DeleteTopicState]:
    return request.topics or [DeleteTopicState(name=name) for name in request.topic_names]


def _key(name: str | None, topic_id: bytes) -> TopicKey | None:
    if topic_id == ZERO_ID:
        return name
    return topic_id if name is None else None


def _result(name: str | None, topic_id: bytes, outcome: Topic | KafkaError) -> DeletableTopicResult:
    if isinstance(outcome, Topic):
        return DeletableTopicResult(name=outcome.name, topic_id=outcome.id)
    return DeletableTopicResult(name=name, topic_id=topic_id, **told(outcome))
