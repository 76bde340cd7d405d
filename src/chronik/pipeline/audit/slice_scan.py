"""Scan of a slice of one replica, as one audit task: read it, check it and compute digests.

Equal digests mean equal records, without transferring the records. A chunk is `CHUNK_OFFSETS` consecutive offsets,
aligned to multiples of its size. The digest of an uncompacted log covers the bytes of the batches that start in the
chunk, including leader epochs. Replicas compact independently, so the digest of a compacted log covers the remaining
records, regardless of their batches.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from chronik.pipeline.audit.batch_scanner import BatchScanner, CheckedBatch, ScanEvent, decode_valid_batches
from chronik.pipeline.audit.findings import Finding, ReplicaId
from chronik.pipeline.records.columns import RecordColumns

CHUNK_OFFSETS: Final = 16_384
"""Number of offsets that one digest covers. A chunk is small enough to read again quickly if its digests differ."""

DIGEST_BYTES: Final = 16

Digests = dict[int, bytes]
"""Digests of the data in each chunk of a replica's log, by chunk number."""

FINDINGS_MAX: Final = 100
"""Maximum number of findings per slice."""


class BatchDigests:
    """A digest per chunk of offsets, computed from the stored batches of a log that is not compacted."""

    def __init__(self, start: int) -> None:
        self._start = start
        self._hashes: dict[int, Any] = {}

    def add(self, batch: CheckedBatch) -> None:
        chunk = max(batch.header.base_offset, self._start) // CHUNK_OFFSETS
        known = self._hashes.get(chunk)
        if known is None:
            known = self._hashes[chunk] = hashlib.sha256()
        known.update(batch.data)

    def digests(self) -> Digests:
        return {chunk: each.digest()[:DIGEST_BYTES] for chunk, each in self._hashes.items()}


class RecordDigests:
    """A digest per chunk of offsets, computed from a compacted log's records regardless of their batch boundaries."""

    def __init__(self) -> None:
        self._hashes: dict[int, list[Any]] = {}

    def add(self, records: RecordColumns) -> None:
        offsets = records.offset.to_numpy()
        chunks = offsets // CHUNK_OFFSETS
        for chunk in np.unique(chunks):
            first, end = np.searchsorted(chunks, (chunk, chunk + 1))
            within = (None if each is None else each.slice(first, end - first) for each in records)
            self._add(int(chunk), RecordColumns(*within))

    def _add(self, chunk: int, records: RecordColumns) -> None:
        streams = [
            stream_part for column in records if column is not None for stream_part in _build_column_streams(column)
        ]
        hashes = self._hashes.get(chunk)
        if hashes is None:
            hashes = self._hashes[chunk] = [hashlib.sha256() for _ in streams]
        for each, stream in zip(hashes, streams, strict=True):
            each.update(stream)

    def digests(self) -> Digests:
        return {
            chunk: hashlib.sha256(b"".join(each.digest() for each in hashes)).digest()[:DIGEST_BYTES]
            for chunk, hashes in self._hashes.items()
        }


def _build_column_streams(column: pa.Array) -> list[bytes | memoryview]:
    """Return the byte streams of an Arrow column to hash: the lengths (-1 for null) and contents, or the numbers."""
    if pa.types.is_list(column.type):
        # Few records have headers, so encoding them one by one is fast enough.
        return [b"".join(f"{each!r};".encode() for each in column.to_pylist())]
    if not pa.types.is_binary(column.type):
        return [_view_as_bytes(column.to_numpy())]
    lengths = np.diff(np.frombuffer(column.buffers()[1], np.int32)[column.offset : column.offset + len(column) + 1])
    if column.null_count:
        lengths = np.where(column.is_null().to_numpy(zero_copy_only=False), -1, lengths)
    return [_view_as_bytes(lengths.astype(np.int32)), _get_column_bytes(column)]


def _view_as_bytes(numbers: npt.NDArray[Any]) -> memoryview:
    return np.ascontiguousarray(numbers).data.cast("B")


def _get_column_bytes(column: pa.Array) -> memoryview:
    _, ends, data = column.buffers()
    if data is None or ends is None:
        return memoryview(b"")
    bounds = np.frombuffer(ends, np.int32)
    return memoryview(data)[bounds[column.offset] : bounds[column.offset + len(column)]]


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
    """The first offset covered by the digests. It exceeds the planned start if the log start offset has moved."""
    end: int
    digests: Digests
    findings: tuple[Finding, ...]
    batches: int
    records: int
    size_bytes: int


def scan_slices(slices: Sequence[ReplicaSlice]) -> list[SliceScan]:
    return [scan_slice(each) for each in slices]


def scan_slice(slice: ReplicaSlice) -> SliceScan:
    """Scan a slice of a replica. Findings are reported only if a second scan confirms them.

    A running node may replace or delete files during the first scan.
    """
    first = _scan_slice_once(slice)
    if not first.findings:
        return first
    again = _scan_slice_once(slice)
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


def _scan_slice_once(slice: ReplicaSlice) -> SliceScan:
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
