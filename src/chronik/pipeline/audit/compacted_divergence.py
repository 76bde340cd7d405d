"""Comparison of a compacted partition's replicas, which compact independently of each other.

They agree if records at the same offset are equal, and if each record that only some replicas have is superseded by a
later record with the same key. (Tombstones and records without a key may be dropped in any case.)

Only chunks with different digests are compared; the log is read again for the keys in question. Keys are kept as 64-bit
hashes, a bounded number at a time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from chronik.pipeline.audit.batch_scanner import BatchScanner, decode_valid_batches
from chronik.pipeline.audit.divergence import format_nodes
from chronik.pipeline.audit.findings import Finding, FindingKind, ReplicaId
from chronik.pipeline.audit.partition_plan import AuditedReplica
from chronik.pipeline.records.columns import RecordColumns

KEYS_MAX: Final = 2_000_000
"""Maximum number of missing records to collect before their keys are searched in the log. They use about 50 MB of
memory."""

FINDINGS_MAX: Final = 20

OFFSET_LIMIT: Final = 2**62
"""End offset for reading a log to its end, including records appended after the audit was planned."""

Int64Array = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class CompactedComparisonTask:
    """A task to compare the replicas of a compacted partition in the chunks whose digests differ."""

    topic: str
    partition: int
    leader: int
    replicas: tuple[AuditedReplica, ...]
    chunks: tuple[tuple[int, int], ...]
    """Offset ranges whose digests differ between the replicas."""


class _ReplicaRecords(NamedTuple):
    """The records of one replica's log in a range of offsets, as hashes of their keys and contents."""

    start: int
    end: int
    """Exclusive end of the offset range that was read."""
    offsets: Int64Array
    contents: Int64Array
    keys: Int64Array
    droppable: npt.NDArray[np.bool_]
    """Whether compaction may remove each record even if no later record has the same key."""


class _MissingRecords(NamedTuple):
    """The records that one replica lacks although another replica of the partition has them."""

    node: int
    offsets: Int64Array
    keys: Int64Array


def compare_compacted_replicas(task: CompactedComparisonTask) -> list[Finding]:
    """Compare the replicas of a compacted partition and return findings where their records conflict."""
    findings: list[Finding] = []
    missing: list[_MissingRecords] = []
    for start, end in task.chunks:
        held = {each.node: _read_records(task, each, start, min(end, each.end)) for each in task.replicas}
        findings += _find_different_records(task, held)
        missing += _find_missing_records(held)
        if sum(len(each.offsets) for each in missing) >= KEYS_MAX:
            findings += _find_unsuperseded_records(task, missing)
            missing = []
    findings += _find_unsuperseded_records(task, missing)
    return findings[:FINDINGS_MAX]


def _scan_record_columns(
    task: CompactedComparisonTask, replica: AuditedReplica, start: int, end: int
) -> tuple[BatchScanner, Iterator[RecordColumns]]:
    replica_id = ReplicaId(task.topic, task.partition, replica.node)
    scanner = BatchScanner(
        replica.directory, replica_id, start, end, is_compacted=True, is_last=False, must_reach_end=False
    )
    read = decode_valid_batches(scanner, replica_id, start, end)
    return scanner, (each for each in read if isinstance(each, RecordColumns))


def _read_records(task: CompactedComparisonTask, replica: AuditedReplica, start: int, end: int) -> _ReplicaRecords:
    scanner, columns = _scan_record_columns(task, replica, start, end)
    parts = [
        (each.offset.to_numpy(), _hash_contents(each), _hash_keys(each), _compute_droppable_mask(each))
        for each in columns
    ]
    empty = np.empty(0, np.int64)
    if not parts:
        return _ReplicaRecords(scanner.start, min(end, scanner.next_offset), empty, empty, empty, np.empty(0, np.bool_))
    return _ReplicaRecords(
        scanner.start, min(end, scanner.next_offset), *(np.concatenate(column) for column in zip(*parts, strict=True))
    )


