"""Start positions for `consume --from`: parsed from the command line, then resolved to offsets."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from chronik.cli.arguments import InvalidInput, check_int64, parse_timestamp_ms
from chronik.client.cluster import ClusterClient
from chronik.client.consumer import Consumer
from chronik.client.offsets import list_earliest_offsets, list_offsets
from chronik.client.records import TopicPartition

Offsets = dict[TopicPartition, int]

SEARCH_GROWTH_FACTOR: Final = 4
"""Factor by which the searched offset range grows until it contains the last `count` records."""


@dataclass(frozen=True)
class StartAtEarliest:
    """The start position at the earliest offset of each partition."""


@dataclass(frozen=True)
class StartAtLatest:
    """The start position at the end offset of each partition, before new records."""


@dataclass(frozen=True)
class StartAtLastRecords:
    """The start position before the last `count` records of each partition."""

    count: int


@dataclass(frozen=True)
class StartAtTimestamp:
    """The start position at the first record of each partition at or after a timestamp."""

    timestamp: int


@dataclass(frozen=True)
class StartAtOffset:
    """The start position at the same offset in each partition."""

    offset: int


StartPosition = StartAtEarliest | StartAtLatest | StartAtLastRecords | StartAtTimestamp | StartAtOffset
NAMED_POSITIONS: Final[dict[str, StartPosition]] = {
    "start": StartAtEarliest(),
    "end": StartAtLatest(),
    "earliest": StartAtEarliest(),  # earliest and latest are Kafka's terms, beginning is kcat's
    "latest": StartAtLatest(),
    "beginning": StartAtEarliest(),
}


def parse_start_position(text: str) -> StartPosition:
    """Parse a start position; raise InvalidInput if it is invalid."""
    if text in NAMED_POSITIONS:
        return NAMED_POSITIONS[text]
    if text.startswith("@"):
        return StartAtTimestamp(
            max(0, parse_timestamp_ms(text[1:]))
        )  # negative timestamps have special meanings in ListOffsets
    try:
        if re.fullmatch(r"-?[0-9]+", text):
            number = check_int64(int(text))
            return StartAtLastRecords(-number) if text.startswith("-") else StartAtOffset(number)
    except ValueError:
        pass
    raise InvalidInput(f"--from {text!r}: expected start, end, -N (the last N), @TIME or an offset")


def resolve_start_offsets(start: StartPosition, cluster: ClusterClient, ends: Offsets) -> Offsets:
    """Resolve a start position to the start offset of each partition."""
    match start:
        case StartAtEarliest():
            return list_earliest_offsets(cluster, ends)
        case StartAtLatest():
            return ends
        case StartAtLastRecords(count):
            return _resolve_last_records(cluster, count, ends)
        case StartAtTimestamp(timestamp):
            found = list_offsets(cluster, dict.fromkeys(ends, timestamp))
            return {each: found[each] if found[each] >= 0 else end for each, end in ends.items()}
        case StartAtOffset(offset):
            return dict.fromkeys(ends, offset)


def _resolve_last_records(cluster: ClusterClient, count: int, ends: Offsets) -> Offsets:
    """Return the offset in each partition from which `count` records follow.

    Records are read, as offsets have gaps.
    """
    if not count:
        return ends
    starts = list_earliest_offsets(cluster, ends)
    found = {each: start for each, start in starts.items() if ends[each] - start <= count}
    width = count
    while unknown := [each for each in ends if each not in found]:
        start_offsets = {each: max(starts[each], ends[each] - width) for each in unknown}
        for each, offsets in _find_last_offsets(cluster, count, start_offsets, ends).items():
            if len(offsets) == count or start_offsets[each] == starts[each]:
                found[each] = offsets[0] if offsets else ends[each]
        width *= SEARCH_GROWTH_FACTOR
    return found


def _find_last_offsets(
    cluster: ClusterClient, count: int, start_offsets: Offsets, ends: Mapping[TopicPartition, int]
) -> dict[TopicPartition, deque[int]]:
    """Return the offsets of the last `count` records of each partition.

    If there are fewer, return those of all records.
    """
    seen: dict[TopicPartition, deque[int]] = {each: deque(maxlen=count) for each in start_offsets}
    for record in Consumer(cluster, start_offsets).read_until(ends):
        seen[TopicPartition(record.topic, record.partition)].append(record.offset)
    return seen
