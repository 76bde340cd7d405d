"""OffsetCommit (API key 8): stores a group's committed offsets in the metadata log. Version 10 names topics by id.

Version 0, which stored offsets in ZooKeeper, commits like the other versions, without a generation.
"""

from __future__ import annotations

from chronik.api.shared.authorization import build_authorization_predicate
from chronik.api.shared.context import RequestContext, Services
from chronik.api.shared.offset_commits import ensure_offsets_topic, select_known_offsets
from chronik.metadata.records import Topic
from chronik.protocol.error_responses import build_error_response
from chronik.protocol.errors import ErrorCode
from chronik.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from chronik.protocol.permissions import AclOperation, AclResourceType

FIRST_VERSION_WITH_GROUP_ID_NOT_FOUND = 9
FIRST_VERSION_WITH_TOPIC_IDS = 10


async def handle(services: Services, request: OffsetCommitRequest, context: RequestContext) -> OffsetCommitResponse:
    if not build_authorization_predicate(services, context, AclOperation.READ, AclResourceType.GROUP)(request.group_id):
        return build_error_response(OffsetCommitResponse, request, ErrorCode.GROUP_AUTHORIZATION_FAILED)
    found = [_find_topic(services, topic, context.version) for topic in request.topics]
    unauthorized = _find_unauthorized_topics(services, request, context, found)
    if unauthorized:
        found = [None if position in unauthorized else topic for position, topic in enumerate(found)]
    partitions = [topic.partitions for topic in request.topics]
    known = await select_known_offsets(list(zip(found, partitions, strict=True)))
    codes = await services.groups.offsets.commit(
        request.group_id,
        list(known.values()),
        request.generation_id_or_member_epoch,
        request.member_id,
        request.group_instance_id,
        request.retention_time_ms,
    )
    if ErrorCode.GROUP_ID_NOT_FOUND in codes and context.version < FIRST_VERSION_WITH_GROUP_ID_NOT_FOUND:
        codes = [ErrorCode.ILLEGAL_GENERATION] * len(codes)
    await ensure_offsets_topic(services, codes)
    return _build_response(request, found, dict(zip(known, codes, strict=True)), context.version, unauthorized)


def _find_unauthorized_topics(
    services: Services, request: OffsetCommitRequest, context: RequestContext, found: list[Topic | None]
) -> set[int]:
    """Return the positions of topics in an OffsetCommit request that the client may not read.

    They include topics that do not exist.
    """
    if services.authorizer is None:
        return set()
    may_read = build_authorization_predicate(services, context, AclOperation.READ, AclResourceType.TOPIC)
    by_id = context.version >= FIRST_VERSION_WITH_TOPIC_IDS
    names = [
        topic.name if not by_id else None if known is None else known.name
        for topic, known in zip(request.topics, found, strict=True)
    ]
    return {position for position, name in enumerate(names) if name is not None and not may_read(name)}


def _find_topic(services: Services, topic: OffsetCommitRequestTopic, version: int) -> Topic | None:
    if version < FIRST_VERSION_WITH_TOPIC_IDS:
        return services.image.topics.get(topic.name)
    return services.image.topics_by_id.get(topic.topic_id)


def _build_response(
    request: OffsetCommitRequest,
    found: list[Topic | None],
    errors: dict[tuple[str, int], ErrorCode],
    version: int,
    unauthorized: set[int],
) -> OffsetCommitResponse:
    response = OffsetCommitResponse()
    for position, (topic, existing) in enumerate(zip(request.topics, found, strict=True)):
        missing = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if position in unauthorized:
            missing = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        elif existing is None and version >= FIRST_VERSION_WITH_TOPIC_IDS:
            missing = ErrorCode.UNKNOWN_TOPIC_ID
        response_topic = OffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id)
        name = topic.name if existing is None else existing.name
        for partition in topic.partitions:
            code = errors.get((name, partition.partition_index), missing)
            response_topic.partitions.append(
                OffsetCommitResponsePartition(partition_index=partition.partition_index, error_code=code)
            )
        response.topics.append(response_topic)
    return response
