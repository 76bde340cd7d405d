"""One task of an audit: a stretch of one replica, read, checked and summed up."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from chronik.pipeline.audit.findings import Finding, Place
from chronik.pipeline.audit.logs.digests import BatchDigests, Digests, RecordDigests
from chronik.pipeline.audit.logs.records import readable_records
from chronik.pipeline.audit.logs.walk import Batch, Event, Walk

FINDINGS_MAX: Final = 100
"""Findings of one stretch: where everything is wrong, the first hundred say so."""


@dataclass(frozen=True, slots=True)
class ReplicaSlice:
    """The offsets [start, end) of one replica."""

    place: Place
    folder: str
    start: int
    end: int
    is_compacted: bool
    is_final: bool
    """Nothing of the partition is looked at after it."""
    is_in_sync: bool
    is_continued: bool = False
    """Another slice ends where this one begins."""


@dataclass(frozen=True, slots=True)
class Examined:
    slice: ReplicaSlice
    start: int
    """Where the digests begin: later than planned when retention has moved the log's start meanwhile."""
    reached: int
    digests: Digests
    findings: tuple[Finding, ...]
    batches: int
    records: int
    size_bytes: int


def examine_all(slices: Sequence[ReplicaSlice]) -> list[Examined]:
    return [examine(each) for each in slices]


def examine(slice: ReplicaSlice) -> Examined:
    """A finding counts when it is there at a second look: a node that is running exchanges and removes files."""
    first = _examine(slice)
    if not first.findings:
        return first
    again = _examine(slice)
    seen = {_what(finding) for finding in first.findings}
    return replace(again, findings=tuple(each for each in again.findings if _what(each) in seen))


def _what(finding: Finding) -> tuple[object, ...]:
    return finding.kind, finding.offset, finding.end_offset


class _Tally:
    """Counts what passes, whatever becomes of it."""

    def __init__(self) -> None:
        self.batches = self.records = self.size_bytes = 0
        self.findings: list[Finding] = []

    def found(self, finding: Finding) -> None:
        if len(self.findings) < FINDINGS_MAX:
            self.findings.append(finding)

    def saw(self, batch: Batch) -> None:
        self.batches += 1
        self.size_bytes += len(batch.data)


def _examine(slice: ReplicaSlice) -> Examined:
    walk = Walk(
        slice.folder,
        slice.place,
        slice.start,
        slice.end,
        is_compacted=slice.is_compacted,
        is_final=slice.is_final,
        must_reach_end=slice.is_in_sync,
        # Each slice takes its own records of a batch that reaches across the border, but only one takes the batch.
        is_continued=slice.is_continued and not slice.is_compacted,
    )
    tally = _Tally()
    digests = _of_records(walk, tally) if slice.is_compacted else _of_batches(walk, tally)
    return Examined(
        slice, walk.start, walk.due, digests, tuple(tally.findings), tally.batches, tally.records, tally.size_bytes
    )


def _of_batches(walk: Walk, tally: _Tally) -> Digests:
    digests = BatchDigests(walk.start)
    for event in walk:
        if isinstance(event, Finding):
            tally.found(event)
        else:
            tally.saw(event)
            tally.records += max(0, event.header.record_count)
            digests.add(event)
    return digests.digests()


def _of_records(walk: Walk, tally: _Tally) -> Digests:
    digests = RecordDigests()

    def events() -> Iterator[Event]:
        for event in walk:
            if isinstance(event, Batch):
                tally.saw(event)
            yield event

    for each in readable_records(events(), walk.place, walk.start, walk.end):
        if isinstance(each, Finding):
            tally.found(each)
        else:
            tally.records += len(each)
            digests.add(each)
    return digests.digests()
