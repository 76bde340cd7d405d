"""The work of an audit, cut into tasks: stretches of offsets that all replicas are read by, bundled so that each task
is worth starting, in rounds so that there is progress to show. Pure, but for the sizes of files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from chronik.limits import MIB
from chronik.pipeline.audit.findings import Place
from chronik.pipeline.audit.folders import size_of
from chronik.pipeline.audit.logs.digests import CHUNK_OFFSETS
from chronik.pipeline.audit.logs.examining import ReplicaSlice
from chronik.pipeline.audit.standing import Partition, Replica
from chronik.pipeline.reading.segment_files import segments_of

SLICE_BYTES: Final = 256 * MIB
"""What one task reads of one replica: less than a second of work."""

BUNDLE_BYTES_MIN: Final = 16 * MIB
"""Small partitions share a task: below it starting one takes longer than its work."""

BUNDLES_PER_ROUND: Final = 16
"""While there is enough to do, any number of cores up to it finds work in every round."""

ROUND_BYTES: Final = 2048 * MIB
"""Read between two signs of life: a few seconds."""

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class Stretch:
    """Offsets [start, end) of a partition, as all its replicas have them."""

    partition: Partition
    start: int
    end: int
    slices: tuple[ReplicaSlice, ...]
    size_bytes: int


def stretches(partition: Partition) -> Iterator[Stretch]:
    """Cuts where a segment of the longest replica begins; a chunk is never cut, so that all count the same ones."""
    sizes = {replica.node: _sizes(replica) for replica in partition.replicas}
    longest = max(sizes.values(), key=lambda each: sum(size for _, size in each), default=[])
    cuts = [partition.start]
    since = 0
    for base, size in longest:
        cut = base // CHUNK_OFFSETS * CHUNK_OFFSETS
        if since >= SLICE_BYTES and cuts[-1] < cut < partition.end:
            cuts.append(cut)
            since = 0
        since += size
    total = sum(size for each in sizes.values() for _, size in each)
    for start, end in zip(cuts, [*cuts[1:], partition.end], strict=True):
        slices = tuple(_slices(partition, start, end))
        if slices and start < end:
            yield Stretch(partition, start, end, slices, total // len(cuts))


def _sizes(replica: Replica) -> list[tuple[int, int]]:
    return [(segment.base_offset, size_of(segment)) for segment in segments_of(replica.folder)]


def _slices(partition: Partition, start: int, end: int) -> Iterator[ReplicaSlice]:
    for replica in partition.replicas:
        if replica.end > start:
            yield ReplicaSlice(
                place=Place(partition.topic, partition.index, replica.node),
                folder=replica.folder,
                start=start,
                end=min(end, replica.end),
                is_compacted=partition.is_compacted,
                is_final=replica.end <= end,
                is_in_sync=replica.is_in_sync,
                is_continued=start > partition.start,
            )


def rounds(work: Iterable[Stretch]) -> Iterator[list[Stretch]]:
    gathered: list[Stretch] = []
    for stretch in work:
        gathered.append(stretch)
        if sum(each.size_bytes for each in gathered) >= ROUND_BYTES:
            yield gathered
            gathered = []
    if gathered:
        yield gathered


def bundles(items: Sequence[tuple[Item, int]]) -> list[list[Item]]:
    """Puts items with their sizes, in order, into bundles of about equal size."""
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
