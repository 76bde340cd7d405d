"""What there is to look at: the partitions, where each begins and ends, and who holds them.

Running brokers are asked; of stopped ones the metadata on their disks tells. A broker's high watermark is exact. On
disk it is written down now and then only: there a partition ends where all replicas that count as in sync agree, by the
rule of leader epochs, up to what they had synced.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

from chronik.client.admin import describe_topic_configs, list_topics
from chronik.client.cluster import Cluster
from chronik.client.offsets import earliest_offsets, latest_offsets
from chronik.client.records import TopicPartition
from chronik.ids import format_id, parse_id
from chronik.log.files.synced import SyncedOffsets
from chronik.metadata.image import Image
from chronik.pipeline.audit.folders import NodeFolder, agreed_end, epochs_of, log_start_of, was_compacted
from chronik.pipeline.landing.settings import is_enabled
from chronik.protocol.errors import ErrorCode, KafkaError

POLICY, COMPACT = "cleanup.policy", "compact"

LOOKS_MAX: Final = 5
"""How often topics are listed again because one is deleted between being listed and asked for its offsets. That takes
milliseconds: so often in a row it is something else."""


@dataclass(frozen=True, slots=True)
class Replica:
    node: int
    folder: str
    end: int
    """Up to here it must hold what the others hold."""
    is_in_sync: bool


@dataclass(frozen=True, slots=True)
class Partition:
    topic: str
    topic_id: str
    index: int
    leader: int
    start: int
    """The highest start of any replica's log."""
    end: int
    """The high watermark, or as much of it as is known."""
    is_compacted: bool
    replicas: tuple[Replica, ...]
    """Those whose folders are there."""
    unseen: tuple[int, ...]
    """Nodes that hold a replica, and whose folder was not given."""
    lands: bool = False
    """Whether it does by its topic's configs."""

    @property
    def source(self) -> TopicPartition:
        return TopicPartition(self.topic, self.index)

    @property
    def roles(self) -> tuple[object, ...]:
        """Who leads, and who is in sync: what may change while a partition is looked at."""
        return self.topic_id, self.leader, tuple((each.node, each.is_in_sync) for each in self.replicas)

    def references(self, suspects: Collection[int] = ()) -> list[Replica]:
        """Returns the whole replicas to compare tables with: the leader's first, unless something was found wrong with
        it and not with another."""
        whole = [each for each in self.replicas if each.end >= self.end]
        return sorted(whole, key=lambda each: (each.node in suspects, each.node != self.leader))


@dataclass(frozen=True, slots=True)
class _Described:
    """A partition as the metadata has it."""

    topic: str
    topic_id: str
    index: int
    leader: int
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]
    start: int
    end: int | None
    """None: nobody leads it, so that nobody can be asked."""
    configs: Mapping[str, str]
    end_min: int = 0
    """The high watermark as it was last written down."""


def told_by_brokers(
    cluster: Cluster, folders: Mapping[int, NodeFolder], topics: Collection[str] | None
) -> list[Partition]:
    """Returns those of topics that exist; one may be deleted meanwhile. Raises ClientError, KafkaError."""
    described = _described(cluster, topics)
    synced = {node: folder.synced() for node, folder in folders.items()}
    return [_standing(each, folders, synced) for each in described]


def _described(cluster: Cluster, topics: Collection[str] | None) -> list[_Described]:
    looks = 1
    while True:
        try:
            return _described_now(cluster, topics)
        except KafkaError as error:
            if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION or looks == LOOKS_MAX:
                raise
        looks += 1


def _described_now(cluster: Cluster, topics: Collection[str] | None) -> list[_Described]:
    """Who is in sync is asked before the high watermark: whoever is both has everything below it."""
    wanted = [each for each in list_topics(cluster) if topics is None or each.name in topics]
    led = [
        TopicPartition(topic.name or "", each.partition_index)
        for topic in wanted
        for each in topic.partitions
        if each.leader_id >= 0
    ]
    starts, ends = earliest_offsets(cluster, led), latest_offsets(cluster, led)
    configs = {topic.name: _configs(cluster, topic.name or "") for topic in wanted}
    return [
        _Described(
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


def _configs(cluster: Cluster, topic: str) -> dict[str, str]:
    return {each.name: each.value for each in describe_topic_configs(cluster, topic) if each.value is not None}


def of_image(image: Image, folders: Mapping[int, NodeFolder], topics: Collection[str] | None) -> list[Partition]:
    described = [
        _Described(
            topic=topic.name,
            topic_id=format_id(topic.id),
            index=index,
            leader=partition.leader,
            replicas=partition.replicas,
            in_sync=partition.isr,
            start=partition.log_start_offset,
            end=None,
            end_min=partition.high_watermark,
            configs=topic.configs,
        )
        for topic in sorted(image.topics.values(), key=lambda topic: topic.name)
        if topics is None or topic.name in topics
        for index, partition in enumerate(topic.partitions)
    ]
    synced = {node: folder.synced() for node, folder in folders.items()}
    return [_standing(each, folders, synced) for each in described]


def _standing(
    described: _Described, folders: Mapping[int, NodeFolder], synced: Mapping[int, SyncedOffsets | None]
) -> Partition:
    held = {
        node: folders[node].partition(described.topic_id, described.index)
        for node in described.replicas
        if node in folders
    }
    ends = _ends(described, held, synced)
    in_sync = [node for node in held if node in described.in_sync]
    end = described.end
    if end is None:
        end = max(described.end_min, min((ends[node] for node in in_sync or held), default=0))
    return Partition(
        topic=described.topic,
        topic_id=described.topic_id,
        index=described.index,
        leader=described.leader,
        start=max([described.start, *(log_start_of(folder) for folder in held.values())]),
        end=end,
        is_compacted=COMPACT in described.configs.get(POLICY, "") or any(map(was_compacted, held.values())),
        replicas=tuple(
            Replica(node, folder, end if node in in_sync else min(end, ends[node]), node in in_sync)
            for node, folder in held.items()
        ),
        unseen=tuple(node for node in described.replicas if node not in folders),
        lands=is_enabled(described.configs),
    )


def _ends(described: _Described, held: Mapping[int, str], synced: Mapping[int, SyncedOffsets | None]) -> dict[int, int]:
    """Returns up to where each replica is the same as the leader's, by what is on disk."""
    key = parse_id(described.topic_id), described.index
    own = {node: offsets.get(*key) if (offsets := synced[node]) is not None else 0 for node in held}
    first = next((node for node in (described.leader, *described.in_sync, *held) if node in held), None)
    if first is None:
        return own
    epochs = {node: epochs_of(folder)[0] for node, folder in held.items()}
    return {node: agreed_end(epochs[first], own[first], epochs[node], own[node]) for node in held}
