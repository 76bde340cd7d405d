"""What brokers are asked by Kafka's own APIs for a look at their cluster: many partitions in few requests, and what one
broker does not answer is missing without harm to the rest."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from chronik.client.cluster import Cluster, raise_for
from chronik.client.connection import Connection
from chronik.client.errors import ClientError
from chronik.client.groups import committed_offsets
from chronik.client.offsets import LATEST, NO_REPLICA, by_topic
from chronik.client.records import TopicPartition
from chronik.protocol.errors import KafkaError
from chronik.protocol.messages.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse
from chronik.protocol.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from chronik.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from chronik.wording import counted

PARTITIONS_PER_REQUEST: Final = 5_000

Failed = Callable[[str, Exception], None]
"""Is told what could not be asked, and why."""

PASSING: Final = (ClientError, KafkaError)


class LogDirs(NamedTuple):
    """What the data folders of one broker hold."""

    sizes: dict[TopicPartition, int]
    total_bytes: int | None
    usable_bytes: int | None


def log_dirs(broker: Connection) -> LogDirs:
    """Raises ClientError, KafkaError."""
    response = broker.request(DescribeLogDirsRequest(topics=None), DescribeLogDirsResponse)
    raise_for(response.error_code, "sizes of logs")
    sizes: dict[TopicPartition, int] = {}
    total, usable = 0, 0
    for folder in response.results:
        raise_for(folder.error_code, f"folder {folder.log_dir}")
        total, usable = total + folder.total_bytes, usable + folder.usable_bytes
        for topic in folder.topics:
            for each in topic.partitions:
                sizes[TopicPartition(topic.name, each.partition_index)] = each.partition_size
    known = bool(response.results) and all(folder.total_bytes >= 0 for folder in response.results)
    return LogDirs(sizes, total if known else None, usable if known else None)


def ends_of(
    cluster: Cluster, leaders: Mapping[int, Sequence[TopicPartition]], failed: Failed
) -> dict[TopicPartition, int]:
    """Returns the ends of all partitions whose leaders tell."""
    found: dict[TopicPartition, int] = {}
    for leader, partitions in leaders.items():
        try:
            broker = cluster.broker(leader)
            for some in _in_portions(partitions):
                found |= _ends_told_by(broker, some)
        except PASSING as error:
            failed(f"ends of {counted(len(partitions), 'partition')} that node {leader} leads", error)
    return found


def _ends_told_by(broker: Connection, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    topics = [
        ListOffsetsTopic(
            name=topic,
            partitions=[ListOffsetsPartition(partition_index=index, timestamp=LATEST) for index in indexes],
        )
        for topic, indexes in by_topic(partitions).items()
    ]
    response = broker.request(ListOffsetsRequest(replica_id=NO_REPLICA, topics=topics), ListOffsetsResponse)
    return {
        TopicPartition(topic.name, each.partition_index): each.offset
        for topic in response.topics
        for each in topic.partitions
        if not each.error_code
    }


def _in_portions(partitions: Sequence[TopicPartition]) -> Iterator[Sequence[TopicPartition]]:
    for start in range(0, len(partitions), PARTITIONS_PER_REQUEST):
        yield partitions[start : start + PARTITIONS_PER_REQUEST]


def groups_of(brokers: Mapping[int, Connection], failed: Failed) -> list[ListedGroup]:
    """Returns the groups of all brokers that tell, by name."""
    found: list[ListedGroup] = []
    for node_id, broker in brokers.items():
        try:
            response = broker.request(ListGroupsRequest(), ListGroupsResponse)
            raise_for(response.error_code, "groups")
            found += response.groups
        except PASSING as error:
            failed(f"groups that node {node_id} coordinates", error)
    return sorted(found, key=lambda group: group.group_id)


class Lag(NamedTuple):
    records: int | None
    is_whole: bool


class Lags:
    """How far groups are behind. Each group is a request of its own, so there is a budget: those whose answer is oldest
    are asked first, and the others keep what they told before."""

    def __init__(self, budget_s: float) -> None:
        self._budget_s = budget_s
        self._known: dict[str, tuple[float, Lag]] = {}

    def of(
        self, cluster: Cluster, groups: Sequence[str], ends: Mapping[TopicPartition, int], failed: Failed
    ) -> dict[str, Lag]:
        began = time.monotonic()
        self._known = {name: known for name, known in self._known.items() if name in set(groups)}
        for name in sorted(groups, key=lambda name: self._known.get(name, (0.0, None))[0]):
            if time.monotonic() - began > self._budget_s:
                break
            try:
                offsets = {at: each.offset for at, each in committed_offsets(cluster, name).items()}
                self._known[name] = time.monotonic(), lag_of(offsets, ends)
            except PASSING as error:
                failed(f"offsets of group {name}", error)
        return {name: lag for name, (_, lag) in self._known.items()}


def lag_of(committed: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]) -> Lag:
    """A partition of a topic that is gone has no end, and no lag."""
    known = [max(0, ends[at] - offset) for at, offset in committed.items() if at in ends]
    if not known and committed:
        return Lag(None, False)
    return Lag(sum(known), len(known) == len(committed))