def _hash_contents(records: RecordColumns) -> Int64Array:
    assert records.key is not None
    assert records.value is not None
    assert records.headers is not None
    rows = zip(
        records.timestamp_ms.to_pylist(),
        records.key.to_pylist(),
        records.value.to_pylist(),
        map(repr, records.headers.to_pylist()),
        strict=True,
    )
    return np.fromiter(map(hash, rows), np.int64, len(records))


def _hash_keys(records: RecordColumns) -> Int64Array:
    assert records.key is not None
    return np.fromiter(map(hash, records.key.to_pylist()), np.int64, len(records))


def _compute_droppable_mask(records: RecordColumns) -> npt.NDArray[np.bool_]:
    assert records.key is not None
    assert records.value is not None
    nulls = [each.is_null().to_numpy(zero_copy_only=False) for each in (records.key, records.value)]
    dropped: npt.NDArray[np.bool_] = nulls[0] | nulls[1]
    return dropped


def _find_different_records(task: CompactedComparisonTask, held: dict[int, _ReplicaRecords]) -> Iterator[Finding]:
    """Yield findings for offsets at which replicas have different records."""
    contents: dict[int, dict[int, int]] = {}
    for node, records in held.items():
        for offset, content in zip(records.offsets.tolist(), records.contents.tolist(), strict=True):
            contents.setdefault(offset, {})[node] = content
    for offset, by_node in sorted(contents.items()):
        if len(set(by_node.values())) < 2:
            continue
        counts = list(by_node.values())
        majority = max(by_node, key=lambda node: (counts.count(by_node[node]), node == task.leader))
        others = [node for node in by_node if by_node[node] == by_node[majority]]
        for node in by_node:
            if node not in others:
                says = f"the record at offset {offset} differs from {format_nodes(others)}"
                yield ReplicaId(task.topic, task.partition, node).make_finding(
                    FindingKind.DIVERGED, says, offset=offset
                )


def _find_missing_records(held: dict[int, _ReplicaRecords]) -> Iterator[_MissingRecords]:
    """Yield the records that one replica lacks and another has, except those that compaction may always remove."""
    start = max(records.start for records in held.values())
    for node, lacking in held.items():
        for other, having in held.items():
            if other == node:
                continue
            absent = ~np.isin(having.offsets, lacking.offsets) & ~having.droppable
            absent &= (having.offsets >= start) & (having.offsets < lacking.end)
            if absent.any():
                yield _MissingRecords(node, having.offsets[absent], having.keys[absent])


def _find_unsuperseded_records(task: CompactedComparisonTask, missing: list[_MissingRecords]) -> Iterator[Finding]:
    """Yield a finding for each missing record that was the last one with its key, and so must not be missing."""
    if not missing:
        return
    wanted = np.unique(np.concatenate([each.keys for each in missing]))
    first = min(int(each.offsets.min()) for each in missing)
    last = _find_last_offsets_of_keys(task, wanted, first)
    reported: set[tuple[int, int]] = set()
    for lacking_replica in missing:
        superseded = last[np.searchsorted(wanted, lacking_replica.keys)] > lacking_replica.offsets
        for offset in lacking_replica.offsets[~superseded].tolist():
            if (lacking_replica.node, offset) not in reported:
                reported.add((lacking_replica.node, offset))
                says = (
                    f"the record at offset {offset} is missing, although it is the last of its key and others have it"
                )
                replica_id = ReplicaId(task.topic, task.partition, lacking_replica.node)
                yield replica_id.make_finding(FindingKind.DIVERGED, says, offset=offset)


def _find_last_offsets_of_keys(task: CompactedComparisonTask, wanted: Int64Array, first: int) -> Int64Array:
    """Return the offset of the last record with each key, over all replicas of the partition."""
    last = np.full(len(wanted), -1, np.int64)
    for replica in task.replicas:
        _, columns = _scan_record_columns(task, replica, first, OFFSET_LIMIT)
        for records in columns:
            keys = _hash_keys(records)
            indexes = np.minimum(np.searchsorted(wanted, keys), len(wanted) - 1)
            found = wanted[indexes] == keys
            np.maximum.at(last, indexes[found], records.offset.to_numpy()[found])
    return last
