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

from collections.abc import Sequence
from typing import Final

from chronik.api.shared.authorization import build_authorization_predicate
from chronik.api.shared.context import RequestContext, Services
from chronik.api.shared.long_responses import ResponseElements
from chronik.groups.offsets import UNSTABLE_OFFSET, read_committed_offsets
from chronik.groups.requests import TopicPartition
from chronik.metadata.commands.base import NO_EPOCH
from chronik.metadata.records import CommittedOffset
from chronik.protocol.error_responses import build_error_response
from chronik.protocol.errors import ErrorCode, KafkaError
from chronik.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)
from chronik.protocol.permissions import AclOperation, AclResourceType
from chronik.request_reply import Reply
from chronik.scheduler import Steps

FIRST_VERSION_WITH_MANY_GROUPS = 8
FIRST_VERSION_WITH_TOPIC_IDS = 10
LOOP_ENCODED_PARTITIONS_MAX: Final = 1_000
"""Maximum number of a group's partitions whose offsets are encoded on the event loop.

Larger groups use a thread.
"""

NO_OFFSET = -1
NO_COMMITTED_OFFSET: Final = CommittedOffset(NO_OFFSET, NO_EPOCH, None, commit_time_ms=-1)
"""The value returned for a partition that has no committed offset."""

CommittedOffsets = dict[TopicPartition, CommittedOffset | None]


def handle(services: Services, request: OffsetFetchRequest, context: RequestContext) -> Reply[OffsetFetchResponse]:
    has_many_groups = context.version >= FIRST_VERSION_WITH_MANY_GROUPS
    build = _build_groups_response if has_many_groups else _build_single_group_response
    return Reply.from_steps(build(services, request, context))


def _merge_duplicate_groups(groups: Sequence[OffsetFetchRequestGroup], version: int) -> list[OffsetFetchRequestGroup]:
    """Merge duplicate groups, topics and partitions of an OffsetFetch request.

    A group without topics requests all of its offsets.
    """
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
            group.topics = _merge_duplicate_topics(group.topics, by_id)
    return list(merged.values())


def _merge_duplicate_topics(topics: list[OffsetFetchRequestTopic], by_id: bool) -> list[OffsetFetchRequestTopic]:
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


def _build_single_group_response(
    services: Services, request: OffsetFetchRequest, context: RequestContext
) -> Steps[OffsetFetchResponse]:
    requested = [OffsetFetchRequestGroup(group_id=request.group_id, topics=request.topics)]
    (wanted,) = _merge_duplicate_groups(requested, context.version)
    if not build_authorization_predicate(services, context, AclOperation.DESCRIBE, AclResourceType.GROUP)(
        wanted.group_id
    ):
        return build_error_response(OffsetFetchResponse, request, ErrorCode.GROUP_AUTHORIZATION_FAILED)
    response_group = yield from _fetch_group_offsets(services, wanted, request, context)
    return OffsetFetchResponse(topics=response_group.topics)


def _build_groups_response(
    services: Services, request: OffsetFetchRequest, context: RequestContext
) -> Steps[OffsetFetchResponse]:
    groups = ResponseElements(OffsetFetchResponse, context.version)
    may_describe = build_authorization_predicate(services, context, AclOperation.DESCRIBE, AclResourceType.GROUP)
    for wanted in _merge_duplicate_groups(request.groups, context.version):
        try:
            if not may_describe(wanted.group_id):
                raise KafkaError(ErrorCode.GROUP_AUTHORIZATION_FAILED)
            response_group = yield from _fetch_group_offsets(services, wanted, request, context)
            groups.add(
                (yield groups.create_encoder(response_group)) if _is_large_group(response_group) else response_group
            )
        except KafkaError as error:
            groups.add_error(OffsetFetchResponseGroup(group_id=wanted.group_id, error_code=error.code))
        yield None
    return OffsetFetchResponse(groups=groups.to_list(OffsetFetchResponseGroup))


