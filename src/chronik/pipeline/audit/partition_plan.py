"""The partitions to audit: their log start offsets, their ends, and the replicas to compare.

Running brokers report exact high watermarks. Of stopped nodes, only a lower bound is on disk; the end is then the
offset up to which all in-sync replicas agree according to their leader epochs and synced offsets.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

from chronik.client.admin import describe_topic_configs, list_topics
from chronik.client.cluster import ClusterClient
from chronik.client.offsets import list_earliest_offsets, list_latest_offsets
from chronik.client.records import TopicPartition
from chronik.ids import format_id, parse_id
from chronik.log.files.synced_offsets import SyncedOffsets
from chronik.metadata.image import Image
from chronik.pipeline.audit.data_directories import (
    NodeDataDirectory,
    find_divergence_offset,
    has_been_compacted,
    read_leader_epochs,
    read_log_start_offset,
)
from chronik.pipeline.landing.settings import is_landing_enabled
from chronik.protocol.errors import ErrorCode, KafkaError

CLEANUP_POLICY, COMPACT = "cleanup.policy", "compact"

LIST_ATTEMPTS_MAX: Final = 5
"""Maximum number of attempts to list topics and their offsets while topics are deleted concurrently."""


@dataclass(frozen=True, slots=True)
class AuditedReplica:
    """A replica to audit and its data directory."""

    node: int
    directory: str
    end: int
    """Offset up to which this replica's log must match the other replicas."""
    is_in_sync: bool


@dataclass(frozen=True, slots=True)
class AuditedPartition:
    """A partition to audit and its replicas."""

    topic: str
    topic_id: str
    index: int
    leader: int
    start: int
    """The highest log start offset of all replicas, or a later offset from which the audit starts."""
    end: int
    """The high watermark, or a known lower bound of it."""
    is_compacted: bool
    replicas: tuple[AuditedReplica, ...]
    """The replicas whose data directories are available."""
    unavailable_nodes: tuple[int, ...]
    """Nodes that host a replica but whose data directory was not given."""
    should_land: bool = False
    """Whether the topic's configs enable landing, that is, writing the topic to a table."""
    log_start: int | None = None
    """The highest log start offset of all replicas, if the audit starts at a later offset."""

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.index)

    @property
    def leadership(self) -> tuple[object, ...]:
        """Topic id, leader and in-sync replicas, which may change during the audit."""
        return self.topic_id, self.leader, tuple((each.node, each.is_in_sync) for each in self.replicas)

    def reference_replicas(self, suspects: Collection[int] = ()) -> list[AuditedReplica]:
        """Return the complete replicas to compare tables with, the most trusted first.

        The leader's replica comes first, unless it has findings and another replica has none.
        """
        whole = [each for each in self.replicas if each.end >= self.end]
        return sorted(whole, key=lambda each: (each.node in suspects, each.node != self.leader))


@dataclass(frozen=True, slots=True)
class _PartitionDescription:
    """A partition's leader, replicas and end offset, as described by the metadata image or by brokers."""

    topic: str
    topic_id: str
    index: int
    leader: int
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]
    start: int
    end: int | None
    """The high watermark, or None if the partition has no leader that could report it."""
    configs: Mapping[str, str]
    min_end: int = 0
    """The high watermark stored in the metadata, a lower bound of the current one."""


def fetch_audited_partitions(
    cluster: ClusterClient, directories: Mapping[int, NodeDataDirectory], topics: Collection[str] | None
) -> list[AuditedPartition]:
    """Return the partitions of existing topics, as reported by the brokers.

    Raises:
        ClientError: No broker responds.
        KafkaError: A broker rejects a request.
    """
    described = _describe_partitions(cluster, topics)
    synced = {node: directory.read_synced_offsets() for node, directory in directories.items()}
    return [_build_partition(each, directories, synced) for each in described]


def _describe_partitions(cluster: ClusterClient, topics: Collection[str] | None) -> list[_PartitionDescription]:
    attempts = 1
    while True:
        try:
            return _describe_partitions_once(cluster, topics)
        except KafkaError as error:
            if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION or attempts == LIST_ATTEMPTS_MAX:
                raise
        attempts += 1


