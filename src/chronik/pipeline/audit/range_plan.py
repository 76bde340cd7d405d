"""Division of an audit into tasks: ranges of offsets, bundled by size, in rounds after which progress is reported."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from chronik.limits import MIB
from chronik.pipeline.audit.data_directories import get_segment_size
from chronik.pipeline.audit.findings import ReplicaId
from chronik.pipeline.audit.partition_plan import AuditedPartition, AuditedReplica
from chronik.pipeline.audit.slice_scan import CHUNK_OFFSETS, ReplicaSlice
from chronik.pipeline.source.segment_transport import list_segment_files

SLICE_BYTES: Final = 256 * MIB
"""Target size in bytes of the part of a replica's log that one task reads, in less than a second."""

BUNDLE_BYTES_MIN: Final = 16 * MIB
"""Minimum number of bytes that one audit task reads. Small partitions share a task to amortize its startup time."""

BUNDLES_PER_ROUND: Final = 16
"""Target number of tasks per audit round, and so the number of cores that the audit can use in parallel."""

ROUND_BYTES: Final = 2048 * MIB
"""Target number of bytes that the audit reads between two progress reports: a few seconds of work."""

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class AuditRange:
    """Offsets [start, end) of a partition, to be scanned on all replicas."""

    partition: AuditedPartition
    start: int
    end: int
    slices: tuple[ReplicaSlice, ...]
    size_bytes: int


def plan_audit_ranges(partition: AuditedPartition) -> Iterator[AuditRange]:
    """Yield the ranges of a partition to scan, split near the segment boundaries of its largest replica.

    The boundaries are aligned to chunks, for each of which one digest is computed.
    """
    sizes = {replica.node: _list_segment_sizes(replica) for replica in partition.replicas}
    longest = max(sizes.values(), key=lambda each: sum(size for _, size in each), default=[])
    starts = [partition.start]
    bytes_since_start = 0
    for base, size in longest:
        boundary = base // CHUNK_OFFSETS * CHUNK_OFFSETS
        if bytes_since_start >= SLICE_BYTES and starts[-1] < boundary < partition.end:
            starts.append(boundary)
            bytes_since_start = 0
        bytes_since_start += size
    total = sum(size for each in sizes.values() for _, size in each)
    for start, end in zip(starts, [*starts[1:], partition.end], strict=True):
        slices = tuple(_build_replica_slices(partition, start, end))
        if slices and start < end:
            yield AuditRange(partition, start, end, slices, total // len(starts))


def _list_segment_sizes(replica: AuditedReplica) -> list[tuple[int, int]]:
    return [(segment.base_offset, get_segment_size(segment)) for segment in list_segment_files(replica.directory)]


def _build_replica_slices(partition: AuditedPartition, start: int, end: int) -> Iterator[ReplicaSlice]:
    for replica in partition.replicas:
        if replica.end > start:
            yield ReplicaSlice(
                replica_id=ReplicaId(partition.topic, partition.index, replica.node),
                directory=replica.directory,
                start=start,
                end=min(end, replica.end),
                is_compacted=partition.is_compacted,
                is_last=replica.end <= end,
                is_in_sync=replica.is_in_sync,
                has_predecessor=start > partition.start,
            )


def group_into_rounds(work: Iterable[AuditRange]) -> Iterator[list[AuditRange]]:
    """Group ranges into rounds, each of which reads about `ROUND_BYTES`."""
    batch: list[AuditRange] = []
    for stretch in work:
        batch.append(stretch)
        if sum(each.size_bytes for each in batch) >= ROUND_BYTES:
            yield batch
            batch = []
    if batch:
        yield batch


def bundle_items_by_size(items: Sequence[tuple[Item, int]]) -> list[list[Item]]:
    """Group (item, size) pairs in order into bundles of about equal size; each bundle becomes one Spark task."""
    total = sum(size for _, size in items)
    limit = max(BUNDLE_BYTES_MIN, min(SLICE_BYTES, total // BUNDLES_PER_ROUND))
    found: list[list[Item]] = []
    filled = limit
    for item, size in items:
        if filled >= limit:
            found.append([])
            filled = 0
        found[-1].append(item)
        filled += size
    return found
