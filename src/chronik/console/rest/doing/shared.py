"""What several operations need: pages of lists, and questions to many nodes that need not all answer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, TypeVar

from chronik.client.cluster import Cluster
from chronik.client.errors import ClientError
from chronik.client.offsets import NO_REPLICA, by_topic
from chronik.client.records import TopicPartition
from chronik.console.rest.call import Call
from chronik.console.rest.shapes.common import Page
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

REFUSALS: Final = (
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.GROUP_AUTHORIZATION_FAILED,
)

Led = dict[int, list[TopicPartition]]
"""Partitions by who leads them."""


def paged(names: Iterable[str], search: str, after: str | None, limit: int) -> Page[str]:
    """Returns a page of names, in order. `next` is the last name that is on it."""
    wanted = search.lower()
    found = sorted(name for name in names if wanted in name.lower())
    rest = [name for name in found if name > after] if after is not None else found
    page = rest[:limit]
    return Page(page, page[-1] if len(rest) > limit else None, len(found))


def page_of(items: Sequence[T], after: str | None, limit: int) -> Page[T]:
    """Returns a page of what has no name: `next` is a position."""
    start = int(after) if after is not None and after.isascii() and after.isdigit() and len(after) < 10 else 0
    page = list(items[start : start + limit])
    return Page(page, str(start + limit) if start + limit < len(items) else None, len(items))


def unless_refused(ask: Callable[[], T]) -> T | None:
    """Returns None where the principal may not know it."""
    try:
        return ask()
    except KafkaError as error:
        if error.code not in REFUSALS:
            raise
        return None


def metadata_of(cluster: Cluster, topics: Sequence[str]) -> dict[str, MetadataResponseTopic]:
    """Returns those that there are, and that may be described, by name."""
    found = cluster.retrying(lambda: cluster.metadata(list(topics))).topics if topics else []
    return {topic.name or "": topic for topic in found if not topic.error_code}


def led_by(topics: Iterable[MetadataResponseTopic], only: set[TopicPartition] | None = None) -> Led:
    """Returns partitions that have a leader."""
    led: Led = {}
    for topic in topics:
        for each in topic.partitions:
            partition = TopicPartition(topic.name or "", each.partition_index)
            if each.leader_id >= 0 and (only is None or partition in only):
                led.setdefault(each.leader_id, []).append(partition)
    return led


def offsets_now(
    call: Call, led: Led, timestamps: Mapping[TopicPartition, int] | int, isolation: int = 0
) -> dict[TopicPartition, tuple[int, int]]:
    """Returns offsets and timestamps, of partitions whose leaders answer now: nobody is waited for."""
    found: dict[TopicPartition, tuple[int, int]] = {}
    for node_id, partitions in led.items():
        asked = [
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
            for topic, indexes in by_topic(partitions).items()
        ]
        request = ListOffsetsRequest(replica_id=NO_REPLICA, isolation_level=isolation, topics=asked)
        try:
            response = call.cluster.node(node_id).request(request, ListOffsetsResponse)
        except ClientError:
            continue
        for topic in response.topics:
            for each in topic.partitions:
                if not each.error_code and each.offset >= 0:
                    found[TopicPartition(topic.name, each.partition_index)] = each.offset, each.timestamp
    return found


def log_dirs(call: Call, node_id: int, partitions: Iterable[TopicPartition] | None) -> list[DescribeLogDirsResult]:
    """Raises KafkaError, ClientError."""
    asked = None
    if partitions is not None:
        asked = [
            DescribableLogDirTopic(topic=topic, partitions=indexes) for topic, indexes in by_topic(partitions).items()
        ]
    response = call.cluster.node(node_id).request(DescribeLogDirsRequest(topics=asked), DescribeLogDirsResponse)
    if response.error_code:
        raise KafkaError(ErrorCode(response.error_code), f"log directories of node {node_id}")
    return response.results


def sizes(call: Call, led: Led) -> dict[TopicPartition, int]:
    """Returns how long partitions are on their leaders' disks, of those that tell; nothing to those who may not ask."""
    found: dict[TopicPartition, int] = {}
    if not call.may_describe_cluster():
        return found
    for node_id, partitions in led.items():
        try:
            results = log_dirs(call, node_id, partitions)
        except (ClientError, KafkaError):
            continue
        for result in results:
            for topic in result.topics:
                for each in topic.partitions:
                    found[TopicPartition(topic.name, each.partition_index)] = each.partition_size
    return found


def summed(partitions: Iterable[TopicPartition], known: Mapping[TopicPartition, int]) -> int | None:
    """Returns None when one is missing."""
    total = 0
    for each in partitions:
        if each not in known:
            return None
        total += known[each]
    return total