def _describe_partitions_once(cluster: ClusterClient, topics: Collection[str] | None) -> list[_PartitionDescription]:
    """Fetch a description of the partitions from the brokers, with the ISR before the high watermark.

    A replica that was in sync by then, and still is, therefore has all records below the high watermark.
    """
    wanted = [each for each in list_topics(cluster) if topics is None or each.name in topics]
    led = [
        TopicPartition(topic.name or "", each.partition_index)
        for topic in wanted
        for each in topic.partitions
        if each.leader_id >= 0
    ]
    starts, ends = list_earliest_offsets(cluster, led), list_latest_offsets(cluster, led)
    configs = {topic.name: _fetch_topic_configs(cluster, topic.name or "") for topic in wanted}
    return [
        _PartitionDescription(
            topic=topic.name or "",
            topic_id=format_id(topic.topic_id),
            index=each.partition_index,
            leader=each.leader_id,
            replicas=tuple(each.replica_nodes),
            in_sync=tuple(each.isr_nodes),
            start=starts.get(TopicPartition(topic.name or "", each.partition_index), 0),
            end=ends.get(TopicPartition(topic.name or "", each.partition_index)),
            configs=configs[topic.name],
        )
        for topic in wanted
        for each in sorted(topic.partitions, key=lambda partition: partition.partition_index)
    ]


def _fetch_topic_configs(cluster: ClusterClient, topic: str) -> dict[str, str]:
    return {each.name: each.value for each in describe_topic_configs(cluster, topic) if each.value is not None}


def build_audited_partitions(
    image: Image, directories: Mapping[int, NodeDataDirectory], topics: Collection[str] | None
) -> list[AuditedPartition]:
    described = [
        _PartitionDescription(
            topic=topic.name,
            topic_id=format_id(topic.id),
            index=index,
            leader=partition.leader,
            replicas=partition.replicas,
            in_sync=partition.isr,
            start=partition.log_start_offset,
            end=None,
            min_end=partition.high_watermark,
            configs=topic.configs,
        )
        for topic in sorted(image.topics.values(), key=lambda topic: topic.name)
        if topics is None or topic.name in topics
        for index, partition in enumerate(topic.partitions)
    ]
    synced = {node: directory.read_synced_offsets() for node, directory in directories.items()}
    return [_build_partition(each, directories, synced) for each in described]


def _build_partition(
    described: _PartitionDescription,
    directories: Mapping[int, NodeDataDirectory],
    synced: Mapping[int, SyncedOffsets | None],
) -> AuditedPartition:
    replica_directories = {
        node: directories[node].partition_directory(described.topic_id, described.index)
        for node in described.replicas
        if node in directories
    }
    ends = _find_agreed_end_offsets(described, replica_directories, synced)
    in_sync = [node for node in replica_directories if node in described.in_sync]
    end = described.end
    if end is None:
        end = max(described.min_end, min((ends[node] for node in in_sync or replica_directories), default=0))
    return AuditedPartition(
        topic=described.topic,
        topic_id=described.topic_id,
        index=described.index,
        leader=described.leader,
        start=max([described.start, *(read_log_start_offset(directory) for directory in replica_directories.values())]),
        end=end,
        is_compacted=COMPACT in described.configs.get(CLEANUP_POLICY, "")
        or any(map(has_been_compacted, replica_directories.values())),
        replicas=tuple(
            AuditedReplica(node, directory, end if node in in_sync else min(end, ends[node]), node in in_sync)
            for node, directory in replica_directories.items()
        ),
        unavailable_nodes=tuple(node for node in described.replicas if node not in directories),
        should_land=is_landing_enabled(described.configs),
    )


def _find_agreed_end_offsets(
    described: _PartitionDescription, replica_directories: Mapping[int, str], synced: Mapping[int, SyncedOffsets | None]
) -> dict[int, int]:
    """Return the offset up to which each replica matches the leader's, based on leader epochs and synced offsets."""
    key = parse_id(described.topic_id), described.index
    own_ends = {node: offsets.get(*key) if (offsets := synced[node]) is not None else 0 for node in replica_directories}
    reference = next(
        (node for node in (described.leader, *described.in_sync, *replica_directories) if node in replica_directories),
        None,
    )
    if reference is None:
        return own_ends
    epochs = {node: read_leader_epochs(directory)[0] for node, directory in replica_directories.items()}
    return {
        node: find_divergence_offset(epochs[reference], own_ends[reference], epochs[node], own_ends[node])
        for node in replica_directories
    }
