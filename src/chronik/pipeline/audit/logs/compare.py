"""The logs of all replicas, seen from the driver: read in rounds of tasks, compared by their digests, and looked at
once more where these differ."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from chronik.client.records import TopicPartition
from chronik.pipeline.audit.findings import Finding, Kind
from chronik.pipeline.audit.logs.digests import CHUNK_OFFSETS
from chronik.pipeline.audit.logs.examining import Examined, examine_all
from chronik.pipeline.audit.logs.narrowing import Chunk, narrow
from chronik.pipeline.audit.logs.stretches import Stretch, bundles, rounds, stretches
from chronik.pipeline.audit.logs.surviving import Compacted, compare_survivors
from chronik.pipeline.audit.standing import Partition
from chronik.pipeline.spark.tasks import Tasks

CHUNKS_NARROWED_MAX: Final = 20
"""Chunks of one partition: where replicas have nothing in common, the first ones say so."""

Progress = Callable[[str, int, int], None]
"""What is being done, how much of it, and out of how much: bytes of logs, then tables."""

Differing = dict[TopicPartition, list[tuple[int, int]]]


def in_silence(what: str, done: int, total: int) -> None:
    return


@dataclass(slots=True)
class LogsCompared:
    findings: list[Finding] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    batches: int = 0
    records: int = 0
    size_bytes: int = 0

    def count(self, examined: Examined) -> None:
        self.batches += examined.batches
        self.records += examined.records
        self.size_bytes += examined.size_bytes


def compare_logs(tasks: Tasks, partitions: Sequence[Partition], progress: Progress = in_silence) -> LogsCompared:
    compared = LogsCompared()
    work = [stretch for partition in partitions for stretch in stretches(partition)]
    total, done = sum(each.size_bytes for each in work), 0
    own: list[Finding] = []
    differing: Differing = {}
    for some in rounds(work):
        for stretch, examined in _examined(tasks, some):
            for each in examined:
                compared.count(each)
                own += each.findings
            chunks = list(differing_chunks(stretch, examined))
            if chunks:
                differing.setdefault(stretch.partition.source, []).extend(chunks)
        done += sum(each.size_bytes for each in some)
        progress("logs", done, total)
    compared.findings = merged(own, _narrowed(tasks, partitions, differing))
    for source, chunks in differing.items():
        if len(chunks) > CHUNKS_NARROWED_MAX and any(each.topic == source.topic for each in compared.findings):
            compared.notes.append(f"{source}: digests differ in {len(chunks)} stretches of offsets in all")
    return compared


def _examined(tasks: Tasks, some: Sequence[Stretch]) -> Iterator[tuple[Stretch, list[Examined]]]:
    slices = [(each, stretch.size_bytes // len(stretch.slices)) for stretch in some for each in stretch.slices]
    results = iter([each for bundle in tasks(examine_all, bundles(slices)) for each in bundle])
    for stretch in some:
        yield stretch, [next(results) for _ in stretch.slices]


def _narrowed(tasks: Tasks, partitions: Sequence[Partition], differing: Differing) -> list[Finding]:
    plain: list[Chunk] = []
    compacted: list[Compacted] = []
    for partition in partitions:
        chunks = differing.get(partition.source, [])
        if not chunks:
            continue
        if partition.is_compacted:
            compacted.append(Compacted(*partition.source, partition.leader, partition.replicas, tuple(chunks)))
            continue
        for start, end in chunks[:CHUNKS_NARROWED_MAX]:
            reaching = tuple(each for each in partition.replicas if each.end > start)
            is_continued = start > partition.start
            plain.append(Chunk(*partition.source, partition.leader, start, end, reaching, is_continued))
    found = [finding for each in tasks(narrow, plain) for finding in each]
    return found + [finding for each in tasks(compare_survivors, compacted) for finding in each]


# What several looks come to


def differing_chunks(stretch: Stretch, examined: Sequence[Examined]) -> Iterator[tuple[int, int]]:
    """Yields offsets [start, end) of which two replicas have different digests. A chunk that was only read in part,
    since a log ends there or its start has moved, is looked at too: what both have of it may still be the same."""
    for chunk in sorted({chunk for each in examined for chunk in each.digests}):
        start, end = chunk * CHUNK_OFFSETS, (chunk + 1) * CHUNK_OFFSETS
        digests = {each.digests.get(chunk) for each in examined if each.start < end and each.slice.end > start}
        if len(digests) > 1:
            yield max(start, stretch.start), min(end, stretch.end)


def merged(own: Iterable[Finding], compared: Iterable[Finding]) -> list[Finding]:
    """Joins what is wrong with a replica by itself, and what is wrong with it beside others: each place is told once.

    That the checksum of a batch is wrong is told by its replica, and which byte it is by the others."""
    found = list(dict.fromkeys(own))
    for finding in dict.fromkeys(compared):
        number = next((number for number, each in enumerate(found) if _is_same(each, finding)), None)
        if number is None:
            found.append(finding)
        elif found[number].kind is Kind.CHECKSUM and finding.position is not None:
            says = f"{found[number].says}; byte {finding.position} is the first that differs from other nodes"
            found[number] = replace(found[number], says=says, position=finding.position)
    return found


def _is_same(own: Finding, other: Finding) -> bool:
    if (own.topic, own.partition, own.node) != (other.topic, other.partition, other.node) or other.offset is None:
        return False
    in_place = own.file == other.file and own.position is not None and own.position == other.position
    return own.covers(other.offset) or in_place
