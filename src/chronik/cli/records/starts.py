"""Where reading begins, as `consume --from` says it: parsed before anybody is asked, and then looked up."""

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

WIDENED: Final = 4
"""How many times as far back is looked when there were too few records."""


@dataclass(frozen=True)
class Beginning:
    """The first record that there is."""


@dataclass(frozen=True)
class End:
    """After the last one."""


@dataclass(frozen=True)
class Last:
    """The last so many of each partition."""

    count: int


@dataclass(frozen=True)
class Since:
    """The first at this moment or after it."""

    timestamp: int


@dataclass(frozen=True)
class Offset:
    """The same in each partition."""

    offset: int


Start = Beginning | End | Last | Since | Offset
WORDS: Final[dict[str, Start]] = {
    "start": Beginning(),
    "end": End(),
    "earliest": Beginning(),  # these two are Kafka's words, the third is kcat's
    "latest": End(),
    "beginning": Beginning(),
}


def parse_start(text: str) -> Start:
    """Raises WrongInput."""
    if text in WORDS:
        return WORDS[text]
    if text.startswith("@"):
        return Since(max(0, milliseconds(text[1:])))  # below 0 a broker takes a timestamp for something else
    try:
        if re.fullmatch(r"-?[0-9]+", text):
            number = within_int64(int(text))
            return Last(-number) if text.startswith("-") else Offset(number)
    except ValueError:
        pass
    raise WrongInput(f"--from {text!r}: expected start, end, -N (the last N), @TIME or an offset")


def offsets_of(start: Start, cluster: Cluster, ends: Offsets) -> Offsets:
    """Returns where each of the partitions is read from. Raises ClientError or KafkaError."""
    match start:
        case Beginning():
            return earliest_offsets(cluster, ends)
        case End():
            return ends
        case Last(count):
            return _last(cluster, count, ends)
        case Since(timestamp):
            found = list_offsets(cluster, dict.fromkeys(ends, timestamp))
            return {each: found[each] if found[each] >= 0 else end for each, end in ends.items()}
        case Offset(offset):
            return dict.fromkeys(ends, offset)


def _last(cluster: Cluster, count: int, ends: Offsets) -> Offsets:
    """Counts records, not offsets: markers of transactions have some, and what compaction has taken had some."""
    if not count:
        return ends
    starts = earliest_offsets(cluster, ends)
    found = {each: start for each, start in starts.items() if ends[each] - start <= count}
    width = count
    while unknown := [each for each in ends if each not in found]:
        begun = {each: max(starts[each], ends[each] - width) for each in unknown}
        for each, offsets in _last_offsets(cluster, count, begun, ends).items():
            if len(offsets) == count or begun[each] == starts[each]:
                found[each] = offsets[0] if offsets else ends[each]
        width *= WIDENED
    return found


def _last_offsets(
    cluster: Cluster, count: int, begun: Offsets, ends: Mapping[TopicPartition, int]
) -> dict[TopicPartition, deque[int]]:
    """Returns those of the last `count` records, or of fewer where there are no more."""
    seen: dict[TopicPartition, deque[int]] = {each: deque(maxlen=count) for each in begun}
    for record in Consumer(cluster, begun).read_until(ends):
        seen[TopicPartition(record.topic, record.partition)].append(record.offset)
    return seen
