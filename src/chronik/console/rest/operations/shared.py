"""Helpers of several operations: pagination, and requests to several nodes of which some may not respond."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, TypeVar

from chronik.client.cluster import ClusterClient
from chronik.client.errors import ClientError
from chronik.client.offsets import NO_REPLICA, group_by_topic
from chronik.client.records import TopicPartition
from chronik.console.rest.context import OperationContext
from chronik.console.rest.models.common import Page
from chronik.protocol.errors import ErrorCode, KafkaError
from chronik.protocol.messages.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
)
from chronik.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from chronik.protocol.messages.metadata import MetadataResponseTopic

T = TypeVar("T")

AUTHORIZATION_ERRORS: Final = (
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.GROUP_AUTHORIZATION_FAILED,
)

PartitionsByLeader = dict[int, list[TopicPartition]]
"""Partitions grouped by the node id of their leader."""


def paginate_names(names: Iterable[str], search: str, after: str | None, limit: int) -> Page[str]:
    """Return a page of sorted names that contain `search`. `next` is the last name on the page."""
    wanted = search.lower()
    found = sorted(name for name in names if wanted in name.lower())
    rest = [name for name in found if name > after] if after is not None else found
    page = rest[:limit]
    return Page(page, page[-1] if len(rest) > limit else None, len(found))


def paginate(items: Sequence[T], after: str | None, limit: int) -> Page[T]:
    """Return a page of a list. `next` is the index of the first item on the next page."""
    start = int(after) if after is not None and after.isascii() and after.isdigit() and len(after) < 10 else 0
    page = list(items[start : start + limit])
    return Page(page, str(start + limit) if start + limit < len(items) else None, len(items))


def call_or_none_if_unauthorized(function: Callable[[], T]) -> T | None:
    """Call a function and return its result, or None if it raises an authorization error."""
    try:
        return function()
    except KafkaError as error:
        if error.code not in AUTHORIZATION_ERRORS:
            raise
        return None


def fetch_topic_metadata(cluster: ClusterClient, topics: Sequence[str]) -> dict[str, MetadataResponseTopic]:
    """Return the metadata, by name, of the topics that exist and that the principal may describe."""
    found = cluster.retry(lambda: cluster.metadata(list(topics))).topics if topics else []
    return {topic.name or "": topic for topic in found if not topic.error_code}


def group_partitions_by_leader(
    topics: Iterable[MetadataResponseTopic], only: set[TopicPartition] | None = None
) -> PartitionsByLeader:
    """Return the partitions that have a leader, grouped by leader."""
    led: PartitionsByLeader = {}
    for topic in topics:
        for each in topic.partitions:
            partition = TopicPartition(topic.name or "", each.partition_index)
            if each.leader_id >= 0 and (only is None or partition in only):
                led.setdefault(each.leader_id, []).append(partition)
    return led


def fetch_available_offsets(
    context: OperationContext,
    led: PartitionsByLeader,
    timestamps: Mapping[TopicPartition, int] | int,
    isolation: int = 0,
) -> dict[TopicPartition, tuple[int, int]]:
    """Look up partition offsets by timestamp, without retries. Return (offset, timestamp) for leaders that respond."""
    found: dict[TopicPartition, tuple[int, int]] = {}
    for node_id, partitions in led.items():
        params = [
            ListOffsetsTopic(
                name=topic,
                partitions=[
                    ListOffsetsPartition(
                        partition_index=index,
                        timestamp=timestamps
                        if isinstance(timestamps, int)
                        else timestamps[TopicPartition(topic, index)],
                    )
                    for index in indexes
                ],
            )
            for topic, indexes in group_by_topic(partitions).items()
        ]
        request = ListOffsetsRequest(replica_id=NO_REPLICA, isolation_level=isolation, topics=params)
        try:
            response = context.cluster.node(node_id).request(request, ListOffsetsResponse)
        except ClientError:
            continue
        for topic in response.topics:
            for each in topic.partitions:
                if not each.error_code and each.offset >= 0:
                    found[TopicPartition(topic.name, each.partition_index)] = each.offset, each.timestamp
    return found


def describe_log_dirs(
    context: OperationContext, node_id: int, partitions: Iterable[TopicPartition] | None
) -> list[DescribeLogDirsResult]:
    """Return the log directories of a node, optionally limited to given partitions.

    Raises:
        KafkaError: The principal lacks the Describe permission on the cluster.
        ClientError: The node cannot be reached.
    """
    params = None
    if partitions is not None:
        params = [
            DescribableLogDirTopic(topic=topic, partitions=indexes)
            for topic, indexes in group_by_topic(partitions).items()
        ]
    response = context.cluster.node(node_id).request(DescribeLogDirsRequest(topics=params), DescribeLogDirsResponse)
    if response.error_code:
        raise KafkaError(ErrorCode(response.error_code), f"log directories of node {node_id}")
    return response.results


def fetch_partition_sizes(context: OperationContext, led: PartitionsByLeader) -> dict[TopicPartition, int]:
    """Return the sizes of partitions on their leaders' disks; empty if the principal is not authorized."""
    found: dict[TopicPartition, int] = {}
    if not context.can_describe_cluster():
        return found
    for node_id, partitions in led.items():
        try:
            results = describe_log_dirs(context, node_id, partitions)
        except (ClientError, KafkaError):
            continue
        for result in results:
            for topic in result.topics:
                for each in topic.partitions:
                    found[TopicPartition(topic.name, each.partition_index)] = each.partition_size
    return found


def sum_or_none(partitions: Iterable[TopicPartition], known: Mapping[TopicPartition, int]) -> int | None:
    """Return the sum of the partitions' values, or None if a partition has no known value."""
    total = 0
    for each in partitions:
        if each not in known:
            return None
        total += known[each]
    return total
