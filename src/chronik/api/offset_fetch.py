"""OffsetFetch (API key 9): returns a group's committed offsets with their metadata.

Versions up to 7 have one group, later ones several; null topics request all offsets. Version 10 names topics by id.

Every node has all offsets, and answers after a majority has confirmed that its image is current (see
`chronik.api.shared.read_consistency`), so a node that does not coordinate the group answers as well. Kafka's brokers
return NOT_COORDINATOR instead, which some clients handle badly: they stop reading, or behave as if nothing were
committed.

From version 7 on, a client may request stable offsets only. Offsets that an open transaction may replace then have the
error UNSTABLE_OFFSET_COMMIT, and the client retries.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Final

from chronik.api.shared.context import Context, Services
from chronik.api.shared.long_answers import Elements
from chronik.api.shared.rights import may_do
from chronik.groups.offsets import UNSTABLE, all_committed
from chronik.groups.requests import TopicPartition
from chronik.metadata.commands.base import NO_EPOCH
from chronik.metadata.records import CommittedOffset
from chronik.metadata.slices import Pace
from chronik.protocol.errors import ErrorCode, KafkaError
from chronik.protocol.failures import failed
from chronik.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)
from chronik.protocol.permissions import Operation, ResourceType
from chronik.scheduler import run_in_slices

FIRST_VERSION_WITH_MANY_GROUPS = 8
FIRST_VERSION_WITH_TOPIC_IDS = 10
NO_OFFSET = -1
NO_COMMITTED_OFFSET: Final = CommittedOffset(NO_OFFSET, NO_EPOCH, None, commit_time_ms=-1)
"""The response for a partition without a committed offset."""

CommittedOffsets = dict[TopicPartition, CommittedOffset | None]


async def handle(services: Services, request: OffsetFetchRequest, context: Context) -> OffsetFetchResponse:
    version = context.version
    if version >= FIRST_VERSION_WITH_MANY_GROUPS:
        wanted = _merge_groups(request.groups, version)
        results = await _fetch_committed(services, wanted, request, context)
        return await run_in_slices(_build_groups_response(services, wanted, results, context))
    wanted = _merge_groups([OffsetFetchRequestGroup(group_id=request.group_id, topics=request.topics)], version)
    (result,) = await _fetch_committed(services, wanted, request, context)
    if result is None:
        return failed(OffsetFetchResponse, request, ErrorCode.GROUP_AUTHORIZATION_FAILED)
    return OffsetFetchResponse(topics=_build_group(services, wanted[0], result, context, by_id=False).topics)


def _merge_groups(groups: Sequence[OffsetFetchRequestGroup], version: int) -> list[OffsetFetchRequestGroup]:
    """Merge duplicate groups, topics and partitions; a group that is named without topics requests all its offsets."""
    merged: dict[str, OffsetFetchRequestGroup] = {}
    for group in groups:
        known = merged.setdefault(group.group_id, OffsetFetchRequestGroup(group_id=group.group_id, topics=[]))
        if group.topics is None:
            known.topics = None
        elif known.topics is not None:
            known.topics.extend(group.topics)
    by_id = version >= FIRST_VERSION_WITH_TOPIC_IDS
    for group in merged.values():
        if group.topics is not None:
            group.topics = _merge_topics(group.topics, by_id)
    return list(merged.values())


def _merge_topics(topics: list[OffsetFetchRequestTopic], by_id: bool) -> list[OffsetFetchRequestTopic]:
    merged: dict[str | bytes, dict[int, None]] = {}
    for topic in topics:
        indexes = merged.setdefault(topic.topic_id if by_id else topic.name, {})
        indexes.update(dict.fromkeys(topic.partition_indexes))
    return [
        OffsetFetchRequestTopic(topic_id=key, partition_indexes=list(indexes))
        if isinstance(key, bytes)
        else OffsetFetchRequestTopic(name=key, partition_indexes=list(indexes))
        for key, indexes in merged.items()
    ]


async def _fetch_committed(
    services: Services, wanted: Sequence[OffsetFetchRequestGroup], request: OffsetFetchRequest, context: Context
) -> list[CommittedOffsets | None]:
    """Return each group's committed offsets from the image, or None for a group that the client may not describe.

    A majority has confirmed that the image is current, so this node need not coordinate the group.
    """
    by_id = context.version >= FIRST_VERSION_WITH_TOPIC_IDS
    may_describe = may_do(services, context, Operation.DESCRIBE, ResourceType.GROUP)
    pace = Pace()
    results: list[CommittedOffsets | None] = []
    for group in wanted:
        if not may_describe(group.group_id):
            results.append(None)
            continue
        keys = _requested_partitions(services, group, by_id)
        found = all_committed(services.image, group.group_id, keys, stable=request.require_stable)
        results.append(await run_in_slices(found))
        await pace.yield_if_due()
    return results


def _build_groups_response(
    services: Services, wanted: list[OffsetFetchRequestGroup], results: list[CommittedOffsets | None], context: Context
) -> Generator[None, None, OffsetFetchResponse]:
    groups = Elements(OffsetFetchResponse, context.version)
    by_id = context.version >= FIRST_VERSION_WITH_TOPIC_IDS
    for group, result in zip(wanted, results, strict=True):
        try:
            if result is None:
                raise KafkaError(ErrorCode.GROUP_AUTHORIZATION_FAILED)
            groups.add(_build_group(services, group, result, context, by_id=by_id))
        except KafkaError as error:
            groups.refuse(OffsetFetchResponseGroup(group_id=group.group_id, error_code=error.code))
        yield
    return OffsetFetchResponse(groups=groups.as_array_of(OffsetFetchResponseGroup))


def _requested_partitions(
    services: Services, wanted: OffsetFetchRequestGroup, by_id: bool
) -> list[TopicPartition] | None:
    if wanted.topics is None:
        return None
    return [
        (name, index)
        for topic in wanted.topics
        if (name := _topic_name(services, topic, by_id)) is not None
        for index in topic.partition_indexes
    ]


def _build_group(
    services: Services, wanted: OffsetFetchRequestGroup, committed: CommittedOffsets, context: Context, *, by_id: bool
) -> OffsetFetchResponseGroup:
    response_group = OffsetFetchResponseGroup(group_id=wanted.group_id)
    is_all_topics = wanted.topics is None
    may_see = may_do(services, context, Operation.DESCRIBE, ResourceType.TOPIC, audited=not is_all_topics)
    if wanted.topics is None:
        response_group.topics = [
            topic for topic in _all_committed_topics(services, committed, by_id) if may_see(topic.name)
        ]
    else:
        for topic in wanted.topics:
            known = _topic_name(services, topic, by_id)
            name, is_visible = known or "", known is None or may_see(known)
            response_group.topics.append(
                OffsetFetchResponseTopic(
                    name=topic.name,
                    topic_id=topic.topic_id,
                    partitions=[
                        _committed_partition(index, (name, index), committed)
                        if is_visible
                        else _unauthorized_partition(index)
                        for index in topic.partition_indexes
                    ],
                )
            )
    return response_group


def _all_committed_topics(
    services: Services, committed: CommittedOffsets, by_id: bool
) -> list[OffsetFetchResponseTopic]:
    topics: dict[str, OffsetFetchResponseTopic] = {}
    for (name, index), offset in sorted(committed.items()):
        existing = services.image.topics.get(name)
        if by_id and existing is None:
            continue
        if name not in topics:
            topics[name] = OffsetFetchResponseTopic(name=name)
            if existing is not None:
                topics[name].topic_id = existing.id
        topics[name].partitions.append(_encode_partition(index, offset))
    return list(topics.values())


def _topic_name(services: Services, topic: OffsetFetchRequestTopic, by_id: bool) -> str | None:
    if not by_id:
        return topic.name
    found = services.image.topics_by_id.get(topic.topic_id)
    return None if found is None else found.name


def _unauthorized_partition(index: int) -> OffsetFetchResponsePartition:
    return _encode_partition(index, None, ErrorCode.TOPIC_AUTHORIZATION_FAILED)


def _committed_partition(index: int, key: TopicPartition, committed: CommittedOffsets) -> OffsetFetchResponsePartition:
    """Return the partition's offset; UNKNOWN_TOPIC_ID if its topic id was unknown at the time of the lookup."""
    return _encode_partition(
        index, committed.get(key), ErrorCode.NONE if key in committed else ErrorCode.UNKNOWN_TOPIC_ID
    )


def _encode_partition(
    index: int, committed: CommittedOffset | None, code: ErrorCode = ErrorCode.NONE
) -> OffsetFetchResponsePartition:
    if committed is UNSTABLE:
        code = ErrorCode.UNSTABLE_OFFSET_COMMIT
    offset = NO_COMMITTED_OFFSET if committed is None else committed
    return OffsetFetchResponsePartition(
        partition_index=index,
        committed_offset=offset.offset,
        committed_leader_epoch=offset.leader_epoch,
        metadata=offset.metadata or "",
        error_code=code,
    )
