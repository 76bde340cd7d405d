"""OffsetCommit: a group's positions, kept in the metadata log. Version 10 names topics by id.

Version 0 spoke of offsets in ZooKeeper; here it commits like the others, without a generation.
"""

from __future__ import annotations

import logging
from collections.abc import Collection

from chronik.api.shared.context import Context, Services
from chronik.metadata.commands.base import NO_EPOCH
from chronik.metadata.commands.groups import OffsetToCommit
from chronik.metadata.names import OFFSETS_TOPIC
from chronik.metadata.records import Topic
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
    found = [_find(services, topic, context.version) for topic in request.topics]
    known: dict[tuple[str, int], OffsetToCommit] = {}  # of several of one partition the last counts, as in Kafka
    pace = Pace()
    for topic, existing in zip(request.topics, found, strict=True):
        if existing is None:
            continue
        for some in in_pieces(topic.partitions):
            for partition in some:
                if existing.has_partition(partition.partition_index):
                    known[existing.name, partition.partition_index] = OffsetToCommit(
                        topic=existing.name,
                        partition=partition.partition_index,
                        offset=partition.committed_offset,
                        leader_epoch=max(partition.committed_leader_epoch, NO_EPOCH),  # any negative one means none
                        metadata=partition.committed_metadata,
                    )
            await pace.breathe()
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
    if services.coordinators.stands_alone and OFFSETS_TOPIC not in services.image.topics:
        await _list_offsets_topic(services, codes)
    return _response(request, found, dict(zip(known, codes, strict=True)), context.version)


async def _list_offsets_topic(services: Services, codes: Collection[ErrorCode]) -> None:
    """Tools look for it where groups have committed. The commits are stored, whatever becomes of it."""
    if ErrorCode.NONE in codes:
        for error in (await services.topics.create_missing([OFFSETS_TOPIC])).values():
            logger.warning("%s cannot be made: %s", OFFSETS_TOPIC, error)


def _find(services: Services, topic: OffsetCommitRequestTopic, version: int) -> Topic | None:
    if version < FIRST_VERSION_WITH_TOPIC_IDS:
        return services.image.topics.get(topic.name)
    return services.image.topics_by_id.get(topic.topic_id)


def _response(
    request: OffsetCommitRequest, found: list[Topic | None], errors: dict[tuple[str, int], ErrorCode], version: int
) -> OffsetCommitResponse:
    response = OffsetCommitResponse()
    for topic, existing in zip(request.topics, found, strict=True):
        missing = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if existing is None and version >= FIRST_VERSION_WITH_TOPIC_IDS:
            missing = ErrorCode.UNKNOWN_TOPIC_ID
        answer = OffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id)
        name = topic.name if existing is None else existing.name
        for partition in topic.partitions:
            code = errors.get((name, partition.partition_index), missing)
            answer.partitions.append(
                OffsetCommitResponsePartition(partition_index=partition.partition_index, error_code=code)
            )
        response.topics.append(answer)
    return response
