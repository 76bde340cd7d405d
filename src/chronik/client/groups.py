"""Consumer group administration: list and describe groups, read and commit their offsets.

Offsets can be committed for a group without members, like Kafka's "simple consumers" do.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Final, NamedTuple

from chronik.client.cluster import ClusterClient, raise_for_code
from chronik.client.errors import ApiNotSupported
from chronik.client.offsets import group_by_topic, list_existing_end_offsets
from chronik.client.records import TopicPartition
from chronik.protocol.errors import ErrorCode, KafkaError
from chronik.protocol.messages.describe_groups import DescribeGroupsGroup, DescribeGroupsRequest, DescribeGroupsResponse
from chronik.protocol.messages.list_groups import ListGroupsGroup, ListGroupsRequest, ListGroupsResponse
from chronik.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from chronik.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic, OffsetFetchResponse

NO_OFFSET: Final = -1

STABLE_VERSION_MIN: Final = 7
"""First version of OffsetFetch that supports `require_stable` (Kafka 2.5)."""
DEAD_STATE: Final = "Dead"


class GroupOffset(NamedTuple):
    """A committed offset and its metadata string."""

    offset: int
    metadata: str


def list_groups(cluster: ClusterClient) -> list[ListGroupsGroup]:
    """Return the groups of all brokers, sorted by name."""

    def send() -> list[ListGroupsGroup]:
        groups: list[ListGroupsGroup] = []
        for broker in cluster.brokers():
            response = broker.request(ListGroupsRequest(), ListGroupsResponse)
            raise_for_code(response.error_code, f"groups of {broker.address}")
            groups += response.groups
        return groups

    return sorted(cluster.retry(send), key=lambda group: group.group_id)


AUTHORIZATION_ERRORS: Final = frozenset({ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.GROUP_AUTHORIZATION_FAILED})
"""Error codes of a client that is not authorized to read a group's committed offsets."""


class GroupSummary(NamedTuple):
    """A consumer group with its state, number of members and total lag."""

    group: str
    state: str
    protocol_type: str
    members: int
    lag: int | None
    """Total lag in records over all existing partitions; None if the group has no committed offsets."""


def summarize_groups(cluster: ClusterClient) -> list[GroupSummary]:
    """Return all groups with their number of members and lag, sorted by name.

    Raise ClientError or KafkaError on failure.

    Groups and topics that are deleted concurrently are left out.
    """
    committed: dict[str, dict[TopicPartition, int]] = {}
    described: list[DescribeGroupsGroup] = []
    for listed in list_groups(cluster):
        try:
            described.append(describe_group(cluster, listed.group_id))
        except KafkaError as error:
            if error.code is not ErrorCode.GROUP_ID_NOT_FOUND:
                raise
            continue
        try:
            offsets = list_committed_offsets(cluster, listed.group_id)
        except KafkaError as error:
            if error.code not in AUTHORIZATION_ERRORS:
                raise
            offsets = {}
        committed[listed.group_id] = {partition: each.offset for partition, each in offsets.items()}
    ends = list_existing_end_offsets(cluster, {partition for offsets in committed.values() for partition in offsets})
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


def describe_group(cluster: ClusterClient, group: str) -> DescribeGroupsGroup:
    """Return the state and members of a group. Raise KafkaError with GROUP_ID_NOT_FOUND if it does not exist."""

    def send() -> DescribeGroupsGroup:
        response = cluster.coordinator(group).request(DescribeGroupsRequest(groups=[group]), DescribeGroupsResponse)
        (described,) = response.groups
        raise_for_code(described.error_code, f"group {group}", described.error_message)
        if described.group_state == DEAD_STATE:  # versions before 6 report a missing group this way
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"group {group}: {ErrorCode.GROUP_ID_NOT_FOUND.message}")
        return described

    return cluster.retry(send)


def list_committed_offsets(cluster: ClusterClient, group: str) -> dict[TopicPartition, GroupOffset]:
    """Return all committed offsets of a group."""
    return cluster.retry(lambda: _fetch_offsets(cluster, OffsetFetchRequest(group_id=group, topics=None)))


def list_topic_committed_offsets(cluster: ClusterClient, group: str, topic: str) -> dict[TopicPartition, GroupOffset]:
    """Return the committed offsets of a group for one topic. Partitions without a committed offset are omitted."""
    indexes = [index for _, index in cluster.retry(lambda: cluster.partitions(topic))]
    wanted = OffsetFetchRequestTopic(name=topic, partition_indexes=indexes)
    return cluster.retry(lambda: _fetch_offsets(cluster, OffsetFetchRequest(group_id=group, topics=[wanted])))


def fetch_stable_offset(cluster: ClusterClient, group: str, partition: TopicPartition) -> GroupOffset | None:
    """Return the committed offset of a partition after pending transactional offset commits have completed."""
    wanted = OffsetFetchRequestTopic(name=partition.topic, partition_indexes=[partition.partition])
    request = OffsetFetchRequest(group_id=group, topics=[wanted], require_stable=True)

    def send() -> GroupOffset | None:
        coordinator = cluster.coordinator(group)
        if coordinator.negotiated_version(OffsetFetchRequest) < STABLE_VERSION_MIN:
            raise ApiNotSupported(f"{coordinator.address} does not support stable offsets (OffsetFetch version 7)")
        return _fetch_offsets(cluster, request).get(partition)

    return cluster.retry(send)


def commit_offsets(cluster: ClusterClient, group: str, offsets: Mapping[TopicPartition, int]) -> None:
    """Commit offsets for a group without members. Raise KafkaError with UNKNOWN_MEMBER_ID if the group has members."""
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
            for topic, indexes in group_by_topic(offsets).items()
        ],
    )

    def send() -> None:
        response = cluster.coordinator(group).request(request, OffsetCommitResponse)
        for topic in response.topics:
            for partition in topic.partitions:
                about = f"group {group}, {TopicPartition(topic.name, partition.partition_index)}"
                raise_for_code(partition.error_code, about)

    cluster.retry(send)


def _fetch_offsets(cluster: ClusterClient, request: OffsetFetchRequest) -> dict[TopicPartition, GroupOffset]:
    response = cluster.coordinator(request.group_id).request(request, OffsetFetchResponse)
    raise_for_code(response.error_code, f"group {request.group_id}")
    found: dict[TopicPartition, GroupOffset] = {}
    for topic in response.topics:
        for result in topic.partitions:
            partition = TopicPartition(topic.name, result.partition_index)
            raise_for_code(result.error_code, f"group {request.group_id}, {partition}")
            if result.committed_offset != NO_OFFSET:
                found[partition] = GroupOffset(result.committed_offset, result.metadata or "")
    return found


def decode_assignment(assignment: bytes) -> list[TopicPartition]:
    """Decode a member's assignment into partitions. Return an empty list if it is not in the consumer protocol format.

    Layout: version int16 | topics: count int32, each a name (int16 length) and partitions (count int32, int32 each) | …
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
