"""Start positions for `consume --from`: parsed from the command line, then resolved to offsets."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from chronik.cli.arguments import WrongInput
from chronik.cli.records.moments import milliseconds, within_int64
from chronik.client.cluster import Cluster
from chronik.client.consumer import Consumer
from chronik.client.offsets import earliest_offsets, list_offsets
from chronik.client.records import TopicPartition

Offsets = dict[TopicPartition, int]

SEARCH_GROWTH_FACTOR: Final = 4
"""Factor by which the searched offset range grows while it has too few records."""


@dataclass(frozen=True)
class Beginning:
    """The earliest offset of each partition."""


@dataclass(frozen=True)
class End:
    """The end offset of each partition."""


@dataclass(frozen=True)
class Last:
    """The last records of each partition."""

    count: int


@dataclass(frozen=True)
class Since:
    """The first record of each partition at or after a timestamp."""

    timestamp: int


@dataclass(frozen=True)
class Offset:
    """The same offset in each partition."""

    offset: int


Start = Beginning | End | Last | Since | Offset
NAMED_POSITIONS: Final[dict[str, Start]] = {
    "start": Beginning(),
    "end": End(),
    "earliest": Beginning(),  # earliest and latest are Kafka's terms, beginning is kcat's
    "latest": End(),
    "beginning": Beginning(),
}


def parse_start(text: str) -> Start:
    """Parse a start position; raise InvalidInput if it is invalid."""
    if text in NAMED_POSITIONS:
        return NAMED_POSITIONS[text]
    if text.startswith("@"):
        return Since(max(0, milliseconds(text[1:])))  # negative timestamps have special meanings in ListOffsets
    try:
        if re.fullmatch(r"-?[0-9]+", text):
            number = within_int64(int(text))
            return Last(-number) if text.startswith("-") else Offset(number)
    except ValueError:
        pass
    raise WrongInput(f"--from {text!r}: expected start, end, -N (the last N), @TIME or an offset")


def offsets_of(start: Start, cluster: Cluster, ends: Offsets) -> Offsets:
    """Return the start offsets of the partitions."""
    match start:
        case Beginning():
            return earliest_offsets(cluster, ends)
        case End():
            return ends
        case Last(count):
            return _resolve_last(cluster, count, ends)
        case Since(timestamp):
            found = list_offsets(cluster, dict.fromkeys(ends, timestamp))
            return {each: found[each] if found[each] >= 0 else end for each, end in ends.items()}
        case Offset(offset):
            return dict.fromkeys(ends, offset)


def _resolve_last(cluster: Cluster, count: int, ends: Offsets) -> Offsets:
    """Return the offsets of the last records, which are counted: control records and compaction leave gaps."""
    if not count:
        return ends
    starts = earliest_offsets(cluster, ends)
    found = {each: start for each, start in starts.items() if ends[each] - start <= count}
    width = count
    while unknown := [each for each in ends if each not in found]:
        start_offsets = {each: max(starts[each], ends[each] - width) for each in unknown}
        for each, offsets in _last_offsets(cluster, count, start_offsets, ends).items():
            if len(offsets) == count or start_offsets[each] == starts[each]:
                found[each] = offsets[0] if offsets else ends[each]
        width *= SEARCH_GROWTH_FACTOR
    return found


def _last_offsets(
    cluster: Cluster, count: int, start_offsets: Offsets, ends: Mapping[TopicPartition, int]
) -> dict[TopicPartition, deque[int]]:
    """Return the offsets of the last `count` records of each partition, or of all records if there are fewer."""
    seen: dict[TopicPartition, deque[int]] = {each: deque(maxlen=count) for each in start_offsets}
    for record in Consumer(cluster, start_offsets).read_until(ends):
        seen[TopicPartition(record.topic, record.partition)].append(record.offset)
    return seen
