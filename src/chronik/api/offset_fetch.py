"""OffsetFetch: a group's committed positions with their metadata.

Up to version 7 for one group, from 8 on for many; null topics ask for all. Version 10 names topics by id.

Every node holds all offsets, and none answers before a majority has confirmed that it knows of every commit (see
`admission`), so a node that does not coordinate the group answers too. Kafka's brokers send such a client away, and
some take that badly: they never read on, or go on as if nothing were committed.

From version 7 on a client may want stable offsets only. Those that an open transaction may replace are then
UNSTABLE_OFFSET_COMMIT, and the client asks again.
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
NOTHING: Final = CommittedOffset(NO_OFFSET, NO_EPOCH, None, commit_time_ms=-1)
"""What is told of a partition of which nothing is committed."""

Committed = dict[TopicPartition, CommittedOffset | None]


async def handle(services: Services, request: OffsetFetchRequest, context: Context) -> OffsetFetchResponse:
    version = context.version
    if version >= FIRST_VERSION_WITH_MANY_GROUPS:
        wanted = _each_once(request.groups, version)
        results = await _fetch(services, wanted, request, context)
        return await run_in_slices(_for_many_groups(services, wanted, results, context))
    wanted = _each_once([OffsetFetchRequestGroup(group_id=request.group_id, topics=request.topics)], version)
    (result,) = await _fetch(services, wanted, request, context)
    if result is None:
        return failed(OffsetFetchResponse, request, ErrorCode.GROUP_AUTHORIZATION_FAILED)
    return OffsetFetchResponse(topics=_answer(services, wanted[0], result, context, by_id=False).topics)


def _each_once(groups: Sequence[OffsetFetchRequestGroup], version: int) -> list[OffsetFetchRequestGroup]:
    """Names each group, topic and partition once; a group that is named without topics is asked for all that it has."""
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
            group.topics = _topics_once(group.topics, by_id)
    return list(merged.values())


def _topics_once(topics: list[OffsetFetchRequestTopic], by_id: bool) -> list[OffsetFetchRequestTopic]:
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


async def _fetch(
    services: Services, wanted: Sequence[OffsetFetchRequestGroup], request: OffsetFetchRequest, context: Context
) -> list[Committed | None]:
    """Reads the image, whoever coordinates the groups: a majority has confirmed that it is fresh. Returns None for
    those that whoever asks may not describe."""
    by_id = context.version >= FIRST_VERSION_WITH_TOPIC_IDS
    may_describe = may_do(services, context, Operation.DESCRIBE, ResourceType.GROUP)
    pace = Pace()
    results: list[Committed | None] = []
    for group in wanted:
        if not may_describe(group.group_id):
            results.append(None)
            continue
        keys = _keys(services, group, by_id)
        found = all_committed(services.image, group.group_id, keys, stable=request.require_stable)
        results.append(await run_in_slices(found))
        await pace.yield_if_due()
    return results


def _for_many_groups(
    services: Services, wanted: list[OffsetFetchRequestGroup], results: list[Committed | None], context: Context
) -> Generator[None, None, OffsetFetchResponse]:
    groups = Elements(OffsetFetchResponse, context.version)
    by_id = context.version >= FIRST_VERSION_WITH_TOPIC_IDS
    for group, result in zip(wanted, results, strict=True):
        try:
            if result is None:
                raise KafkaError(ErrorCode.GROUP_AUTHORIZATION_FAILED)
            groups.add(_answer(services, group, result, context, by_id=by_id))
        except KafkaError as error:
            groups.refuse(OffsetFetchResponseGroup(group_id=group.group_id, error_code=error.code))
        yield
    return OffsetFetchResponse(groups=groups.as_array_of(OffsetFetchResponseGroup))


def _keys(services: Services, wanted: OffsetFetchRequestGroup, by_id: bool) -> list[TopicPartition] | None:
    if wanted.topics is None:
        return None
    return [
        (name, index)
        for topic in wanted.topics
        if (name := _name(services, topic, by_id)) is not None
        for index in topic.partition_indexes
    ]


def _answer(
    services: Services, wanted: OffsetFetchRequestGroup, committed: Committed, context: Context, *, by_id: bool
) -> OffsetFetchResponseGroup:
    answer = OffsetFetchResponseGroup(group_id=wanted.group_id)
    are_all_wanted = wanted.topics is None
    may_see = may_do(services, context, Operation.DESCRIBE, ResourceType.TOPIC, audited=not are_all_wanted)
    if wanted.topics is None:
        answer.topics = [topic for topic in _all(services, committed, by_id) if may_see(topic.name)]
    else:
        for topic in wanted.topics:
            known = _name(services, topic, by_id)
            name, is_seen = known or "", known is None or may_see(known)
            answer.topics.append(
                OffsetFetchResponseTopic(
                    name=topic.name,
                    topic_id=topic.topic_id,
                    partitions=[
                        _asked_for(index, (name, index), committed) if is_seen else _refused(index)
                        for index in topic.partition_indexes
                    ],
                )
            )
    return answer


def _all(services: Services, committed: Committed, by_id: bool) -> list[OffsetFetchResponseTopic]:
    topics: dict[str, OffsetFetchResponseTopic] = {}
    for (name, index), offset in sorted(committed.items()):
        existing = services.image.topics.get(name)
        if by_id and existing is None:
            continue
        if name not in topics:
            topics[name] = OffsetFetchResponseTopic(name=name)
            if existing is not None:
                topics[name].topic_id = existing.id
        topics[name].partitions.append(_partition(index, offset))
    return list(topics.values())


def _name(services: Services, topic: OffsetFetchRequestTopic, by_id: bool) -> str | None:
    if not by_id:
        return topic.name
    found = services.image.topics_by_id.get(topic.topic_id)
    return None if found is None else found.name


def _refused(index: int) -> OffsetFetchResponsePartition:
    return _partition(index, None, ErrorCode.TOPIC_AUTHORIZATION_FAILED)


def _asked_for(index: int, key: TopicPartition, committed: Committed) -> OffsetFetchResponsePartition:
    """What was not looked up had no name then, even if it has one now."""
    return _partition(index, committed.get(key), ErrorCode.NONE if key in committed else ErrorCode.UNKNOWN_TOPIC_ID)


def _partition(
    index: int, committed: CommittedOffset | None, code: ErrorCode = ErrorCode.NONE
) -> OffsetFetchResponsePartition:
    if committed is UNSTABLE:
        code = ErrorCode.UNSTABLE_OFFSET_COMMIT
    offset = NOTHING if committed is None else committed
    return OffsetFetchResponsePartition(
        partition_index=index,
        committed_offset=offset.offset,
        committed_leader_epoch=offset.leader_epoch,
        metadata=offset.metadata or "",
        error_code=code,
    )
