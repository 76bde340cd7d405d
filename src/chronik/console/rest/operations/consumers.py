"""The consumer groups of a topic: groups with committed offsets on it, or with members that are assigned to it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final

from chronik.client.groups import decode_assignment
from chronik.client.offsets import LATEST_TIMESTAMP
from chronik.console.rest.context import OperationContext
from chronik.console.rest.models.common import Searching
from chronik.console.rest.models.groups import ConsumerPartition, TopicConsumer, TopicConsumers
from chronik.console.rest.operations.groups import INACTIVE_STATES, describe_groups, list_groups
from chronik.console.rest.operations.shared import (
    fetch_available_offsets,
    group_partitions_by_leader,
    paginate_names,
)
from chronik.protocol.messages.describe_groups import DescribedGroupMember, DescribeGroupsGroup

GROUPS_PER_SLICE: Final = 100
"""Number of groups whose offsets are looked up in one event-loop iteration."""
DESCRIBED_GROUPS_MAX: Final = 500
"""Maximum number of active groups without committed offsets on the topic that are described per request."""
GROUPS_PER_DESCRIPTION: Final = 50

Members = dict[int, DescribedGroupMember]
"""Members of a group by the partition of the topic that they are assigned to."""


def list_all(context: OperationContext, params: Searching) -> TopicConsumers:
    """List the consumer groups of a topic by name."""
    name = context.path_parameters["topic"]
    topic = context.cluster.retry(lambda: context.cluster.topic(name))
    known = list_groups(context)
    with_offsets = _find_groups_with_offsets(context, list(known), name)
    active = [each for each, (_, group) in known.items() if group.group_state not in INACTIVE_STATES]
    others = [each for each in sorted(active) if each not in with_offsets]
    assigned = _describe_members(context, name, {each: known[each][0] for each in others[:DESCRIBED_GROUPS_MAX]})
    page = paginate_names({*with_offsets, *assigned}, params.search, params.after, params.limit)
    missing = {each: known[each][0] for each in page.items if each in active and each not in assigned}
    assigned |= _describe_members(context, name, missing)
    ends = fetch_available_offsets(context, group_partitions_by_leader([topic]), LATEST_TIMESTAMP)
    end_offsets = {each.partition: offset for each, (offset, _) in ends.items()}
    items = []
    for each in page.items:
        committed = _read_offsets(context, each, name) if each in with_offsets else {}
        items.append(_build_consumer(each, known[each][1].group_state, assigned.get(each, {}), committed, end_offsets))
    return TopicConsumers(items, page.next, page.total, len(others) <= DESCRIBED_GROUPS_MAX)


def _find_groups_with_offsets(context: OperationContext, groups: Sequence[str], topic: str) -> set[str]:
    """Return those of the groups that have committed offsets on the topic."""
    image = context.node.services.image

    def search(start: int) -> list[str]:
        names = groups[start : start + GROUPS_PER_SLICE]
        return [each for each in names if next(image.offsets(each).iter_offsets_of_topic(topic), None) is not None]

    found: set[str] = set()
    for start in range(0, len(groups), GROUPS_PER_SLICE):
        found.update(context.call_on_loop(partial(search, start)))
    return found


def _read_offsets(context: OperationContext, group: str, topic: str) -> dict[int, int]:
    """Return the committed offsets of a group on a topic by partition."""
    offsets = context.call_on_loop(lambda: context.node.services.image.frozen_offsets(group))
    return {partition: each.offset for partition, each in offsets.iter_offsets_of_topic(topic)}


def _describe_members(context: OperationContext, topic: str, coordinators: Mapping[str, int]) -> dict[str, Members]:
    """Return the members that are assigned to partitions of the topic, for groups that have such members."""
    found: dict[str, Members] = {}
    names = list(coordinators)
    for start in range(0, len(names), GROUPS_PER_DESCRIPTION):
        part = names[start : start + GROUPS_PER_DESCRIPTION]
        described = describe_groups(context, {each: coordinators[each] for each in part})
        for name, group in described.items():
            members = _get_members_by_partition(group, topic)
            if members:
                found[name] = members
    return found


def _get_members_by_partition(group: DescribeGroupsGroup, topic: str) -> Members:
    return {
        each.partition: member
        for member in group.members
        for each in decode_assignment(bytes(member.member_assignment))
        if each.topic == topic
    }


def _build_consumer(
    group: str, state: str, members: Members, committed: Mapping[int, int], ends: Mapping[int, int]
) -> TopicConsumer:
    lags = {each: max(0, ends[each] - offset) for each, offset in committed.items() if each in ends}
    slowest = None
    if any(lags.values()):
        partition = max(lags, key=lambda each: lags[each])
        member = members.get(partition)
        slowest = ConsumerPartition(
            partition,
            lags[partition],
            None if member is None else member.client_id,
            None if member is None else member.client_host,
        )
    return TopicConsumer(
        group,
        state,
        len({each.member_id for each in members.values()}),
        sum(lags.values()) if committed and len(lags) == len(committed) else None,
        slowest,
    )
