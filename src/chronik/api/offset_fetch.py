"""OffsetFetch, versions 0 to 10: a group's committed positions with their metadata.

Up to version 7 for one group, from 8 on for many; null topics ask for all. Version 10 names topics by id.
"""

from __future__ import annotations

from collections.abc import Mapping

from chronik.api.context import Context, Services
from chronik.groups.requests import FetchedOffset, TopicPartition
from chronik.protocol.errors import ErrorCode
from chronik.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)

FIRST_VERSION_WITH_GROUP_ERRORS = 2
FIRST_VERSION_WITH_MANY_GROUPS = 8
FIRST_VERSION_WITH_TOPIC_IDS = 10
NO_OFFSET = -1


async def handle(services: Services, request: OffsetFetchRequest, context: Context) -> OffsetFetchResponse:
    version = context.version
    if version >= FIRST_VERSION_WITH_MANY_GROUPS:
        return OffsetFetchResponse(groups=[await _fetch(services, group, version) for group in request.groups])
    topics = None
    if request.topics is not None:
        topics = [
            OffsetFetchRequestTopics(name=topic.name, partition_indexes=topic.partition_indexes)
            for topic in request.topics
        ]
    group = await _fetch(services, OffsetFetchRequestGroup(group_id=request.group_id, topics=topics), version)
    return _for_one_group(group, request, version)


def failure(request: OffsetFetchRequest, code: ErrorCode) -> OffsetFetchResponse:
    old_style = OffsetFetchResponseGroup(error_code=code)
    response = _for_one_group(old_style, request, version=0)
    response.error_code = code
    response.groups = [
        OffsetFetchResponseGroup(group_id=group.group_id, error_code=code) for group in request.groups
    ]
    return response


async def _fetch(services: Services, wanted: OffsetFetchRequestGroup, version: int) -> OffsetFetchResponseGroup:
    by_id = version >= FIRST_VERSION_WITH_TOPIC_IDS
    answer = OffsetFetchResponseGroup(group_id=wanted.group_id)
    names: list[str | None] = []
    keys: list[TopicPartition] | None = None
    if wanted.topics is not None:
        names = [_name(services, topic, by_id) for topic in wanted.topics]
        keys = [
            (name, index)
            for topic, name in zip(wanted.topics, names, strict=True)
            if name is not None
            for index in topic.partition_indexes
        ]
    result = await services.groups.fetch_offsets(wanted.group_id, keys)
    if result.error:
        answer.error_code = result.error
    elif wanted.topics is None:
        answer.topics = _all(services, result.offsets, by_id)
    else:
        for topic, name in zip(wanted.topics, names, strict=True):
            missing = FetchedOffset(error=ErrorCode.UNKNOWN_TOPIC_ID)
            answer.topics.append(
                OffsetFetchResponseTopics(
                    name=topic.name,
                    topic_id=topic.topic_id,
                    partitions=[
                        _partition(index, missing if name is None else result.offsets[name, index])
                        for index in topic.partition_indexes
                    ],
                )
            )
    return answer


def _all(
    services: Services, offsets: Mapping[TopicPartition, FetchedOffset], by_id: bool
) -> list[OffsetFetchResponseTopics]:
    topics: dict[str, OffsetFetchResponseTopics] = {}
    for (name, index), offset in sorted(offsets.items()):
        existing = services.image.topics.get(name)
        if by_id and existing is None:
            continue
        if name not in topics:
            topics[name] = OffsetFetchResponseTopics(name=name)
            if existing is not None:
                topics[name].topic_id = existing.id
        topics[name].partitions.append(_partition(index, offset))
    return list(topics.values())


def _name(services: Services, topic: OffsetFetchRequestTopics, by_id: bool) -> str | None:
    if not by_id:
        return topic.name
    found = services.image.topics_by_id.get(topic.topic_id)
    return None if found is None else found.name


def _partition(index: int, offset: FetchedOffset) -> OffsetFetchResponsePartitions:
    return OffsetFetchResponsePartitions(
        partition_index=index,
        committed_offset=offset.offset,
        committed_leader_epoch=offset.leader_epoch,
        metadata=offset.metadata,
        error_code=offset.error,
    )


def _for_one_group(
    group: OffsetFetchResponseGroup, request: OffsetFetchRequest, version: int
) -> OffsetFetchResponse:
    """The answer of versions 0 to 7; 0 and 1 have no error for the group, so that each partition must carry it."""
    response = OffsetFetchResponse(error_code=group.error_code)
    for topic in group.topics:
        response.topics.append(
            OffsetFetchResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetFetchResponsePartition(
                        partition_index=partition.partition_index,
                        committed_offset=partition.committed_offset,
                        committed_leader_epoch=partition.committed_leader_epoch,
                        metadata=partition.metadata,
                        error_code=partition.error_code,
                    )
                    for partition in topic.partitions
                ],
            )
        )
    if group.error_code and version < FIRST_VERSION_WITH_GROUP_ERRORS:
        response.topics = [
            OffsetFetchResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetFetchResponsePartition(
                        partition_index=index, committed_offset=NO_OFFSET, metadata="", error_code=group.error_code
                    )
                    for index in topic.partition_indexes
                ],
            )
            for topic in request.topics or ()
        ]
    return response
