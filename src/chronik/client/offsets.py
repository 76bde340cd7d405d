"""Where partitions begin and end, and which offset a moment has."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from chronik.client.cluster import Cluster, raise_for
from chronik.client.records import TopicPartition
from chronik.protocol.errors import ErrorCode, KafkaError
from chronik.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

EARLIEST: Final = -2
LATEST: Final = -1
NO_REPLICA: Final = -1

DELETED: Final = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID})
"""What brokers answer for a partition of a topic that was deleted."""

READ_COMMITTED: Final = 1
"""The isolation level for which a partition ends where the first open transaction begins."""


def earliest_offsets(cluster: Cluster, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    return list_offsets(cluster, dict.fromkeys(partitions, EARLIEST))


def latest_offsets(cluster: Cluster, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    """Returns the offset after the last record that consumers may see."""
    return list_offsets(cluster, dict.fromkeys(partitions, LATEST))


def existing_ends(cluster: Cluster, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    """Return the ends of the partitions, without those that do not exist or have no leader. Raises ClientError."""
    wanted = set(partitions)
    if not wanted:
        return {}
    led = {
        TopicPartition(topic.name or "", each.partition_index)
        for topic in cluster.retrying(lambda: cluster.metadata(None)).topics
        for each in topic.partitions
        if each.leader_id >= 0
    }
    return cluster.retrying(
        lambda: _list_offsets(cluster, dict.fromkeys(sorted(wanted & led), LATEST), skip_deleted=True)
    )


def list_offsets(
    cluster: Cluster, timestamps: Mapping[TopicPartition, int], isolation_level: int = 0
) -> dict[TopicPartition, int]:
    """Returns for each partition the first offset at or after its timestamp; -1 where there is none.

    EARLIEST and LATEST are timestamps too. Raises ClientError or KafkaError.
    """
    return cluster.retrying(lambda: _list_offsets(cluster, timestamps, isolation_level))


def lost_partitions(cluster: Cluster, partitions: Iterable[TopicPartition]) -> set[TopicPartition]:
    """Returns those whose leaders say that their disks have lost them."""
    lost: set[TopicPartition] = set()
    cluster.retrying(lambda: _list_offsets(cluster, dict.fromkeys(partitions, LATEST), lost=lost))
    return lost


def _list_offsets(
    cluster: Cluster,
    timestamps: Mapping[TopicPartition, int],
    isolation_level: int = 0,
    lost: set[TopicPartition] | None = None,
    skip_deleted: bool = False,
) -> dict[TopicPartition, int]:
    found: dict[TopicPartition, int] = {}
    for leader_id, partitions in by_leader(cluster, timestamps, skip_deleted=skip_deleted).items():
        request = ListOffsetsRequest(
            replica_id=NO_REPLICA,
            isolation_level=isolation_level,
            topics=[
                ListOffsetsTopic(
                    name=topic,
                    partitions=[
                        ListOffsetsPartition(partition_index=index, timestamp=timestamps[TopicPartition(topic, index)])
                        for index in indexes
                    ],
                )
                for topic, indexes in by_topic(partitions).items()
            ],
        )
        response = cluster.broker(leader_id).request(request, ListOffsetsResponse)
        for topic in response.topics:
            for answer in topic.partitions:
                partition = TopicPartition(topic.name, answer.partition_index)
                if lost is not None and answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR:
                    lost.add(partition)
                    continue
                if skip_deleted and answer.error_code in DELETED:
                    continue
                raise_for(answer.error_code, str(partition))
                found[partition] = answer.offset
    return found


def by_leader(
    cluster: Cluster, partitions: Iterable[TopicPartition], *, skip_deleted: bool = False
) -> dict[int, list[TopicPartition]]:
    """Returns the partitions that each broker leads, in the order given. Raises KafkaError, also for a partition that
    does not exist, unless those are to be skipped."""
    led: dict[int, list[TopicPartition]] = {}
    for partition in partitions:
        try:
            led.setdefault(cluster.leader_id(partition), []).append(partition)
        except KafkaError as error:
            if not skip_deleted or error.code not in DELETED:
                raise
    return led


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    indexes: dict[str, list[int]] = {}
    for topic, index in partitions:
        indexes.setdefault(topic, []).append(index)
    return indexes
