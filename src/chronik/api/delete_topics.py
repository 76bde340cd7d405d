"""DeleteTopics (API key 20): deletes topics by name, or by id from version 6 on."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from chronik.api.shared.authorization import build_authorization_predicate, is_authorized_on_cluster
from chronik.api.shared.bulk_changes import index_by_unique_key
from chronik.api.shared.context import RequestContext, Services
from chronik.ids import ZERO_ID
from chronik.metadata.chunking import iter_chunks
from chronik.metadata.records import Topic
from chronik.protocol.error_responses import build_error_fields, build_error_response
from chronik.protocol.errors import ErrorCode, KafkaError
from chronik.protocol.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from chronik.protocol.permissions import AclOperation, AclResourceType

FIRST_VERSION_WITH_DELETION_DISABLED = 3
FIRST_VERSION_WITH_QUOTA_ERROR = 5
"""First DeleteTopics version whose clients support THROTTLING_QUOTA_EXCEEDED."""


async def handle(services: Services, request: DeleteTopicsRequest, context: RequestContext) -> DeleteTopicsResponse:
    if not services.topics.is_deletion_enabled:
        known = context.version >= FIRST_VERSION_WITH_DELETION_DISABLED
        return failure(request, ErrorCode.TOPIC_DELETION_DISABLED if known else ErrorCode.INVALID_REQUEST)
    named = await index_by_unique_key(_list_requested_topics(request), lambda each: (each.name, each.topic_id))
    responses: list[DeletableTopicResult] = []
    checks = _Authorization(services, context)
    for chunk in iter_chunks(named.items()):
        deletions = (_delete_topic(services, context, checks, *names, wanted) for names, wanted in chunk)
        responses += await asyncio.gather(*deletions)
    return DeleteTopicsResponse(responses=responses)


def failure(request: DeleteTopicsRequest, code: ErrorCode) -> DeleteTopicsResponse:
    """Return a DeleteTopics response with the error code for each requested topic.

    The request field that contains the topics depends on the API version.
    """
    return build_error_response(
        DeleteTopicsResponse, DeleteTopicsRequest(topics=list(_list_requested_topics(request))), code
    )


def _list_requested_topics(request: DeleteTopicsRequest) -> Iterable[DeleteTopicState]:
    return request.topics or (DeleteTopicState(name=name) for name in request.topic_names)


class _Authorization:
    """Permission checks of a DeleteTopics request: DELETE and DESCRIBE on each topic, or DELETE on the cluster."""

    def __init__(self, services: Services, context: RequestContext) -> None:
        self._may_delete_any = is_authorized_on_cluster(services, context, AclOperation.DELETE, audited=False)
        self._may_delete = build_authorization_predicate(services, context, AclOperation.DELETE, AclResourceType.TOPIC)
        self._may_see = build_authorization_predicate(services, context, AclOperation.DESCRIBE, AclResourceType.TOPIC)

    def check_can_describe_topic(self, name: str) -> None:
        """Raise TOPIC_AUTHORIZATION_FAILED if the client may not learn whether the topic exists."""
        if not self._may_delete_any and not self._may_see(name):
            raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)

    def check(self, topic: Topic) -> None:
        """Raise TOPIC_AUTHORIZATION_FAILED if the client may not delete the topic."""
        if not self._may_delete_any and not self._may_delete(topic.name):
            raise _TopicDeletionDenied(topic.name if self._may_see(topic.name) else None)


class _TopicDeletionDenied(KafkaError):
    """An authorization error of a topic deletion that hides the topic's name from unauthorized clients.

    It contains the name only if the client may describe the topic.
    """

    def __init__(self, name: str | None) -> None:
        super().__init__(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        self.name = name


async def _delete_topic(
    services: Services,
    context: RequestContext,
    checks: _Authorization,
    name: str | None,
    topic_id: bytes,
    wanted: DeleteTopicState | None,
) -> DeletableTopicResult:
    try:
        if wanted is None:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "The request names the topic more than once")
        key = name if topic_id == ZERO_ID else topic_id if name is None else None
        if key is None:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Specify either the name or the id of each topic")
        if isinstance(key, str):
            checks.check_can_describe_topic(key)
        if context.usage is not None:
            context.usage.charge_mutation(
                _count_partitions(services, key), strict=context.version >= FIRST_VERSION_WITH_QUOTA_ERROR
            )
        topic = await services.topics.delete(key, checks.check)
        return DeletableTopicResult(name=topic.name, topic_id=topic.id)
    except _TopicDeletionDenied as error:
        return DeletableTopicResult(name=name or error.name, topic_id=topic_id, **build_error_fields(error))
    except KafkaError as error:
        return DeletableTopicResult(name=name, topic_id=topic_id, **build_error_fields(error))


def _count_partitions(services: Services, key: str | bytes) -> int:
    image = services.image
    topic = image.topics.get(key) if isinstance(key, str) else image.topics_by_id.get(key)
    return 0 if topic is None else len(topic.partitions)
