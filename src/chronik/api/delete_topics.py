"""DeleteTopics: by name, and from version 6 on also by id."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from chronik.api.shared.context import Context, Services
from chronik.api.shared.many_changes import named_once
from chronik.api.shared.rights import may_do, may_with_cluster
from chronik.ids import ZERO_ID
from chronik.metadata.records import Topic
from chronik.metadata.slices import in_pieces
from chronik.protocol.errors import ErrorCode, KafkaError
from chronik.protocol.failures import failed, told
from chronik.protocol.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from chronik.protocol.permissions import Operation, ResourceType

FIRST_VERSION_WITH_DELETION_DISABLED = 3
FIRST_STRICT_VERSION = 5
"""From here on clients know that a quota may be exceeded."""


async def handle(services: Services, request: DeleteTopicsRequest, context: Context) -> DeleteTopicsResponse:
    if not services.topics.may_be_deleted:
        known = context.version >= FIRST_VERSION_WITH_DELETION_DISABLED
        return failure(request, ErrorCode.TOPIC_DELETION_DISABLED if known else ErrorCode.INVALID_REQUEST)
    named = await named_once(_wanted(request), lambda each: (each.name, each.topic_id))
    responses: list[DeletableTopicResult] = []
    rights = _Rights(services, context)
    for some in in_pieces(named.items()):
        answers = (_delete(services, context, rights, *names, wanted) for names, wanted in some)
        responses += await asyncio.gather(*answers)
    return DeleteTopicsResponse(responses=responses)


def failure(request: DeleteTopicsRequest, code: ErrorCode) -> DeleteTopicsResponse:
    """Topics are in one of two fields, as the version has it."""
    return failed(DeleteTopicsResponse, DeleteTopicsRequest(topics=list(_wanted(request))), code)


def _wanted(request: DeleteTopicsRequest) -> Iterable[DeleteTopicState]:
    return request.topics or (DeleteTopicState(name=name) for name in request.topic_names)


class _Rights:
    """Which topics may be deleted; and which of the others may be known, by their names or their ids."""

    def __init__(self, services: Services, context: Context) -> None:
        self._is_everything = may_with_cluster(services, context, Operation.DELETE, audited=False)
        self._may_delete = may_do(services, context, Operation.DELETE, ResourceType.TOPIC)
        self._may_see = may_do(services, context, Operation.DESCRIBE, ResourceType.TOPIC)

    def check_name(self, name: str) -> None:
        """Raises KafkaError where it must not be told whether there is such a topic."""
        if not self._is_everything and not self._may_see(name):
            raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)

    def check(self, topic: Topic) -> None:
        """Raises KafkaError."""
        if not self._is_everything and not self._may_delete(topic.name):
            raise _NotDeletable(topic.name if self._may_see(topic.name) else None)


class _NotDeletable(KafkaError):
    def __init__(self, name: str | None) -> None:
        super().__init__(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        self.name = name


async def _delete(
    services: Services,
    context: Context,
    rights: _Rights,
    name: str | None,
    topic_id: bytes,
    wanted: DeleteTopicState | None,
) -> DeletableTopicResult:
    try:
        if wanted is None:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "A topic is named twice")
        key = name if topic_id == ZERO_ID else topic_id if name is None else None
        if key is None:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "A topic is named either by its name or by its id")
        if isinstance(key, str):
            rights.check_name(key)
        if context.usage is not None:
            context.usage.mutated(_partitions(services, key), strict=context.version >= FIRST_STRICT_VERSION)
        topic = await services.topics.delete(key, rights.check)
        return DeletableTopicResult(name=topic.name, topic_id=topic.id)
    except _NotDeletable as error:
        return DeletableTopicResult(name=name or error.name, topic_id=topic_id, **told(error))
    except KafkaError as error:
        return DeletableTopicResult(name=name, topic_id=topic_id, **told(error))


def _partitions(services: Services, key: str | bytes) -> int:
    image = services.image
    topic = image.topics.get(key) if isinstance(key, str) else image.topics_by_id.get(key)
    return 0 if topic is None else len(topic.partitions)