def _fetch_group_offsets(
    services: Services, wanted: OffsetFetchRequestGroup, request: OffsetFetchRequest, context: RequestContext
) -> Steps[OffsetFetchResponseGroup]:
    """Return the committed offsets of a consumer group from the metadata image.

    A majority has confirmed that the image is current, so this node need not coordinate the group.
    """
    by_id = context.version >= FIRST_VERSION_WITH_TOPIC_IDS
    keys = _list_requested_partitions(services, wanted, by_id)
    committed = yield from read_committed_offsets(
        services.image, wanted.group_id, keys, require_stable=request.require_stable
    )
    return (yield from _build_group_offsets_response(services, wanted, committed, context, by_id=by_id))


def _is_large_group(group: OffsetFetchResponseGroup) -> bool:
    return sum(len(topic.partitions) for topic in group.topics) > LOOP_ENCODED_PARTITIONS_MAX


def _list_requested_partitions(
    services: Services, wanted: OffsetFetchRequestGroup, by_id: bool
) -> list[TopicPartition] | None:
    if wanted.topics is None:
        return None
    return [
        (name, index)
        for topic in wanted.topics
        if (name := _find_topic_name(services, topic, by_id)) is not None
        for index in topic.partition_indexes
    ]


def _build_group_offsets_response(
    services: Services,
    wanted: OffsetFetchRequestGroup,
    committed: CommittedOffsets,
    context: RequestContext,
    *,
    by_id: bool,
) -> Steps[OffsetFetchResponseGroup]:
    response_group = OffsetFetchResponseGroup(group_id=wanted.group_id)
    is_all_topics = wanted.topics is None
    may_see = build_authorization_predicate(
        services, context, AclOperation.DESCRIBE, AclResourceType.TOPIC, audited=not is_all_topics
    )
    if wanted.topics is None:
        topics = yield from _list_committed_topics(services, committed, by_id)
        response_group.topics = [topic for topic in topics if may_see(topic.name)]
    else:
        for topic in wanted.topics:
            known = _find_topic_name(services, topic, by_id)
            name, is_visible = known or "", known is None or may_see(known)
            response_group.topics.append(
                OffsetFetchResponseTopic(
                    name=topic.name,
                    topic_id=topic.topic_id,
                    partitions=[
                        _build_committed_partition(index, (name, index), committed)
                        if is_visible
                        else _build_unauthorized_partition(index)
                        for index in topic.partition_indexes
                    ],
                )
            )
            yield None
    return response_group


def _list_committed_topics(
    services: Services, committed: CommittedOffsets, by_id: bool
) -> Steps[list[OffsetFetchResponseTopic]]:
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
        topics[name].partitions.append(_encode_partition(index, offset))
    return list(topics.values())


def _find_topic_name(services: Services, topic: OffsetFetchRequestTopic, by_id: bool) -> str | None:
    if not by_id:
        return topic.name
    found = services.image.topics_by_id.get(topic.topic_id)
    return None if found is None else found.name


def _build_unauthorized_partition(index: int) -> OffsetFetchResponsePartition:
    return _encode_partition(index, None, ErrorCode.TOPIC_AUTHORIZATION_FAILED)


def _build_committed_partition(
    index: int, key: TopicPartition, committed: CommittedOffsets
) -> OffsetFetchResponsePartition:
    """Build a partition's OffsetFetch response with its committed offset.

    The error code is UNKNOWN_TOPIC_ID if the topic id was unknown during the lookup.
    """
    return _encode_partition(
        index, committed.get(key), ErrorCode.NONE if key in committed else ErrorCode.UNKNOWN_TOPIC_ID
    )


def _encode_partition(
    index: int, committed: CommittedOffset | None, code: ErrorCode = ErrorCode.NONE
) -> OffsetFetchResponsePartition:
    if committed is UNSTABLE_OFFSET:
        code = ErrorCode.UNSTABLE_OFFSET_COMMIT
    offset = NO_COMMITTED_OFFSET if committed is None else committed
    return OffsetFetchResponsePartition(
        partition_index=index,
        committed_offset=offset.offset,
        committed_leader_epoch=offset.leader_epoch,
        metadata=offset.metadata or "",
        error_code=code,
    )
