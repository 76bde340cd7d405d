"""Scan of a slice of one replica, as one audit task: read it, check it and compute digests."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from chronik.pipeline.audit.findings import Finding, ReplicaId
from chronik.pipeline.audit.logs.batch_decoder import decode_valid_batches
from chronik.pipeline.audit.logs.batch_scanner import BatchScanner, CheckedBatch, ScanEvent
from chronik.pipeline.audit.logs.digests import BatchDigests, Digests, RecordDigests

FINDINGS_MAX: Final = 100
"""Maximum number of findings per slice."""


@dataclass(frozen=True, slots=True)
class ReplicaSlice:
    """Offsets [start, end) of one replica to scan."""

    replica_id: ReplicaId
    directory: str
    start: int
    end: int
    is_compacted: bool
    is_last: bool
    """Whether this is the last slice of the replica."""
    is_in_sync: bool
    has_predecessor: bool = False
    """Whether another slice ends where this one starts."""


@dataclass(frozen=True, slots=True)
class SliceScan:
    """The result of scanning one slice of a replica."""

    slice: ReplicaSlice
    start: int
    """The first offset covered by the digests: higher than planned if retention has moved the log start since."""
    end: int
    digests: Digests
    findings: tuple[Finding, ...]
    batches: int
    records: int
    size_bytes: int


def scan_slices(slices: Sequence[ReplicaSlice]) -> list[SliceScan]:
    return [scan_slice(each) for each in slices]


def scan_slice(slice: ReplicaSlice) -> SliceScan:
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

    def count_batch(self, batch: CheckedBatch) -> None:
        self.batches += 1
        self.size_bytes += len(batch.data)


def _scan_once(slice: ReplicaSlice) -> SliceScan:
    scanner = BatchScanner(
        slice.directory,
        slice.replica_id,
        slice.start,
        slice.end,
        is_compacted=slice.is_compacted,
        is_last=slice.is_last,
        must_reach_end=slice.is_in_sync,
        # A batch across the border is hashed by one slice only; of compacted logs each slice hashes its own records.
        has_predecessor=slice.has_predecessor and not slice.is_compacted,
    )
    counters = _ScanCounters()
    digests = _digest_records(scanner, counters) if slice.is_compacted else _digest_batches(scanner, counters)
    return SliceScan(
        slice,
        scanner.start,
        scanner.next_offset,
        digests,
        tuple(counters.findings),
        counters.batches,
        counters.records,
        counters.size_bytes,
    )


def _digest_batches(scanner: BatchScanner, counters: _ScanCounters) -> Digests:
    digests = BatchDigests(scanner.start)
    for event in scanner:
        if isinstance(event, Finding):
            counters.add_finding(event)
        else:
            counters.count_batch(event)
            counters.records += max(0, event.header.record_count)
            digests.add(event)
    return digests.digests()


def _digest_records(scanner: BatchScanner, counters: _ScanCounters) -> Digests:
    digests = RecordDigests()

    def events() -> Iterator[ScanEvent]:
        for event in scanner:
            if isinstance(event, CheckedBatch):
                counters.count_batch(event)
            yield event

    for each in decode_valid_batches(events(), scanner.replica_id, scanner.start, scanner.end):
        if isinstance(each, Finding):
            counters.add_finding(each)
        else:
            counters.records += len(each)
            digests.add(each)
    return digests.digests()
