"""Location of differences between replicas: which batch, record and byte differs, and on which node.

Only chunks with different digests are read again. The version that most replicas have is considered correct; in case of
a tie, the leader's version.
"""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Final, NamedTuple

from chronik.pipeline.audit.batch_scanner import BatchScanner, CheckedBatch
from chronik.pipeline.audit.findings import Finding, FindingKind, ReplicaId
from chronik.pipeline.audit.partition_plan import AuditedReplica
from chronik.protocol.batch import HEADER_BYTES
from chronik.protocol.errors import KafkaError
from chronik.protocol.records import Record, decode_batch

DIFFERENCES_MAX: Final = 5
"""Maximum number of differences reported per chunk and node."""

_FIELDS: Final = (
    (8, "base offset"),
    (12, "length"),
    (16, "leader epoch"),
    (17, "magic"),
    (21, "checksum"),
    (23, "attributes"),
    (27, "last offset delta"),
    (35, "base timestamp"),
    (43, "largest timestamp"),
    (51, "producer id"),
    (53, "producer epoch"),
    (57, "base sequence"),
    (HEADER_BYTES, "number of records"),
)
"""The fields of a batch header, each with the byte position of its end."""


@dataclass(frozen=True, slots=True)
class DivergentChunk:
    """A range of offsets in which the replicas of a partition have different data, as their digests show."""

    topic: str
    partition: int
    leader: int
    start: int
    end: int
    replicas: tuple[AuditedReplica, ...]
    has_predecessor: bool = False
    """Whether the partition has earlier chunks, that is, this chunk does not start at the log start offset."""


class _StoredBatch(NamedTuple):
    """The digest of a record batch, and its location in the replica's segment file."""

    base_offset: int
    next_offset: int
    size: int
    digest: bytes
    file: str
    position: int

    @property
    def offsets_text(self) -> str:
        return f"{self.base_offset} to {self.next_offset - 1}"


_BatchKey = tuple[int, int]
"""Key to match batches of several replicas: the base offset, and the number of earlier batches with this base
offset."""


def locate_differences(chunk: DivergentChunk) -> list[Finding]:
    """Compare the replicas' batches in a chunk of offsets, and return a finding for each difference.

    There are none if a replica has only deleted records that others still have.
    """
    end = min([chunk.end, *(each.end for each in chunk.replicas)])
    held = {each.node: _scan_replica(chunk, each, end) for each in chunk.replicas}
    start = max((start for start, _ in held.values()), default=chunk.start)
    batches = {
        node: {key: stored for key, stored in found.items() if stored.next_offset > start}
        for node, (_, found) in held.items()
    }
    findings: list[Finding] = []
    reported: Counter[int] = Counter()
    for key in sorted({key for found in batches.values() for key in found}):
        here = {node: found.get(key) for node, found in batches.items()}
        digests = {node: None if stored is None else stored.digest for node, stored in here.items()}
        if len(set(digests.values())) == 1:
            continue
        majority = _find_majority_nodes(digests, chunk.leader)
        for node, digest in digests.items():
            if digest != digests[majority[0]]:
                reported[node] += 1
                if reported[node] <= DIFFERENCES_MAX:
                    findings.append(_describe_difference(chunk, node, here[node], here[majority[0]], majority))
    return findings


def _scan_replica(
    chunk: DivergentChunk, replica: AuditedReplica, end: int
) -> tuple[int, dict[_BatchKey, _StoredBatch]]:
    """Scan one replica's batches in a chunk; return the offset at which the scan started, and the batches found."""
    replica_id = ReplicaId(chunk.topic, chunk.partition, replica.node)
    scanner = BatchScanner(
        replica.directory,
        replica_id,
        chunk.start,
        end,
        is_compacted=True,
        is_last=False,
        must_reach_end=False,
        has_predecessor=chunk.has_predecessor,
    )
    seen: Counter[int] = Counter()
    found: dict[_BatchKey, _StoredBatch] = {}
    for event in scanner:
        if isinstance(event, CheckedBatch):
            base = event.header.base_offset
            digest = hashlib.sha256(event.data).digest()
            stored = _StoredBatch(base, event.header.next_offset, len(event.data), digest, event.file, event.position)
            found[base, seen[base]] = stored
            seen[base] += 1
    return scanner.start, found


