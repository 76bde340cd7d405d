"""Reads of a backup from a running cluster: log offsets, leader epochs and records."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple, TypeVar

from chronik.client.cluster import ClusterClient, raise_for_code
from chronik.client.errors import ClientError
from chronik.client.offsets import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP
from chronik.limits import MIB
from chronik.metadata.commands.topics import NO_LEADER
from chronik.metadata.image import Image
from chronik.migration.source import MigrationError
from chronik.migration.target_cluster import RETRY_DELAY_SECONDS, TopicIdPartition, read_cluster_image
from chronik.protocol.errors import ErrorCode, KafkaError
from chronik.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData
from chronik.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from chronik.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)

T = TypeVar("T")

FETCH_BYTES_MAX: Final = 16 * MIB
PARTITION_BYTES_MAX: Final = 4 * MIB
NO_SESSION_EPOCH: Final = -1
NO_REPLICA: Final = -1
PARTITIONS_PER_REQUEST: Final = 1000


class LogRange(NamedTuple):
    """The start and end offsets of a log."""

    start: int
    end: int


class ClusterReader:
    """A reader of records and offsets from the partition leaders of a running cluster."""

    def __init__(self, cluster: ClusterClient, image: Image) -> None:
        self._cluster = cluster
        self._image = image
        self._names = {topic.id: topic.name for topic in image.topics.values()}
        self._ids = {name: topic_id for topic_id, name in self._names.items()}
        self.timeout_s: Final = cluster.timeout_s
        self._cluster.retry(lambda: self._cluster.metadata([]))

    def format_partition_name(self, key: TopicIdPartition) -> str:
        """Return the display name of a partition."""
        return f"{self._names[key[0]]}-{key[1]}"

    # --- offsets ---

    def read_log_ranges(self, keys: Iterable[TopicIdPartition]) -> dict[TopicIdPartition, LogRange]:
        """Return the log start offset and the log end offset of each partition.

        Raises:
            MigrationError: A partition has no leader for the client's timeout.
        """
        keys = list(keys)
        ends = self._query_leaders(keys, lambda leader, some: self._list_offsets(leader, some, LATEST_TIMESTAMP))
        starts = self._query_leaders(keys, lambda leader, some: self._list_offsets(leader, some, EARLIEST_TIMESTAMP))
        # If the log start has moved past the end in the meantime, there is nothing left to copy.
        return {key: LogRange(min(starts[key], ends[key]), ends[key]) for key in keys if key in starts and key in ends}

    def read_leader_epoch_ends(self, epochs: Mapping[TopicIdPartition, int]) -> dict[TopicIdPartition, tuple[int, int]]:
        """Return the end offset of a leader epoch for each partition, as in Kafka's OffsetForLeaderEpoch API."""
        return self._query_leaders(
            list(epochs), lambda leader, some: self._fetch_leader_epoch_ends(leader, {k: epochs[k] for k in some})
        )

    def _query_leaders(
        self, keys: Iterable[TopicIdPartition], ask: Callable[[int, list[TopicIdPartition]], dict[TopicIdPartition, T]]
    ) -> dict[TopicIdPartition, T]:
        """Call `ask` for each partition leader, with retries, until every partition that still exists has a result."""
        found: dict[TopicIdPartition, T] = {}
        left, began, reason = dict.fromkeys(keys), time.monotonic(), "no leader"
        while left:
            if time.monotonic() - began > self._cluster.timeout_s:
                raise MigrationError(f"{self.format_partition_name(next(iter(left)))} is not available: {reason}")
            for leader, led in self._group_by_leader(left).items():
                for first in range(0, len(led), PARTITIONS_PER_REQUEST):
                    try:
                        answers = ask(leader, led[first : first + PARTITIONS_PER_REQUEST])
                    except (ClientError, KafkaError) as error:
                        reason = str(error)
                        break
                    found.update(answers)
                    for key in answers:
                        left.pop(key, None)
            if left:
                time.sleep(RETRY_DELAY_SECONDS)
                self.refresh()
                left = {key: None for key in left if key[0] in self._image.topics_by_id}
        return found

    def refresh(self) -> None:
        """Reload the partition leaders and the list of existing topics."""
        self._cluster.invalidate_metadata()
        self._cluster.retry(lambda: self._cluster.metadata([]))
        self._image = read_cluster_image(self._cluster)

    def is_deleted(self, key: TopicIdPartition) -> bool:
        """Return whether the partition's topic was deleted."""
        return key[0] not in self._image.topics_by_id

    def _group_by_leader(self, keys: Iterable[TopicIdPartition]) -> dict[int, list[TopicIdPartition]]:
        led: dict[int, list[TopicIdPartition]] = {}
        for topic_id, index in keys:
            topic = self._image.topics_by_id.get(topic_id)
            leader = NO_LEADER if topic is None else topic.partitions[index].leader
            if leader != NO_LEADER:
                led.setdefault(leader, []).append((topic_id, index))
        return led

    def _group_indexes_by_topic(self, keys: Iterable[TopicIdPartition]) -> dict[str, list[int]]:
        named: dict[str, list[int]] = {}
        for topic_id, index in keys:
            named.setdefault(self._names[topic_id], []).append(index)
        return named

    def _list_offsets(self, leader: int, keys: list[TopicIdPartition], timestamp: int) -> dict[TopicIdPartition, int]:
        request = ListOffsetsRequest(
            replica_id=NO_REPLICA,
            topics=[
                ListOffsetsTopic(
                    name=name,
                    partitions=[ListOffsetsPartition(partition_index=each, timestamp=timestamp) for each in indexes],
                )
                for name, indexes in self._group_indexes_by_topic(keys).items()
            ],
        )
        response = self._cluster.broker(leader).request(request, ListOffsetsResponse)
        return {
            (self._ids[topic.name], each.partition_index): each.offset
            for topic in response.topics
            for each in topic.partitions
            if not each.error_code
        }

    def _fetch_leader_epoch_ends(
        self, leader: int, epochs: Mapping[TopicIdPartition, int]
    ) -> dict[TopicIdPartition, tuple[int, int]]:
        request = OffsetForLeaderEpochRequest(
            topics=[
                OffsetForLeaderTopic(
                    topic=name,
                    partitions=[
                        OffsetForLeaderPartition(partition=each, leader_epoch=epochs[self._ids[name], each])
                        for each in indexes
                    ],
                )
                for name, indexes in self._group_indexes_by_topic(epochs).items()
            ],
        )
        response = self._cluster.broker(leader).request(request, OffsetForLeaderEpochResponse)
        return {
            (self._ids[topic.topic], each.partition): (each.leader_epoch, each.end_offset)
            for topic in response.topics
            for each in topic.partitions
            if not each.error_code
        }

    # --- records ---

    def fetch(self, positions: Mapping[TopicIdPartition, int]) -> dict[TopicIdPartition, PartitionData]:
        """Fetch records from the given offsets, with one request per leader."""
        found: dict[TopicIdPartition, PartitionData] = {}
        for leader, keys in self._group_by_leader(positions).items():
            request = FetchRequest(
                max_wait_ms=0,
                min_bytes=0,
                max_bytes=FETCH_BYTES_MAX,
                session_epoch=NO_SESSION_EPOCH,
                topics=[
                    FetchTopic(
                        topic=name, partitions=[self._fetch_partition(name, each, positions) for each in indexes]
                    )
                    for name, indexes in self._group_indexes_by_topic(keys).items()
                ],
            )
            try:
                response = self._cluster.broker(leader).request(request, FetchResponse)
                raise_for_code(response.error_code, "fetch")
            except (ClientError, KafkaError):
                continue
            for topic in response.responses:
                for data in topic.partitions:
                    found[self._ids[topic.topic], data.partition_index] = data
        return found

    def _fetch_partition(self, name: str, index: int, positions: Mapping[TopicIdPartition, int]) -> FetchPartition:
        return FetchPartition(
            partition=index,
            fetch_offset=positions[self._ids[name], index],
            partition_max_bytes=PARTITION_BYTES_MAX,
        )


RETRIABLE_ERRORS: Final = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.OFFSET_NOT_AVAILABLE,
    }
)
"""The error codes of a fetch after which the reader refreshes the metadata and fetches again."""
