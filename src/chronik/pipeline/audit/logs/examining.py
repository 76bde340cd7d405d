"""Scan of a slice of one replica, as one audit task: read it, check it and compute digests."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from chronik.pipeline.audit.findings import Finding, Place
from chronik.pipeline.audit.logs.digests import BatchDigests, Digests, RecordDigests
from chronik.pipeline.audit.logs.records import readable_records
from chronik.pipeline.audit.logs.walk import Batch, Event, Walk

FINDINGS_MAX: Final = 100
"""Maximum number of findings per slice."""


@dataclass(frozen=True, slots=True)
class ReplicaSlice:
    """Offsets [start, end) of one replica to scan."""

    place: Place
    folder: str
    start: int
    end: int
    is_compacted: bool
    is_final: bool
    """Whether this is the last slice of the replica."""
    is_in_sync: bool
    is_continued: bool = False
    """Whether another slice ends where this one starts."""


@dataclass(frozen=True, slots=True)
class Examined:
    """The result of scanning one slice of a replica."""

    slice: ReplicaSlice
    start: int
    """The first offset covered by the digests: higher than planned if retention has moved the log start since."""
    reached: int
    digests: Digests
    findings: tuple[Finding, ...]
    batches: int
    records: int
    size_bytes: int


def examine_all(slices: Sequence[ReplicaSlice]) -> list[Examined]:
    return [examine(each) for each in slices]


def examine(slice: ReplicaSlice) -> Examined:
    """Scan a slice of a replica. Findings count only if a second scan confirms them.

    A running node may replace or delete files during the first scan.
    """
    first = _scan_once(slice)
    if not first.findings:
        return first
    again = _scan_once(slice)
    first_keys = {_finding_key(finding) for finding in first.findings}
    return replace(again, findings=tuple(each for each in again.findings if _finding_key(each) in first_keys))


def _finding_key(finding: Finding) -> tuple[object, ...]:
    return finding.kind, finding.offset, finding.end_offset


class _ScanCounters:
    """Counters and findings of one scan."""

    def __init__(self) -> None:
        self.batches = self.records = self.size_bytes = 0
        self.findings: list[Finding] = []

    def add_finding(self, finding: Finding) -> None:
        if len(self.findings) < FINDINGS_MAX:
            self.findings.append(finding)

    def count_batch(self, batch: Batch) -> None:
        self.batches += 1
        self.size_bytes += len(batch.data)


def _scan_once(slice: ReplicaSlice) -> Examined:
    scanner = Walk(
        slice.folder,
        slice.place,
        slice.start,
        slice.end,
        is_compacted=slice.is_compacted,
        is_final=slice.is_final,
        must_reach_end=slice.is_in_sync,
        # A batch across the border is hashed by one slice only; of compacted logs each slice hashes its own records.
        is_continued=slice.is_continued and not slice.is_compacted,
    )
    counters = _ScanCounters()
    digests = _digest_records(scanner, counters) if slice.is_compacted else _digest_batches(scanner, counters)
    return Examined(
        slice,
        scanner.start,
        scanner.due,
        digests,
        tuple(counters.findings),
        counters.batches,
        counters.records,
        counters.size_bytes,
    )


def _digest_batches(scanner: Walk, counters: _ScanCounters) -> Digests:
    digests = BatchDigests(scanner.start)
    for event in scanner:
        if isinstance(event, Finding):
            counters.add_finding(event)
        else:
            counters.count_batch(event)
            counters.records += max(0, event.header.record_count)
            digests.add(event)
    return digests.digests()


def _digest_records(scanner: Walk, counters: _ScanCounters) -> Digests:
    digests = RecordDigests()

    def events() -> Iterator[Event]:
        for event in scanner:
            if isinstance(event, Batch):
                counters.count_batch(event)
            yield event

    for each in readable_records(events(), scanner.place, scanner.start, scanner.end):
        if isinstance(each, Finding):
            counters.add_finding(each)
        else:
            counters.records += len(each)
            digests.add(each)
    return digests.digests()
