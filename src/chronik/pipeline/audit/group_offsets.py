"""Check of committed offsets: groups must not commit beyond the end of a partition or for unknown partitions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from chronik.client.cluster import ClusterClient
from chronik.client.groups import list_committed_offsets, list_groups
from chronik.client.records import TopicPartition
from chronik.metadata.image import Image
from chronik.pipeline.audit.findings import Finding, FindingKind
from chronik.pipeline.sink.exactly_once import EPOCHS_TOPIC

GroupOffsets = dict[str, dict[TopicPartition, int]]


class LogBounds(NamedTuple):
    """The log start offset and the end offset of a partition."""

    start: int
    end: int


def fetch_group_offsets(cluster: ClusterClient) -> GroupOffsets:
    """Return the committed offsets of all groups, as reported by the brokers.

    Call it before the ends of partitions are fetched: committed offsets can then only be below them.
    """
    return {
        group.group_id: {
            partition: committed.offset
            for partition, committed in list_committed_offsets(cluster, group.group_id).items()
        }
        for group in list_groups(cluster)
    }


def extract_group_offsets(image: Image) -> GroupOffsets:
    return {
        group: {TopicPartition(*key): committed.offset for key, committed in image.offsets(group).items()}
        for group in image.iter_groups_with_offsets()
    }


def check_group_offsets(
    committed: GroupOffsets, bounds: Mapping[TopicPartition, LogBounds], partitions: Mapping[str, int]
) -> Iterator[Finding | str]:
    """Yield findings for invalid offsets committed by consumer groups, and notes for those below the log start.

    `partitions` is the number of partitions of each topic. Offsets of the epochs topic are skipped: they are epoch
    numbers of the exactly-once sink, not positions.
    """
    for group, offsets in sorted(committed.items()):
        for partition, offset in sorted(offsets.items()):
            if partition.topic == EPOCHS_TOPIC:
                continue
            if partition.partition >= partitions.get(partition.topic, 0):
                yield _build_finding(group, partition, offset, "a partition that does not exist")
            elif (limits := bounds.get(partition)) is not None:
                if offset < 0 or offset > limits.end:
                    yield _build_finding(group, partition, offset, f"which ends at {limits.end}")
                elif offset < limits.start:
                    yield (
                        f"group {group}: committed offset {offset} of {partition} is below the log start offset "
                        f"{limits.start}; retention deleted records before the group read them"
                    )


def _build_finding(group: str, partition: TopicPartition, offset: int, why: str) -> Finding:
    says = f"group {group} has committed offset {offset} for {partition}, {why}"
    return Finding(FindingKind.COMMITTED_OFFSET, says, partition.topic, partition.partition, offset=offset)
