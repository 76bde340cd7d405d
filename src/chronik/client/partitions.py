"""Partition administration: reassign partitions, throttle replication, elect leaders, and restart lost partitions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from chronik.client.admin import list_topics
from chronik.client.cluster import ClusterClient, raise_for_code
from chronik.client.configs import (
    BROKER_RESOURCE,
    DYNAMIC_DEFAULT_BROKER_CONFIG,
    DYNAMIC_TOPIC_CONFIG,
    TOPIC_RESOURCE,
    ConfigTarget,
    alter_configs,
    describe_configs,
)
from chronik.client.records import TopicPartition
from chronik.protocol.errors import ErrorCode, KafkaError
from chronik.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from chronik.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from chronik.protocol.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse, TopicPartitions
from chronik.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)

PREFERRED_ELECTION, UNCLEAN_ELECTION = 0, 1

HIGH_WATERMARK_OFFSET = -1

RejectedPartitions = dict[TopicPartition, KafkaError]

THROTTLED_REPLICAS_KEYS: Final = ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas")
THROTTLED_RATE_KEYS: Final = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
ALL_BROKERS: Final = ConfigTarget(BROKER_RESOURCE, "")
ALL_REPLICAS: Final = "*"
"""Value of the topic config that applies the replication throttle to all replicas.

Replicas in sync are not throttled.
"""

EXPLICIT_SOURCES: Final = (DYNAMIC_TOPIC_CONFIG, DYNAMIC_DEFAULT_BROKER_CONFIG)


@dataclass(frozen=True)
class PartitionReassignment:
    """An ongoing reassignment of one partition."""

    partition: TopicPartition
    replicas: list[int]
    adding: list[int]
    removing: list[int]


def restart_lost_partition(cluster: ClusterClient, partition: TopicPartition) -> int:
    """Restart a partition whose leader has lost its data, and accept the loss. Return the offset where it continues.

    Use only for lost partitions: on any other partition, this deletes all records. Raises ClientError, KafkaError.
    """
    wanted = DeleteRecordsPartition(partition_index=partition.partition, offset=HIGH_WATERMARK_OFFSET)
    topic = DeleteRecordsTopic(name=partition.topic, partitions=[wanted])
    request = DeleteRecordsRequest(topics=[topic], timeout_ms=int(cluster.timeout_s * 1000))
    [result] = cluster.leader(partition).request(request, DeleteRecordsResponse).topics[0].partitions
    raise_for_code(result.error_code, str(partition))
    return result.low_watermark


def reassign_partitions(
    cluster: ClusterClient, wanted: Mapping[TopicPartition, Sequence[int] | None]
) -> RejectedPartitions:
    """Start the reassignment of partitions to the given brokers. None cancels a partition's reassignment.

    Return the rejected partitions.
    """
    request = AlterPartitionReassignmentsRequest(
        timeout_ms=int(cluster.timeout_s * 1000),
        topics=[
            ReassignableTopic(
                name=partition.topic,
                partitions=[
                    ReassignablePartition(
                        partition_index=partition.partition, replicas=None if replicas is None else list(replicas)
                    )
                ],
            )
            for partition, replicas in wanted.items()
        ],
    )
    response = cluster.retry(lambda: cluster.controller().request(request, AlterPartitionReassignmentsResponse))
    raise_for_code(response.error_code, "reassignment", response.error_message)
    return _list_rejected_partitions(
        (topic.name, each.partition_index, each.error_code, each.error_message)
        for topic in response.responses
        for each in topic.partitions
    )


def list_reassignments(cluster: ClusterClient) -> list[PartitionReassignment]:
    """Return the ongoing reassignments of all topics."""
    request = ListPartitionReassignmentsRequest()
    response = cluster.retry(lambda: cluster.controller().request(request, ListPartitionReassignmentsResponse))
    raise_for_code(response.error_code, "reassignments", response.error_message)
    moves = [
        PartitionReassignment(
            TopicPartition(topic.name, each.partition_index),
            each.replicas,
            each.adding_replicas,
            each.removing_replicas,
        )
        for topic in response.topics
        for each in topic.partitions
    ]
    return sorted(moves, key=lambda move: move.partition)


def elect_leaders(
    cluster: ClusterClient, wanted: Iterable[TopicPartition] | None, *, unclean: bool = False
) -> dict[TopicPartition, KafkaError | None]:
    """Elect leaders and return the error of each partition, or None where the election succeeded.

    If `wanted` is None, all partitions are eligible, and only those that needed an election are returned.
    """
    request = ElectLeadersRequest(
        election_type=UNCLEAN_ELECTION if unclean else PREFERRED_ELECTION,
        topic_partitions=None
        if wanted is None
        else [TopicPartitions(topic=each.topic, partitions=[each.partition]) for each in wanted],
        timeout_ms=int(cluster.timeout_s * 1000),
    )
    response = cluster.retry(lambda: cluster.controller().request(request, ElectLeadersResponse))
    raise_for_code(response.error_code, "election")
    results = [
        (topic.topic, each.partition_id, each.error_code, each.error_message)
        for topic in response.replica_election_results
        for each in topic.partition_result
    ]
    rejected = _list_rejected_partitions(results)
    asked = [TopicPartition(topic, index) for topic, index, _, _ in results]
    cluster.invalidate_metadata()
    return {partition: rejected.get(partition) for partition in sorted(asked)}


def _list_rejected_partitions(results: Iterable[tuple[str, int, int, str | None]]) -> RejectedPartitions:
    return {
        TopicPartition(topic, index): KafkaError(ErrorCode(code), message)
        for topic, index, code, message in results
        if code
    }


def set_replication_throttle(cluster: ClusterClient, topics: Iterable[str], bytes_per_s: int) -> None:
    """Limit the rate, in bytes per second, at which each broker replicates out-of-sync replicas of the topics."""
    changes = {
        ConfigTarget(TOPIC_RESOURCE, topic): dict.fromkeys(THROTTLED_REPLICAS_KEYS, ALL_REPLICAS)
        for topic in sorted(set(topics))
    }
    rates = {ALL_BROKERS: dict.fromkeys(THROTTLED_RATE_KEYS, str(bytes_per_s))}
    alter_configs(cluster, {**rates, **changes}, skip_deleted=True)


def clear_replication_throttle(cluster: ClusterClient) -> bool:
    """Remove the replication throttle from all topics and brokers. Return whether a throttle was set."""
    resources = [ALL_BROKERS, *(ConfigTarget(TOPIC_RESOURCE, topic.name or "") for topic in list_topics(cluster))]
    found = describe_configs(cluster, resources, [*THROTTLED_REPLICAS_KEYS, *THROTTLED_RATE_KEYS], skip_deleted=True)
    changes = {}
    for resource, configs in found.items():
        if names := [config.name for config in configs if config.config_source in EXPLICIT_SOURCES]:
            changes[resource] = dict.fromkeys(names)
    alter_configs(cluster, changes, skip_deleted=True)
    return bool(changes)
