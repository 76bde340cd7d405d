"""Operations on consumer groups: list, describe, reset offsets and delete."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from http import HTTPStatus
from typing import Final

from chronik.client.cluster import raise_for_code
from chronik.client.errors import ClientError
from chronik.client.groups import GroupOffset, commit_offsets, decode_assignment, describe_group, list_committed_offsets
from chronik.client.offsets import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, list_offsets
from chronik.client.records import TopicPartition
from chronik.console.rest.context import OperationContext, build_bad_request_error
from chronik.console.rest.errors import RestError
from chronik.console.rest.health_view import find_lag_starts
from chronik.console.rest.models.common import Done, NoQuestion, Page
from chronik.console.rest.models.groups import (
    Group,
    GroupDetails,
    GroupPartition,
    ListGroups,
    Member,
    MemberPartition,
    OffsetMove,
    OffsetMoves,
    OffsetReset,
    OffsetsToDelete,
)
from chronik.console.rest.operations.batch_reader import BatchReader
from chronik.console.rest.operations.positions import parse_timestamp_ms
from chronik.console.rest.operations.shared import (
    fetch_available_offsets,
    fetch_topic_metadata,
    group_partitions_by_leader,
    paginate,
    paginate_names,
)
from chronik.durations import parse_duration_ms
from chronik.metadata.offsets import GroupOffsets
from chronik.protocol.errors import ErrorCode, KafkaError
from chronik.protocol.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from chronik.protocol.messages.describe_groups import DescribeGroupsGroup, DescribeGroupsRequest, DescribeGroupsResponse
from chronik.protocol.messages.list_groups import ListGroupsGroup, ListGroupsRequest, ListGroupsResponse
from chronik.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from chronik.protocol.permissions import AclOperation, AclResourceType
from chronik.wording import pluralize

INACTIVE_STATES: Final = ("Empty", "Dead")
Offsets = Mapping[TopicPartition, GroupOffset]


SORTED_GROUPS_MAX: Final = 1_000
SORTED_OFFSETS_MAX: Final = 50_000
"""Maximum numbers of groups and of their committed offsets that are sorted by lag."""
GROUPS_PER_SLICE: Final = 50
"""Number of groups whose offsets are copied in one event-loop iteration."""


def list_all(context: OperationContext, params: ListGroups) -> Page[Group]:
    """List consumer groups by name, state or lag."""
    known = list_groups(context)
    if params.sort == "group" and not params.descending:
        page = paginate_names(known, params.search, params.after, params.limit)
    else:
        names = paginate_names(known, params.search, None, len(known) or 1).items
        if params.sort == "lag":
            lags = _compute_lags(context, names)
            unknown = -1.0 if params.descending else math.inf
            keys = {name: unknown if lag is None else lag for name, lag in lags.items()}
            names.sort(key=lambda name: keys[name], reverse=params.descending)
        elif params.sort == "state":
            names.sort(key=lambda name: known[name][1].group_state, reverse=params.descending)
        else:
            names.reverse()
        page = paginate(names, params.after, params.limit)
    described = describe_groups(context, {name: known[name][0] for name in page.items})
    offsets = {name: _fetch_committed_offsets_or_empty(context, name) for name in page.items}
    ends = fetch_end_offsets(context, {each for group_offsets in offsets.values() for each in group_offsets})
    operations = context.find_authorized_operations(AclResourceType.GROUP, page.items)
    since = find_lag_starts(context)
    items = []
    for name in page.items:
        lag = compute_total_lag(offsets[name], ends)
        node_id, group = known[name]
        more = described.get(name)
        items.append(
            Group(
                name,
                group.group_state,
                group.protocol_type,
                more.protocol_data or None if more is not None else None,
                node_id,
                len(more.members) if more is not None else 0,
                len({each.topic for each in offsets[name]}),
                lag,
                since.get(name) if lag is not None else None,
                operations[name],
            )
        )
    return Page(items, page.next, page.total)


def _compute_lags(context: OperationContext, groups: Sequence[str]) -> dict[str, int | None]:
    """Return the total lag of each group on the topics that the principal may describe.

    The committed offsets are read from the metadata image, because a request for each group would take seconds.

    Raises:
        RestError: There are too many groups or offsets.
    """
    image = context.node.services.image

    def read(start: int) -> list[GroupOffsets]:
        return [image.frozen_offsets(name) for name in groups[start : start + GROUPS_PER_SLICE]]

    message = f"cannot be sorted by lag, only {SORTED_GROUPS_MAX:,} with {SORTED_OFFSETS_MAX:,} committed offsets"
    if len(groups) > SORTED_GROUPS_MAX:
        raise build_bad_request_error(f"{pluralize(len(groups), 'group')} {message}: search for fewer groups")
    frozen: list[GroupOffsets] = []
    for start in range(0, len(groups), GROUPS_PER_SLICE):
        frozen += context.call_on_loop(partial(read, start))
    if (count := sum(map(len, frozen))) > SORTED_OFFSETS_MAX:
        raise build_bad_request_error(f"groups with {count:,} offsets {message}: search for fewer groups")
    offsets = [{TopicPartition(*key): each.offset for key, each in found.items()} for found in frozen]
    topics = sorted({each.topic for found in offsets for each in found})
    visible = set(context.filter_authorized(AclOperation.DESCRIBE, AclResourceType.TOPIC, topics))
    shown = [{key: offset for key, offset in found.items() if key.topic in visible} for found in offsets]
    ends = fetch_end_offsets(context, {each for found in shown for each in found})
    lags: dict[str, int | None] = {}
    for name, found in zip(groups, shown, strict=True):
        is_known = found and all(each in ends for each in found)
        lags[name] = sum(max(0, ends[each] - offset) for each, offset in found.items()) if is_known else None
    return lags


def list_groups(context: OperationContext) -> dict[str, tuple[int, ListGroupsGroup]]:
    """Return all groups by name, each with its coordinator.

    Raises:
        KafkaError: A broker rejects the request.
        ClientError: A broker cannot be reached.
    """

    def send() -> dict[str, tuple[int, ListGroupsGroup]]:
        found: dict[str, tuple[int, ListGroupsGroup]] = {}
        for node_id, broker in context.cluster.brokers_by_id().items():
            response = broker.request(ListGroupsRequest(), ListGroupsResponse)
            raise_for_code(response.error_code, f"groups of node {node_id}")
            found |= {group.group_id: (node_id, group) for group in response.groups}
        return found

    return context.cluster.retry(send)


def describe_groups(context: OperationContext, coordinators: Mapping[str, int]) -> dict[str, DescribeGroupsGroup]:
    """Return the groups that exist and whose coordinator responds. `coordinators` are node ids by group."""
    found: dict[str, DescribeGroupsGroup] = {}
    for node_id in set(coordinators.values()):
        names = [name for name, each in coordinators.items() if each == node_id]
        try:
            response = context.cluster.node(node_id).request(
                DescribeGroupsRequest(groups=names), DescribeGroupsResponse
            )
        except ClientError:
            continue
        found |= {group.group_id: group for group in response.groups if not group.error_code}
    return found


def _fetch_committed_offsets_or_empty(context: OperationContext, name: str) -> Offsets:
    """Return a group's committed offsets, or nothing if the group was deleted or its coordinator is unavailable."""
    try:
        return list_committed_offsets(context.cluster, name)
    except KafkaError:
        return {}


