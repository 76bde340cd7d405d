"""OffsetFetch: a group's committed positions with their metadata.

Up to version 7 for one group, from 8 on for many; null topics ask for all. Version 10 names topics by id.

Every node holds all offsets, and none answers before a majority has confirmed that it knows of every commit (see
`admission`), so a node that does not coordinate the group answers too. Kafka's brokers send such a client away, and
some take that badly: they never read on, or go on as if nothing were committed.

From version 7 on a client may want stable offsets only. Those that an open transaction may replace are then
UNSTABLE_OFFSET_COMMIT, and the client asks again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from chronik.api.shared.context import Context, Services
from chronik.api.shared.long_answers import Elements
from chronik.api.shared.rights import may_do
from chronik.exchange import Reply
from chronik.groups.offsets import UNSTABLE, all_committed
from chronik.groups.requests import TopicPartition
from chronik.metadata.commands.base import NO_EPOCH
from chronik.metadata.records import CommittedOffset
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
from chronik.scheduler import Steps

FIRST_VERSION_WITH_MANY_GROUPS = 8
FIRST_VERSION_WITH_TOPIC_IDS = 10
ENCODED_AT_ONCE_MAX: Final = 1_000
"""Partitions of a group that is encoded on the event loop. A larger one is encoded in a thread."""

NO_OFFSET = -1
NOTHING: Final = CommittedOffset(NO_OFFSET, NO_EPOCH, None, commit_time_ms=-1)
"""What is told of a partition of which nothing is committed."""

Committed = dict[TopicPartition, CommittedOffset | None]


def handle(services: Services, request: OffsetFetchRequest, context: Context) -> Reply[OffsetFetchResponse]:
    steps = _for_many_groups if context.version >= FIRST_VERSION_WITH_MANY_GROUPS else _for_one_group
    return Reply.of_steps(steps(services, request, context))


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


def _for_one_group(services: Services, request: OffsetFetchRequest, context: Context) -> Steps[OffsetFetchResponse]:
    named = [OffsetFetchRequestGroup(group_id=request.group_id, topics=request.topics)]
    (wanted,) = _each_once(named, context.version)
    if not may_do(services, context, Operation.DESCRIBE, ResourceType.GROUP)(wanted.group_id):
        return failed(OffsetFetchResponse, request, ErrorCode.GROUP_AUTHORIZATION_FAILED)
    found = yield from _fetched(services, wanted, request, context)
    return OffsetFetchResponse(topics=found.topics)


def _for_many_groups(services: Services, request: OffsetFetchRequest, context: Context) -> Steps[OffsetFetchResponse]:
    groups = Elements(OffsetFetchResponse, context.version)
    may_describe = may_do(services, context, Operation.DESCRIBE, ResourceType.GROUP)
    for wanted in _each_once(request.groups, context.version):
        try:
            if not may_describe(wanted.group_id):
                raise KafkaError(ErrorCode.GROUP_AUTHORIZATION_FAILED)
            found = yield from _fetched(services, wanted, request, context)
            groups.add((yield groups.encoder(found)) if _is_large(found) else found)
        except KafkaError as error:
            groups.refuse(OffsetFetchResponseGroup(group_id=wanted.group_id, error_code=error.code))
        yield None
    return OffsetFetchResponse(groups=groups.as_array_of(OffsetFetchResponseGroup))


def _fetched(
    services: Services, wanted: OffsetFetchRequestGroup, request: OffsetFetchRequest, context: Context
) -> Steps[OffsetFetchResponseGroup]:
    """Read the image, whoever coordinates the group: a majority has confirmed that it is fresh."""
    by_id = context.version >= FIRST_VERSION_WITH_TOPIC_IDS
    keys = _keys(services, wanted, by_id)
    committed = yield from all_committed(services.image, wanted.group_id, keys, stable=request.require_stable)
    return (yield from _answer(services, wanted, committed, context, by_id=by_id))


def _is_large(group: OffsetFetchResponseGroup) -> bool:
    return sum(len(topic.partitions) for topic in group.topics) > ENCODED_AT_ONCE_MAX


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
) -> Steps[OffsetFetchResponseGroup]:
    answer = OffsetFetchResponseGroup(group_id=wanted.group_id)
    are_all_wanted = wanted.topics is None
    may_see = may_do(services, context, Operation.DESCRIBE, ResourceType.TOPIC, audited=not are_all_wanted)
    if wanted.topics is None:
        answer.topics = [topic for topic in (yield from _all(services, committed, by_id)) if may_see(topic.name)]
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
            yield None
    return answer


def _all(services: Services, committed: Committed, by_id: bool) -> Steps[list[OffsetFetchResponseTopic]]:
    topics: dict[str, OffsetFetchResponseTopic] = {}
    for (name, index), offset in sorted(committed.items()):
        yield None
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
