"""What consumer groups have committed: never beyond what there is to read, and of partitions that exist."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from chronik.client.cluster import Cluster
from chronik.client.groups import committed_offsets, list_groups
from chronik.client.records import TopicPartition
from chronik.metadata.image import Image
from chronik.pipeline.audit.findings import Finding, Kind
from chronik.pipeline.writing.epochs import EPOCHS_TOPIC

GroupOffsets = dict[str, dict[TopicPartition, int]]


class Bounds(NamedTuple):
    """Where a partition that is looked at begins and ends."""

    start: int
    end: int


def told_by_brokers(cluster: Cluster) -> GroupOffsets:
    """To be asked before the ends of partitions: then what is committed can only be below them."""
    return {
        group.group_id: {
            partition: committed.offset for partition, committed in committed_offsets(cluster, group.group_id).items()
        }
        for group in list_groups(cluster)
    }


def of_image(image: Image) -> GroupOffsets:
    return {
        group: {TopicPartition(*key): committed.offset for key, committed in image.offsets(group).items()}
        for group in image.groups_with_offsets()
    }


def compare_groups(
    committed: GroupOffsets, bounds: Mapping[TopicPartition, Bounds], partitions: Mapping[str, int]
) -> Iterator[Finding | str]:
    """Yields findings and notes: a group that is below the log's start has only been slower than retention. What sinks
    commit are epochs, and no positions. `partitions` is how many each topic has."""
    for group, offsets in sorted(committed.items()):
        for partition, offset in sorted(offsets.items()):
            if partition.topic == EPOCHS_TOPIC:
                continue
            if partition.partition >= partitions.get(partition.topic, 0):
                yield _finding(group, partition, offset, "which does not exist")
            elif (known := bounds.get(partition)) is not None:
                if offset < 0 or offset > known.end:
                    yield _finding(group, partition, offset, f"which ends at {known.end}")
                elif offset < known.start:
                    yield (
                        f"group {group} has committed {offset} of {partition}, which begins at {known.start} by now: "
                        "it was slower than retention"
                    )


def _finding(group: str, partition: TopicPartition, offset: int, why: str) -> Finding:
    says = f"group {group} has committed offset {offset} of {partition}, {why}"
    return Finding(Kind.COMMITTED_OFFSET, says, partition.topic, partition.partition, offset=offset)
