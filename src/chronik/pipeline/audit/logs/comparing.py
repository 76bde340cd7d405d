"""What several looks come to: stretches whose digests differ, and findings that say the same. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from chronik.pipeline.audit.findings import Finding, Kind
from chronik.pipeline.audit.logs.digests import CHUNK_OFFSETS
from chronik.pipeline.audit.logs.examining import Examined
from chronik.pipeline.audit.logs.stretches import Stretch


def differing_chunks(stretch: Stretch, examined: Sequence[Examined]) -> Iterator[tuple[int, int]]:
    """Offsets [start, end) of which two replicas have different digests. One that was only read in part, since it ends
    there or its start has moved, is looked at too: what both have of it may still be the same."""
    for chunk in sorted({chunk for each in examined for chunk in each.digests}):
        start, end = chunk * CHUNK_OFFSETS, (chunk + 1) * CHUNK_OFFSETS
        digests = {each.digests.get(chunk) for each in examined if each.start < end and each.slice.end > start}
        if len(digests) > 1:
            yield max(start, stretch.start), min(end, stretch.end)


def merged(own: Iterable[Finding], compared: Iterable[Finding]) -> list[Finding]:
    """What is wrong with a replica by itself, and what is wrong with it beside others: each place is told once.

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
