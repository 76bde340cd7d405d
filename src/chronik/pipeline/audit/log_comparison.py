"""Comparison of all replicas' logs, driver side: scan them in rounds of tasks, compare digests, locate differences.

`range_plan` splits the work into tasks, of which `slice_scan` is one. It checks the batches of one replica
(`batch_scanner`) and computes digests, so that replicas can be compared by a few bytes. `divergence` (for compacted
partitions `compacted_divergence`) locates the differences down to the record and byte.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from chronik.client.records import TopicPartition
from chronik.pipeline.audit.compacted_divergence import CompactedComparisonTask, compare_compacted_replicas
from chronik.pipeline.audit.divergence import DivergentChunk, locate_differences
from chronik.pipeline.audit.findings import Finding, FindingKind
from chronik.pipeline.audit.partition_plan import AuditedPartition
from chronik.pipeline.audit.range_plan import AuditRange, bundle_items_by_size, group_into_rounds, plan_audit_ranges
from chronik.pipeline.audit.slice_scan import CHUNK_OFFSETS, SliceScan, scan_slices
from chronik.pipeline.spark.tasks import TaskRunner

CHUNKS_LOCATED_MAX: Final = 20
"""Maximum number of differing chunks per partition in which the audit searches for the exact differences."""

AuditProgressCallback = Callable[[str, int, int], None]
"""A callback that reports progress: the kind of data (`logs` or `tables`), the amount processed and the total
amount."""

DifferingChunks = dict[TopicPartition, list[tuple[int, int]]]
"""Offset ranges [start, end) in which the replicas of a partition differ, by partition."""


def ignore_progress(what: str, done: int, total: int) -> None:
    """Do nothing. This is the default progress callback."""
    return


@dataclass(slots=True)
class LogComparison:
    """The result of comparing the logs of all replicas."""

    findings: list[Finding] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    batches: int = 0
    records: int = 0
    size_bytes: int = 0

    def add_scan_counts(self, examined: SliceScan) -> None:
        self.batches += examined.batches
        self.records += examined.records
        self.size_bytes += examined.size_bytes


def compare_logs(
    tasks: TaskRunner, partitions: Sequence[AuditedPartition], progress: AuditProgressCallback = ignore_progress
) -> LogComparison:
    compared = LogComparison()
    work = [stretch for partition in partitions for stretch in plan_audit_ranges(partition)]
    total, done = sum(each.size_bytes for each in work), 0
    replica_findings: list[Finding] = []
    differing: DifferingChunks = {}
    for batch in group_into_rounds(work):
        for stretch, examined in _scan_audit_ranges(tasks, batch):
            for each in examined:
                compared.add_scan_counts(each)
                replica_findings += each.findings
            chunks = list(find_differing_chunks(stretch, examined))
            if chunks:
                differing.setdefault(stretch.partition.topic_partition, []).extend(chunks)
        done += sum(each.size_bytes for each in batch)
        progress("logs", done, total)
    compared.findings = merge_findings(replica_findings, _locate_differences(tasks, partitions, differing))
    for source, chunks in differing.items():
        if len(chunks) > CHUNKS_LOCATED_MAX and any(each.topic == source.topic for each in compared.findings):
            compared.notes.append(f"{source}: digests differ in a total of {len(chunks)} chunks of offsets")
    return compared


def _scan_audit_ranges(tasks: TaskRunner, batch: Sequence[AuditRange]) -> Iterator[tuple[AuditRange, list[SliceScan]]]:
    slices = [(each, stretch.size_bytes // len(stretch.slices)) for stretch in batch for each in stretch.slices]
    results = iter([each for bundle in tasks(scan_slices, bundle_items_by_size(slices)) for each in bundle])
    for stretch in batch:
        yield stretch, [next(results) for _ in stretch.slices]


def _locate_differences(
    tasks: TaskRunner, partitions: Sequence[AuditedPartition], differing: DifferingChunks
) -> list[Finding]:
    plain: list[DivergentChunk] = []
    compacted: list[CompactedComparisonTask] = []
    for partition in partitions:
        chunks = differing.get(partition.topic_partition, [])
        if not chunks:
            continue
        if partition.is_compacted:
            compacted.append(
                CompactedComparisonTask(*partition.topic_partition, partition.leader, partition.replicas, tuple(chunks))
            )
            continue
        for start, end in chunks[:CHUNKS_LOCATED_MAX]:
            reaching = tuple(each for each in partition.replicas if each.end > start)
            is_continued = start > partition.start
            plain.append(
                DivergentChunk(*partition.topic_partition, partition.leader, start, end, reaching, is_continued)
            )
    found = [finding for each in tasks(locate_differences, plain) for finding in each]
    return found + [finding for each in tasks(compare_compacted_replicas, compacted) for finding in each]


# Merging results


def find_differing_chunks(stretch: AuditRange, examined: Sequence[SliceScan]) -> Iterator[tuple[int, int]]:
    """Yield the offset ranges in which the digests of the partition's replicas differ.

    It includes chunks that a replica has only in part, because its log ends or now starts there. The part that both
    have may still be equal.
    """
    for chunk in sorted({chunk for each in examined for chunk in each.digests}):
        start, end = chunk * CHUNK_OFFSETS, (chunk + 1) * CHUNK_OFFSETS
        digests = {each.digests.get(chunk) for each in examined if each.start < end and each.slice.end > start}
        if len(digests) > 1:
            yield max(start, stretch.start), min(end, stretch.end)


def merge_findings(replica_findings: Iterable[Finding], compared: Iterable[Finding]) -> list[Finding]:
    """Merge the findings of single replicas and of replica comparisons, keeping one finding per location.

    A wrong checksum is found in the replica itself; the comparison adds the position of the differing byte.
    """
    found = list(dict.fromkeys(replica_findings))
    for finding in dict.fromkeys(compared):
        number = next((number for number, each in enumerate(found) if _is_same_location(each, finding)), None)
        if number is None:
            found.append(finding)
        elif found[number].kind is FindingKind.CHECKSUM and finding.position is not None:
            says = f"{found[number].says}; byte {finding.position} is the first that differs from the other nodes"
            found[number] = replace(found[number], says=says, position=finding.position)
    return found


def _is_same_location(replica_findings: Finding, other: Finding) -> bool:
    if (replica_findings.topic, replica_findings.partition, replica_findings.node) != (
        other.topic,
        other.partition,
        other.node,
    ) or other.offset is None:
        return False
    in_place = (
        replica_findings.file == other.file
        and replica_findings.position is not None
        and replica_findings.position == other.position
    )
    return replica_findings.covers(other.offset) or in_place
