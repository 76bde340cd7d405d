"""Where the digests of replicas differ: which batch, which record, which byte, and on which node.

The replicas are read again, only there. What most of them hold is taken for right; where they are even, what the leader
holds.
"""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Final, NamedTuple

from chronik.pipeline.audit.findings import Finding, Kind, Place
from chronik.pipeline.audit.logs.walk import Batch, Walk
from chronik.pipeline.audit.standing import Replica
from chronik.protocol.batch import HEADER_BYTES
from chronik.protocol.errors import KafkaError
from chronik.protocol.records import Record, decode_batch

DIFFERENCES_MAX: Final = 5
"""Differences that are told of one chunk and node: the first says where it begins, some more what it looks like."""

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
"""The fields of a batch's header, by the position after each."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """Offsets of a partition of which the replicas do not hold the same."""

    topic: str
    partition: int
    leader: int
    start: int
    end: int
    replicas: tuple[Replica, ...]
    is_continued: bool = False
    """The partition begins before it."""


class _Kept(NamedTuple):
    base_offset: int
    next_offset: int
    size: int
    digest: bytes
    file: str
    position: int

    @property
    def span(self) -> str:
        return f"{self.base_offset} to {self.next_offset - 1}"


_Key = tuple[int, int]
"""A batch by its base offset, and how often that has come before."""


def narrow(chunk: Chunk) -> list[Finding]:
    """Finds what is different: nothing, when a node has only deleted meanwhile what others still have."""
    end = min([chunk.end, *(each.end for each in chunk.replicas)])
    held = {each.node: _kept(chunk, each, end) for each in chunk.replicas}
    start = max((start for start, _ in held.values()), default=chunk.start)
    batches = {
        node: {key: kept for key, kept in found.items() if kept.next_offset > start}
        for node, (_, found) in held.items()
    }
    findings: list[Finding] = []
    told: Counter[int] = Counter()
    for key in sorted({key for found in batches.values() for key in found}):
        here = {node: found.get(key) for node, found in batches.items()}
        digests = {node: None if kept is None else kept.digest for node, kept in here.items()}
        if len(set(digests.values())) == 1:
            continue
        right = _right(digests, chunk.leader)
        for node, digest in digests.items():
            if digest != digests[right[0]]:
                told[node] += 1
                if told[node] <= DIFFERENCES_MAX:
                    findings.append(_difference(chunk, node, here[node], here[right[0]], right))
    return findings


def _kept(chunk: Chunk, replica: Replica, end: int) -> tuple[int, dict[_Key, _Kept]]:
    """Returns where the walk began, and what it met."""
    place = Place(chunk.topic, chunk.partition, replica.node)
    walk = Walk(
        replica.folder,
        place,
        chunk.start,
        end,
        is_compacted=True,
        is_final=False,
        must_reach_end=False,
        is_continued=chunk.is_continued,
    )
    seen: Counter[int] = Counter()
    found: dict[_Key, _Kept] = {}
    for event in walk:
        if isinstance(event, Batch):
            base = event.header.base_offset
            digest = hashlib.sha256(event.data).digest()
            kept = _Kept(base, event.header.next_offset, len(event.data), digest, event.file, event.position)
            found[base, seen[base]] = kept
            seen[base] += 1
    return walk.start, found


def _right(digests: Mapping[int, bytes | None], leader: int) -> list[int]:
    """Returns the nodes that hold what is taken for right."""
    alike: dict[bytes | None, list[int]] = {}
    for node, digest in digests.items():
        alike.setdefault(digest, []).append(node)
    return max(alike.values(), key=lambda nodes: (len(nodes), leader in nodes, digests[nodes[0]] is not None))


def _difference(chunk: Chunk, node: int, here: _Kept | None, there: _Kept | None, right: Sequence[int]) -> Finding:
    place, others = Place(chunk.topic, chunk.partition, node), named(right)
    if here is None:
        assert there is not None
        says = f"the batch with offsets {there.span}, which {others} have, is not here"
        return place.finding(Kind.DIVERGED, says, offset=there.base_offset, end_offset=there.next_offset)
    end, file = here.next_offset, here.file
    if there is None:
        says = f"the batch with offsets {here.span} is not what {others} have"
        first, position = here.base_offset, here.position
        return place.finding(Kind.DIVERGED, says, offset=first, end_offset=end, file=file, position=position)
    ours, theirs = _read(here), _read(there)
    at = _first_different(ours, theirs)
    offset, what = _which(ours, theirs, here, at)
    found = ", ".join(f"0x{data[at]:02x}" if at < len(data) else "nothing" for data in (ours, theirs))
    says = f"{what} is not what {others} have (the first byte that differs: {found} there)"
    position = here.position + at
    return place.finding(Kind.DIVERGED, says, offset=offset, end_offset=end, file=file, position=position)


def _first_different(ours: bytes, theirs: bytes) -> int:
    """Looks in the records first, if they differ: then the checksum before them says only that they do."""
    for start in (HEADER_BYTES, 0):
        pairs = enumerate(zip_longest(ours[start:], theirs[start:]), start)
        at = next((number for number, (mine, other) in pairs if mine != other), None)
        if at is not None:
            return at
    return 0


def _read(kept: _Kept) -> bytes:
    """Returns nothing when the file has gone meanwhile."""
    try:
        with open(kept.file, "rb", buffering=0) as file:
            return os.pread(file.fileno(), kept.size, kept.position)
    except FileNotFoundError:
        return b""


def _which(ours: bytes, theirs: bytes, here: _Kept, at: int) -> tuple[int, str]:
    """Returns the offset, and what of it is different."""
    batch = f"the batch with offsets {here.span}"
    try:
        for mine, other in zip_longest(decode_batch(ours), decode_batch(theirs)):
            if mine != other:
                return _which_record(mine, other)
    except KafkaError:
        return here.base_offset, f"{batch}: its content"
    field = next((name for end, name in _FIELDS if at < end), "content")
    return here.base_offset, f"{batch}: its {field}"


def _which_record(mine: Record | None, other: Record | None) -> tuple[int, str]:
    if mine is None or other is None:
        record = mine or other
        assert record is not None
        return record.offset, f"the record at offset {record.offset}"
    if mine.offset != other.offset:
        return min(mine.offset, other.offset), f"the record at offset {min(mine.offset, other.offset)}"
    parts = [name for name in ("key", "value", "timestamp", "headers") if getattr(mine, name) != getattr(other, name)]
    return mine.offset, f"the record at offset {mine.offset}: its {' and '.join(parts)}"


def named(nodes: Sequence[int]) -> str:
    return f"node{'s' if len(nodes) > 1 else ''} {', '.join(map(str, sorted(nodes)))}"
