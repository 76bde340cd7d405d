"""Consumer groups from outside: who is in them, what they have committed. Membership itself is not implemented here.

Offsets can be committed for a group without members, as Kafka's "simple consumers" do.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Final, NamedTuple

from chronik.client.cluster import Cluster, raise_for
from chronik.client.errors import ApiNotSupported
from chronik.client.offsets import by_topic, existing_ends
from chronik.client.records import TopicPartition
from chronik.protocol.errors import ErrorCode, KafkaError
from chronik.protocol.messages.describe_groups import DescribedGroup, DescribeGroupsRequest, DescribeGroupsResponse
from chronik.protocol.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from chronik.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from chronik.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic, OffsetFetchResponse

NO_OFFSET: Final = -1

STABLE_VERSION_MIN: Final = 7
"""The first of OffsetFetch that can be asked to tell nothing that an open transaction may change. Kafka 2.5 has it."""
DEAD: Final = "Dead"


class Committed(NamedTuple):
    offset: int
    metadata: str


def list_groups(cluster: Cluster) -> list[ListedGroup]:
    """Returns the groups of all brokers, by name."""

    def ask() -> list[ListedGroup]:
        groups: list[ListedGroup] = []
        for broker in cluster.brokers():
            response = broker.request(ListGroupsRequest(), ListGroupsResponse)
            raise_for(response.error_code, f"groups of {broker.address}")
            groups += response.groups
        return groups

    return sorted(cluster.retrying(ask), key=lambda group: group.group_id)


NOT_ALLOWED: Final = frozenset({ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.GROUP_AUTHORIZATION_FAILED})
"""The client may see the group, and not its offsets."""


class GroupSummary(NamedTuple):
    group: str
    state: str
    protocol_type: str
    members: int
    lag: int | None
    """Records after the committed offsets, of all partitions that exist; None without committed offsets."""


def summarize_groups(cluster: Cluster) -> list[GroupSummary]:
    """Return all groups with their members and lag, by name. Raises ClientError, KafkaError.

    Groups and topics that are deleted meanwhile are left out."""
    committed: dict[str, dict[TopicPartition, int]] = {}
    described: list[DescribedGroup] = []
    for listed in list_groups(cluster):
        try:
            described.append(describe_group(cluster, listed.group_id))
        except KafkaError as error:
            if error.code is not ErrorCode.GROUP_ID_NOT_FOUND:
                raise
            continue
        try:
            offsets = committed_offsets(cluster, listed.group_id)
        except KafkaError as error:
            if error.code not in NOT_ALLOWED:
                raise
            offsets = {}
        committed[listed.group_id] = {partition: each.offset for partition, each in offsets.items()}
    ends = existing_ends(cluster, {partition for offsets in committed.values() for partition in offsets})
    return [
        GroupSummary(
            group.group_id,
            group.group_state,
            group.protocol_type,
            len(group.members),
            _lag(committed[group.group_id], ends),
        )
        for group in described
    ]


def _lag(committed: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]) -> int | None:
    known = [max(0, ends[partition] - offset) for partition, offset in committed.items() if partition in ends]
    return sum(known) if known else None


def describe_group(cluster: Cluster, group: str) -> DescribedGroup:
    """Raises KafkaError with GROUP_ID_NOT_FOUND when there is no such group."""

    def ask() -> DescribedGroup:
        response = cluster.coordinator(group).request(DescribeGroupsRequest(groups=[group]), DescribeGroupsResponse)
        (described,) = response.groups
        raise_for(described.error_code, f"group {group}", described.error_message)
        if described.group_state == DEAD:  # how versions before 6 say it
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"group {group}: {ErrorCode.GROUP_ID_NOT_FOUND.message}")
        return described

    return cluster.retrying(ask)


def committed_offsets(cluster: Cluster, group: str) -> dict[TopicPartition, Committed]:
    """Returns all that the group has committed."""
    return cluster.retrying(lambda: _fetch_offsets(cluster, OffsetFetchRequest(group_id=group, topics=None)))


def committed_offsets_of(cluster: Cluster, group: str, topic: str) -> dict[TopicPartition, Committed]:
    """Returns what the group has committed for one topic; partitions without a commit are left out."""
    indexes = [index for _, index in cluster.retrying(lambda: cluster.partitions(topic))]
    wanted = OffsetFetchRequestTopic(name=topic, partition_indexes=indexes)
    return cluster.retrying(lambda: _fetch_offsets(cluster, OffsetFetchRequest(group_id=group, topics=[wanted])))


def stable_offset(cluster: Cluster, group: str, partition: TopicPartition) -> Committed | None:
    """Returns what the group has committed, once no transaction is under way that might still commit another offset."""
    wanted = OffsetFetchRequestTopic(name=partition.topic, partition_indexes=[partition.partition])
    request = OffsetFetchRequest(group_id=group, topics=[wanted], require_stable=True)

    def ask() -> Committed | None:
        coordinator = cluster.coordinator(group)
        if coordinator.version_of(OffsetFetchRequest) < STABLE_VERSION_MIN:
            raise ApiNotSupported(f"{coordinator.address} cannot tell offsets apart that are not stable yet")
        return _fetch_offsets(cluster, request).get(partition)

    return cluster.retrying(ask)


def commit_offsets(cluster: Cluster, group: str, offsets: Mapping[TopicPartition, int]) -> None:
    """Commits for a group that has no members. Raises KafkaError, with UNKNOWN_MEMBER_ID when it has some."""
    request = OffsetCommitRequest(
        group_id=group,
        topics=[
            OffsetCommitRequestTopic(
                name=topic,
                partitions=[
                    OffsetCommitRequestPartition(
                        partition_index=index, committed_offset=offsets[TopicPartition(topic, index)]
                    )
                    for index in indexes
                ],
            )
            for topic, indexes in by_topic(offsets).items()
        ],
    )

    def ask() -> None:
        response = cluster.coordinator(group).request(request, OffsetCommitResponse)
        for topic in response.topics:
            for partition in topic.partitions:
                about = f"group {group}, {TopicPartition(topic.name, partition.partition_index)}"
                raise_for(partition.error_code, about)

    cluster.retrying(ask)


def _fetch_offsets(cluster: Cluster, request: OffsetFetchRequest) -> dict[TopicPartition, Committed]:
    response = cluster.coordinator(request.group_id).request(request, OffsetFetchResponse)
    raise_for(response.error_code, f"group {request.group_id}")
    found: dict[TopicPartition, Committed] = {}
    for topic in response.topics:
        for answer in topic.partitions:
            partition = TopicPartition(topic.name, answer.partition_index)
            raise_for(answer.error_code, f"group {request.group_id}, {partition}")
            if answer.committed_offset != NO_OFFSET:
                found[partition] = Committed(answer.committed_offset, answer.metadata or "")
    return found


def assigned_partitions(assignment: bytes) -> list[TopicPartition]:
    """Returns what a member's assignment says; nothing when it is not one of Kafka's consumer protocol.

    version int16 | topics: count int32, each a name (int16 length) and its partitions (count int32, int32 each) | …
    """
    partitions: list[TopicPartition] = []
    try:
        (topic_count,) = struct.unpack_from(">i", assignment, 2)
        position = 6
        for _ in range(topic_count):
            (length,) = struct.unpack_from(">h", assignment, position)
            name_end = position + 2 + length
            topic = assignment[position + 2 : name_end].decode()
            (count,) = struct.unpack_from(">i", assignment, name_end)
            indexes = struct.unpack_from(f">{count}i", assignment, name_end + 4)
            partitions += (TopicPartition(topic, index) for index in indexes)
            position = name_end + 4 + 4 * count
    except (struct.error, UnicodeDecodeError):
        return []
    return partitions