def _find_majority_nodes(digests: Mapping[int, bytes | None], leader: int) -> list[int]:
    """Return the nodes with the most common version of a batch; the leader's version wins a tie."""
    alike: dict[bytes | None, list[int]] = {}
    for node, digest in digests.items():
        alike.setdefault(digest, []).append(node)
    return max(alike.values(), key=lambda nodes: (len(nodes), leader in nodes, digests[nodes[0]] is not None))


def _describe_difference(
    chunk: DivergentChunk, node: int, here: _StoredBatch | None, there: _StoredBatch | None, majority: Sequence[int]
) -> Finding:
    replica_id, others = ReplicaId(chunk.topic, chunk.partition, node), format_nodes(majority)
    if here is None:
        assert there is not None
        says = f"the batch with offsets {there.offsets_text} is missing; {others} have it"
        return replica_id.make_finding(
            FindingKind.DIVERGED, says, offset=there.base_offset, end_offset=there.next_offset
        )
    end, file = here.next_offset, here.file
    if there is None:
        says = f"the batch with offsets {here.offsets_text} does not exist on {others}"
        first, position = here.base_offset, here.position
        return replica_id.make_finding(
            FindingKind.DIVERGED, says, offset=first, end_offset=end, file=file, position=position
        )
    ours, theirs = _read_batch(here), _read_batch(there)
    at = _find_first_differing_byte(ours, theirs)
    offset, what = _describe_differing_part(ours, theirs, here, at)
    found = ", ".join(f"0x{data[at]:02x}" if at < len(data) else "nothing" for data in (ours, theirs))
    says = f"{what} differs from {others} (first differing byte: {found} there)"
    position = here.position + at
    return replica_id.make_finding(
        FindingKind.DIVERGED, says, offset=offset, end_offset=end, file=file, position=position
    )


def _find_first_differing_byte(ours: bytes, theirs: bytes) -> int:
    """Return the position of the first byte in which two batches differ, searching the records before the header.

    If records differ, the checksum in the header differs too, but says nothing more.
    """
    for start in (HEADER_BYTES, 0):
        pairs = enumerate(zip_longest(ours[start:], theirs[start:]), start)
        at = next((number for number, (mine, other) in pairs if mine != other), None)
        if at is not None:
            return at
    return 0


def _read_batch(stored: _StoredBatch) -> bytes:
    """Read a batch from its file; return empty bytes if the file has been deleted."""
    try:
        with open(stored.file, "rb", buffering=0) as file:
            return os.pread(file.fileno(), stored.size, stored.position)
    except FileNotFoundError:
        return b""


def _describe_differing_part(ours: bytes, theirs: bytes, here: _StoredBatch, at: int) -> tuple[int, str]:
    """Return the affected offset, and a description of the header field or record that differs."""
    batch = f"the batch with offsets {here.offsets_text}"
    try:
        for mine, other in zip_longest(decode_batch(ours), decode_batch(theirs)):
            if mine != other:
                return _describe_differing_record(mine, other)
    except KafkaError:
        return here.base_offset, f"{batch}: its content"
    field = next((name for end, name in _FIELDS if at < end), "content")
    return here.base_offset, f"{batch}: its {field}"


def _describe_differing_record(mine: Record | None, other: Record | None) -> tuple[int, str]:
    if mine is None or other is None:
        record = mine or other
        assert record is not None
        return record.offset, f"the record at offset {record.offset}"
    if mine.offset != other.offset:
        return min(mine.offset, other.offset), f"the record at offset {min(mine.offset, other.offset)}"
    parts = [name for name in ("key", "value", "timestamp", "headers") if getattr(mine, name) != getattr(other, name)]
    return mine.offset, f"the record at offset {mine.offset}: its {' and '.join(parts)}"


def format_nodes(nodes: Sequence[int]) -> str:
    return f"node{'s' if len(nodes) > 1 else ''} {', '.join(map(str, sorted(nodes)))}"
