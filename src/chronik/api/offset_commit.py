"""OffsetCommit: a group's positions, kept in the metadata log. Version 10 names topics by id.

Version 0 spoke of offsets in ZooKeeper; here it commits like the others, without a generation.
"""

from __future__ import annotations

import logging
from collections.abc import Collection

from chronik.api.shared.context import Context, Services
from chronik.groups import requests
from chronik.metadata.commands import OffsetToCommit
from chronik.metadata.names import OFFSETS_TOPIC
from chronik.metadata.slices import Pace, in_pieces
from chronik.protocol.errors import ErrorCode
from chronik.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

logger = logging.getLogger("chronik.api")

FIRST_VERSION_WITH_GROUP_ID_NOT_FOUND = 9
FIRST_VERSION_WITH_TOPIC_IDS = 10


async def handle(services: Services, request: OffsetCommitRequest, context: Context) -> OffsetCommitResponse:
    names = [_name(services, topic, context.version) for topic in request.topics]
    known: dict[tuple[str, int], OffsetToCommit] = {}  # of several of one partition the last counts, as in Kafka
    errors: dict[tuple[str | bytes, int], ErrorCode] = {}
    pace = Pace()
    for topic, name in zip(request.topics, names, strict=True):
        existing = services.image.topics.get(name) if name is not None else None
        for some in in_pieces(topic.partitions):
            for partition in some:
                index = partition.partition_index
                if name is None or existing is None or not 0 <= index < len(existing.partitions):
                    missing = ErrorCode.UNKNOWN_TOPIC_ID if name is None else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                    errors[name or topic.topic_id, index] = missing
                    continue
                known[name, index] = OffsetToCommit(
                    topic=name,
                    partition=index,
                    offset=partition.committed_offset,
                    leader_epoch=partition.committed_leader_epoch,
                    metadata=partition.committed_metadata,
                )
            await pace.breathe()
    result = await services.groups.commit_offsets(
        requests.OffsetCommitRequest(
            group_id=request.group_id,
            offsets=tuple(known.values()),
            generation=request.generation_id_or_member_epoch,
            member_id=request.member_id,
            group_instance_id=request.group_instance_id,
            retention_time_ms=request.retention_time_ms,
            knows_group_id_not_found=context.version >= FIRST_VERSION_WITH_GROUP_ID_NOT_FOUND,
        )
    )
    errors.update(result.errors)
    if services.coordinators.stands_alone and OFFSETS_TOPIC not in services.image.topics:
        await _list_offsets_topic(services, [code for _, code in result.errors])
    return _response(request, names, errors)


async def _list_offsets_topic(services: Services, codes: Collection[ErrorCode]) -> None:
    """Tools look for it where groups have committed. The commits are stored, whatever becomes of it."""
    if ErrorCode.NONE in codes:
        for error in (await services.topics.create_missing([OFFSETS_TOPIC])).values():
            logger.warning("%s cannot be made: %s", OFFSETS_TOPIC, error)


def _name(services: Services, topic: OffsetCommitRequestTopic, version: int) -> str | None:
    if version < FIRST_VERSION_WITH_TOPIC_IDS:
        return topic.name
    found = services.image.topics_by_id.get(topic.topic_id)
    return None if found is None else found.name


def _response(
    request: OffsetCommitRequest, names: list[str | None], errors: dict[tuple[str | bytes, int], ErrorCode]
) -> OffsetCommitResponse:
    response = OffsetCommitResponse()
    for topic, name in zip(request.topics, names, strict=True):
        answer = OffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id)
        for partition in topic.partitions:
            code = errors[name or topic.topic_id, partition.partition_index]
            answer.partitions.append(
                OffsetCommitResponsePartition(partition_index=partition.partition_index, error_code=code)
            )
        response.topics.append(answer)
    return response