def fetch_end_offsets(context: OperationContext, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    """Return the end offsets of partitions. Omit those that do not exist or that the principal may not describe."""
    wanted = set(partitions)
    topics = fetch_topic_metadata(context.cluster, sorted({each.topic for each in wanted}))
    found = fetch_available_offsets(context, group_partitions_by_leader(topics.values(), wanted), LATEST_TIMESTAMP)
    return {each: offset for each, (offset, _) in found.items()}


def compute_total_lag(offsets: Offsets, ends: Mapping[TopicPartition, int]) -> int | None:
    """Return the total lag of a group, or None if an end offset is unknown or no offsets are committed."""
    if not offsets or any(each not in ends for each in offsets):
        return None
    return sum(max(0, ends[each] - committed.offset) for each, committed in offsets.items())


def show(context: OperationContext, params: NoQuestion) -> GroupDetails:
    """Describe a group, its members and its offsets."""
    name, cluster = context.path_parameters["group"], context.cluster
    group = describe_group(cluster, name)
    offsets = list_committed_offsets(cluster, name)
    assigned = {
        each: member.member_id
        for member in group.members
        for each in decode_assignment(bytes(member.member_assignment))
    }
    partitions = sorted({*offsets, *assigned})
    ends = fetch_end_offsets(context, partitions)
    seconds = _fetch_lag_seconds(context, offsets, ends)
    rows = [
        _build_group_row(each, assigned, offsets.get(each), ends.get(each), seconds.get(each)) for each in partitions
    ]
    members = [
        Member(
            member.member_id,
            member.group_instance_id,
            member.client_id,
            member.client_host,
            [MemberPartition(*each) for each in decode_assignment(bytes(member.member_assignment))],
        )
        for member in group.members
    ]
    lag = compute_total_lag(offsets, ends)
    coordinator = cluster.coordinator(name).address.port  # The port of an internal address is the node id.
    return GroupDetails(
        group=name,
        state=group.group_state,
        protocol_type=group.protocol_type,
        protocol=group.protocol_data or None,
        coordinator=coordinator,
        members=len(members),
        topics=len({each.topic for each in offsets}),
        lag=lag,
        lagging_since_ms=find_lag_starts(context).get(name) if lag is not None else None,
        authorized_operations=context.find_authorized_operations(AclResourceType.GROUP, [name])[name],
        member_list=members,
        partitions=rows,
        readable_topics=context.filter_authorized(
            AclOperation.READ, AclResourceType.TOPIC, sorted({each.topic for each in partitions})
        ),
    )


def _build_group_row(
    partition: TopicPartition,
    assigned: Mapping[TopicPartition, str],
    committed: GroupOffset | None,
    end: int | None,
    seconds: float | None,
) -> GroupPartition:
    lag = None if committed is None or end is None else max(0, end - committed.offset)
    return GroupPartition(
        partition.topic,
        partition.partition,
        assigned.get(partition),
        committed.offset if committed is not None else None,
        end,
        lag,
        seconds,
        committed.metadata or None if committed is not None else None,
    )


TIMED_PARTITIONS_MAX: Final = 64
"""Maximum number of partitions per group whose lag is measured in seconds. Each requires a fetch of one batch."""


def _fetch_lag_seconds(
    context: OperationContext, offsets: Offsets, ends: Mapping[TopicPartition, int]
) -> dict[TopicPartition, float]:
    """Return the age of the first uncommitted record of each partition that the principal may read."""
    found = {each: 0.0 for each, committed in offsets.items() if ends.get(each, -1) == committed.offset}
    behind = [each for each, committed in offsets.items() if committed.offset < ends.get(each, -1)][
        :TIMED_PARTITIONS_MAX
    ]
    now_ms = context.node.services.clock.now_ms()
    reader = BatchReader(context, {each: offsets[each].offset for each in behind}, committed=False)
    try:
        for batch in reader.fetch(behind) if behind else ():
            if batch.partition not in found:
                committed = offsets[batch.partition].offset
                first = next((each for each in batch.records() if each.offset >= committed), None)
                if first is not None:
                    found[batch.partition] = max(0.0, (now_ms - first.timestamp) / 1000)
    except (KafkaError, ClientError):
        pass  # The principal lacks the Read permission, or a broker is not available.
    return found


def delete(context: OperationContext, params: NoQuestion) -> Done:
    """Delete a group without members."""
    name, cluster = context.path_parameters["group"], context.cluster

    def send() -> None:
        request = DeleteGroupsRequest(groups_names=[name])
        (result,) = cluster.coordinator(name).request(request, DeleteGroupsResponse).results
        raise_for_code(result.error_code, f"group {name}")

    cluster.retry(send, repeatable=False)
    return Done()


def delete_offsets(context: OperationContext, params: OffsetsToDelete) -> Done:
    """Delete committed offsets of a group."""
    name, cluster = context.path_parameters["group"], context.cluster
    if params.partition is not None:
        indexes = [params.partition]
    else:
        indexes = [each.partition for each in list_committed_offsets(cluster, name) if each.topic == params.topic]
    wanted = [OffsetDeleteRequestPartition(partition_index=each) for each in indexes]
    topic = OffsetDeleteRequestTopic(name=params.topic, partitions=wanted)

    def send() -> None:
        request = OffsetDeleteRequest(group_id=name, topics=[topic])
        response = cluster.coordinator(name).request(request, OffsetDeleteResponse)
        raise_for_code(response.error_code, f"group {name}")
        for topic_result in response.topics:
            for each in topic_result.partitions:
                raise_for_code(each.error_code, f"group {name}, {params.topic}-{each.partition_index}")

    cluster.retry(send)
    return Done()


def reset(context: OperationContext, params: OffsetReset) -> OffsetMoves:
    """Reset the committed offsets of a group without members."""
    name = context.path_parameters["group"]
    committed = _require_inactive_group(context, name)
    partitions = _select_partitions(context, params, committed)
    new = _compute_new_offsets(context, params.to, partitions, committed)
    moves = [
        OffsetMove(*each, committed[each].offset if each in committed else None, offset)
        for each, offset in sorted(new.items())
    ]
    if not params.dry_run:
        commit_offsets(context.cluster, name, new)
    return OffsetMoves(moves, not params.dry_run)


def _require_inactive_group(context: OperationContext, name: str) -> Offsets:
    """Return the committed offsets of a group. Raise an error if the group has members.

    Raises:
        RestError: The group has members.
    """
    try:
        state = describe_group(context.cluster, name).group_state
    except KafkaError as error:
        if error.code is not ErrorCode.GROUP_ID_NOT_FOUND:
            raise
        return {}
    if state not in INACTIVE_STATES:
        message = f"group {name} is {state}: offsets can only be reset while the group has no members"
        raise RestError(HTTPStatus.CONFLICT, message, ErrorCode.NON_EMPTY_GROUP.name)
    return list_committed_offsets(context.cluster, name)


def _select_partitions(context: OperationContext, params: OffsetReset, committed: Offsets) -> Sequence[TopicPartition]:
    cluster = context.cluster
    if params.partitions is not None:
        wanted = [TopicPartition(each.topic, each.partition) for each in params.partitions]
    elif params.topics is not None:
        wanted = [each for topic in params.topics for each in cluster.retry(lambda t=topic: cluster.partitions(t))]  # type: ignore[misc]
    else:
        wanted = sorted(committed)
    if not wanted:
        raise build_bad_request_error("the group has no committed offsets: specify topics or partitions")
    return list(dict.fromkeys(wanted))


def _find_offsets_at(
    context: OperationContext, moment_ms: int, last: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """Return the offset of the first record at or after a time in each partition, or the end offset without one."""
    found = list_offsets(context.cluster, dict.fromkeys(last, max(0, moment_ms)))
    return {each: found[each] if found[each] >= 0 else last[each] for each in last}


def _parse_duration(text: str) -> int:
    try:
        return parse_duration_ms(text)
    except ValueError as error:
        raise build_bad_request_error(str(error)) from None


_SHIFT: Final = re.compile(r"[+-][0-9]{1,18}")
_OFFSET: Final = re.compile(r"[0-9]{1,18}")


def _compute_new_offsets(
    context: OperationContext, to: str, partitions: Sequence[TopicPartition], committed: Offsets
) -> dict[TopicPartition, int]:
    """Return the new committed offset of each partition, clamped to the offsets that exist in the partition."""
    cluster = context.cluster
    first = list_offsets(cluster, dict.fromkeys(partitions, EARLIEST_TIMESTAMP))
    last = list_offsets(cluster, dict.fromkeys(partitions, LATEST_TIMESTAMP))
    if to == "start":
        return first
    if to == "end":
        return last
    if to.startswith("@"):
        wanted = _find_offsets_at(context, parse_timestamp_ms(to[1:]), last)
    elif to.startswith("P"):
        wanted = _find_offsets_at(context, context.node.services.clock.now_ms() - _parse_duration(to), last)
    elif _SHIFT.fullmatch(to):
        if missing := [str(each) for each in partitions if each not in committed]:
            raise build_bad_request_error(f"{missing[0]}: has no committed offset to shift")
        wanted = {each: committed[each].offset + int(to) for each in partitions}
    elif _OFFSET.fullmatch(to):
        wanted = dict.fromkeys(partitions, int(to))
    else:
        raise build_bad_request_error(f"to = {to!r}: expected start, end, an offset, +N, -N, @TIME or a duration")
    return {each: min(max(offset, first[each]), last[each]) for each, offset in wanted.items()}
