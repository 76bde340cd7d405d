"""Requests to brokers over Kafka's protocol, with many partitions per request.

If a broker does not answer, its facts are missing and the others are still collected.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from chronik.client.cluster import ClusterClient, raise_for_code
from chronik.client.connection import BrokerConnection
from chronik.client.errors import ClientError
from chronik.client.groups import list_committed_offsets
from chronik.client.offsets import LATEST_TIMESTAMP, NO_REPLICA, group_by_topic
from chronik.client.records import TopicPartition
from chronik.protocol.errors import KafkaError
from chronik.protocol.messages.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse
from chronik.protocol.messages.list_groups import ListGroupsGroup, ListGroupsRequest, ListGroupsResponse
from chronik.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from chronik.wording import pluralize

PARTITIONS_PER_REQUEST: Final = 5_000

FailureCallback = Callable[[str, Exception], None]
"""A callback that receives a description of a failed request, and the error."""

RECOVERABLE_ERRORS: Final = (ClientError, KafkaError)


class LogDirs(NamedTuple):
    """The sizes of a broker's partitions, and the total and usable space of its disk."""

    sizes: dict[TopicPartition, int]
    total_bytes: int | None
    usable_bytes: int | None


def describe_log_dirs(broker: BrokerConnection) -> LogDirs:
    """Return the sizes of a broker's partitions and disks."""
    response = broker.request(DescribeLogDirsRequest(topics=None), DescribeLogDirsResponse)
    raise_for_code(response.error_code, "log directory sizes")
    sizes: dict[TopicPartition, int] = {}
    total, usable = 0, 0
    for directory in response.results:
        raise_for_code(directory.error_code, f"directory {directory.log_dir}")
        total, usable = total + directory.total_bytes, usable + directory.usable_bytes
        for topic in directory.topics:
            for each in topic.partitions:
                sizes[TopicPartition(topic.name, each.partition_index)] = each.partition_size
    known = bool(response.results) and all(directory.total_bytes >= 0 for directory in response.results)
    return LogDirs(sizes, total if known else None, usable if known else None)


def fetch_end_offsets(
    cluster: ClusterClient, leaders: Mapping[int, Sequence[TopicPartition]], failed: FailureCallback
) -> dict[TopicPartition, int]:
    """Return the end offsets of all partitions whose leaders respond."""
    found: dict[TopicPartition, int] = {}
    for leader, partitions in leaders.items():
        try:
            broker = cluster.broker(leader)
            for chunk in _split_into_chunks(partitions):
                found |= _list_end_offsets(broker, chunk)
        except RECOVERABLE_ERRORS as error:
            failed(f"end offsets of {pluralize(len(partitions), 'partition')} led by node {leader}", error)
    return found


def _list_end_offsets(broker: BrokerConnection, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    topics = [
        ListOffsetsTopic(
            name=topic,
            partitions=[ListOffsetsPartition(partition_index=index, timestamp=LATEST_TIMESTAMP) for index in indexes],
        )
        for topic, indexes in group_by_topic(partitions).items()
    ]
    response = broker.request(ListOffsetsRequest(replica_id=NO_REPLICA, topics=topics), ListOffsetsResponse)
    return {
        TopicPartition(topic.name, each.partition_index): each.offset
        for topic in response.topics
        for each in topic.partitions
        if not each.error_code
    }


def _split_into_chunks(partitions: Sequence[TopicPartition]) -> Iterator[Sequence[TopicPartition]]:
    for start in range(0, len(partitions), PARTITIONS_PER_REQUEST):
        yield partitions[start : start + PARTITIONS_PER_REQUEST]


def list_groups(brokers: Mapping[int, BrokerConnection], failed: FailureCallback) -> list[ListGroupsGroup]:
    """Return the groups of all brokers that respond, sorted by name."""
    found: list[ListGroupsGroup] = []
    for node_id, broker in brokers.items():
        try:
            response = broker.request(ListGroupsRequest(), ListGroupsResponse)
            raise_for_code(response.error_code, "groups")
            found += response.groups
        except RECOVERABLE_ERRORS as error:
            failed(f"groups coordinated by node {node_id}", error)
    return sorted(found, key=lambda group: group.group_id)


class ConsumerLag(NamedTuple):
    records: int | None
    is_complete: bool


class LagTracker:
    """A cache of the lags of consumer groups, whose oldest entries are updated first.

    Each group needs a request, so an update has a time budget: the oldest lags are updated first, others are kept.
    """

    def __init__(self, budget_s: float) -> None:
        self._budget_s = budget_s
        self._known: dict[str, tuple[float, ConsumerLag]] = {}

    def update(
        self, cluster: ClusterClient, groups: Sequence[str], ends: Mapping[TopicPartition, int], failed: FailureCallback
    ) -> dict[str, ConsumerLag]:
        began = time.monotonic()
        self._known = {name: known for name, known in self._known.items() if name in set(groups)}
        for name in sorted(groups, key=lambda name: self._known.get(name, (0.0, None))[0]):
            if time.monotonic() - began > self._budget_s:
                break
            try:
                offsets = {at: each.offset for at, each in list_committed_offsets(cluster, name).items()}
                self._known[name] = time.monotonic(), compute_lag(offsets, ends)
            except RECOVERABLE_ERRORS as error:
                failed(f"committed offsets of group {name}", error)
        return {name: lag for name, (_, lag) in self._known.items()}


def compute_lag(committed: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]) -> ConsumerLag:
    """Return the lag of committed offsets. Skip partitions without an end offset, such as those of deleted topics."""
    known = [max(0, ends[at] - offset) for at, offset in committed.items() if at in ends]
    if not known and committed:
        return ConsumerLag(None, False)
    return ConsumerLag(sum(known), len(known) == len(committed))
