"""Offsets of partitions: earliest, latest, and by timestamp (ListOffsets)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from chronik.client.cluster import ClusterClient, raise_for_code
from chronik.client.errors import ClientError
from chronik.client.records import TopicPartition
from chronik.protocol.errors import ErrorCode, KafkaError
from chronik.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

EARLIEST_TIMESTAMP: Final = -2
LATEST_TIMESTAMP: Final = -1
NO_REPLICA: Final = -1

DELETED_TOPIC_ERRORS: Final = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID})
"""Error codes of a request for a partition whose topic was deleted."""

READ_COMMITTED: Final = 1
"""The isolation level read_committed, at which a partition ends at its last stable offset."""


def list_earliest_offsets(cluster: ClusterClient, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    """Return each partition's log start offset, the offset of the first record that can be read."""
    return list_offsets(cluster, dict.fromkeys(partitions, EARLIEST_TIMESTAMP))


def list_latest_offsets(cluster: ClusterClient, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    """Return each partition's high watermark, the offset after the last record visible to consumers."""
    return list_offsets(cluster, dict.fromkeys(partitions, LATEST_TIMESTAMP))


def list_existing_end_offsets(
    cluster: ClusterClient, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, int]:
    """Return the end offsets of the partitions that exist and have a leader. Raise ClientError if a request fails."""
    wanted = set(partitions)
    if not wanted:
        return {}
    leaders = {
        TopicPartition(topic.name or "", each.partition_index)
        for topic in cluster.retry(lambda: cluster.metadata(None)).topics
        for each in topic.partitions
        if each.leader_id >= 0
    }
    return cluster.retry(
        lambda: _list_offsets(cluster, dict.fromkeys(sorted(wanted & leaders), LATEST_TIMESTAMP), skip_deleted=True)
    )


def list_offsets(
    cluster: ClusterClient, timestamps: Mapping[TopicPartition, int], isolation_level: int = 0
) -> dict[TopicPartition, int]:
    """Return, for each partition, the first offset at or after the given timestamp, or -1 if there is none.

    EARLIEST and LATEST are special timestamps. Raises ClientError or KafkaError.
    """
    return cluster.retry(lambda: _list_offsets(cluster, timestamps, isolation_level))


def list_offsets_of_available(
    cluster: ClusterClient, timestamps: Mapping[TopicPartition, int], isolation_level: int = 0
) -> tuple[dict[TopicPartition, int], dict[TopicPartition, ClientError | KafkaError]]:
    """Return the offsets of `list_offsets` in one attempt, and the errors of the partitions that have none."""
    errors: dict[TopicPartition, ClientError | KafkaError] = {}
    return _list_offsets(cluster, timestamps, isolation_level, errors=errors), errors


def find_lost_partitions(cluster: ClusterClient, partitions: Iterable[TopicPartition]) -> set[TopicPartition]:
    """Return the partitions whose leaders report that the partition's data on disk is lost."""
    lost: set[TopicPartition] = set()
    cluster.retry(lambda: _list_offsets(cluster, dict.fromkeys(partitions, LATEST_TIMESTAMP), lost=lost))
    return lost


def _list_offsets(
    cluster: ClusterClient,
    timestamps: Mapping[TopicPartition, int],
    isolation_level: int = 0,
    lost: set[TopicPartition] | None = None,
    skip_deleted: bool = False,
    errors: dict[TopicPartition, ClientError | KafkaError] | None = None,
) -> dict[TopicPartition, int]:
    """Return the offsets. Errors of partitions are added to `errors`, or raised if it is None."""
    found: dict[TopicPartition, int] = {}
    for leader_id, partitions in group_by_leader(cluster, timestamps, skip_deleted=skip_deleted, errors=errors).items():
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
                for topic, indexes in group_by_topic(partitions).items()
            ],
        )
        try:
            response = cluster.broker(leader_id).request(request, ListOffsetsResponse)
        except (ClientError, KafkaError) as error:
            if errors is None:
                raise
            errors |= dict.fromkeys(partitions, error)
            continue
        for topic in response.topics:
            for result in topic.partitions:
                partition = TopicPartition(topic.name, result.partition_index)
                if lost is not None and result.error_code == ErrorCode.KAFKA_STORAGE_ERROR:
                    lost.add(partition)
                    continue
                if skip_deleted and result.error_code in DELETED_TOPIC_ERRORS:
                    continue
                if errors is not None and result.error_code:
                    errors[partition] = KafkaError(ErrorCode(result.error_code), str(partition))
                    continue
                raise_for_code(result.error_code, str(partition))
                found[partition] = result.offset
    return found


def group_by_leader(
    cluster: ClusterClient,
    partitions: Iterable[TopicPartition],
    *,
    skip_deleted: bool = False,
    errors: dict[TopicPartition, ClientError | KafkaError] | None = None,
) -> dict[int, list[TopicPartition]]:
    """Group partitions by the broker that leads them, in the given order.

    Partitions without a leader are added to `errors` if it is given.

    Raises:
        KafkaError: If a partition has no leader, or does not exist and `skip_deleted` is not set.
    """
    leaders: dict[int, list[TopicPartition]] = {}
    for partition in partitions:
        try:
            leaders.setdefault(cluster.leader_id(partition), []).append(partition)
        except KafkaError as error:
            if errors is not None:
                errors[partition] = error
            elif not skip_deleted or error.code not in DELETED_TOPIC_ERRORS:
                raise
    return leaders


def group_by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    indexes: dict[str, list[int]] = {}
    for topic, index in partitions:
        indexes.setdefault(topic, []).append(index)
    return indexes
