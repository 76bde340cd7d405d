"""Where reading begins or ends, as people say it, for each partition of a topic."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Final

from chronik.client.offsets import EARLIEST, LATEST
from chronik.client.records import TopicPartition
from chronik.console.rest.call import Call, wrong
from chronik.console.rest.doing.shared import led_by, offsets_now
from chronik.protocol.errors import ErrorCode, KafkaError
from chronik.protocol.messages.metadata import MetadataResponseTopic

Offsets = dict[TopicPartition, int]

INT64_MAX: Final = 2**63 - 1
NEXT: Final = "~"
"""Begins the `next` of a page: offsets by partition, such as ~0:17,1:4."""

_NUMBER: Final = re.compile(r"[0-9]{1,19}")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
EXPECTED: Final = "expected start, end, an offset, -N (the last N), @TIME or what `next` said"


def partitions_of(call: Call, name: str, only: int | None) -> tuple[MetadataResponseTopic, list[TopicPartition]]:
    """Returns the topic, and its partitions that have a leader. Raises KafkaError."""
    topic = call.cluster.retrying(lambda: call.cluster.topic(name))
    if only is not None and only not in [each.partition_index for each in topic.partitions]:
        told = f"topic {name} has {len(topic.partitions)} partitions, and no partition {only}"
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, told)
    led = [
        TopicPartition(name, each.partition_index)
        for each in topic.partitions
        if each.leader_id >= 0 and only in (None, each.partition_index)
    ]
    if not led:
        raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, f"topic {name}: nobody leads what was asked for at the moment")
    return topic, led


def bounds(
    call: Call, topic: MetadataResponseTopic, partitions: list[TopicPartition], isolation: int
) -> tuple[Offsets, Offsets]:
    """Returns where partitions begin and end now, of those whose leaders answer."""
    led = led_by([topic], set(partitions))
    starts, ends = offsets_now(call, led, EARLIEST), offsets_now(call, led, LATEST, isolation)
    known = [each for each in partitions if each in starts and each in ends]
    if not known:
        raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, f"topic {topic.name}: no leader answers at the moment")
    return {each: starts[each][0] for each in known}, {each: ends[each][0] for each in known}


def positions(call: Call, topic: MetadataResponseTopic, where: str, starts: Offsets, ends: Offsets) -> Offsets:
    """Never before the first record, nor after the last. Raises Refusal."""
    if where == "start":
        return dict(starts)
    if where == "end":
        return dict(ends)
    if where.startswith("@"):
        return _at(call, topic, milliseconds(where[1:]), starts, ends)
    if where.startswith(NEXT):
        wanted = _parsed(topic.name or "", where[1:])
        return {each: _within(wanted.get(each, starts[each]), starts[each], ends[each]) for each in starts}
    if where.startswith("-") and _NUMBER.fullmatch(where[1:]):
        return {each: max(starts[each], ends[each] - int(where[1:])) for each in starts}
    if _NUMBER.fullmatch(where):
        return {each: _within(int(where), starts[each], ends[each]) for each in starts}
    raise wrong(f"{where[:40]!r}: {EXPECTED}")


def _at(call: Call, topic: MetadataResponseTopic, moment_ms: int, starts: Offsets, ends: Offsets) -> Offsets:
    found = offsets_now(call, led_by([topic], set(starts)), moment_ms)
    return {each: _within(found[each][0], starts[each], ends[each]) if each in found else ends[each] for each in starts}


def _parsed(topic: str, text: str) -> Offsets:
    found = {}
    for part in text.split(","):
        index, colon, offset = part.partition(":")
        if not colon or not _NUMBER.fullmatch(index) or not _NUMBER.fullmatch(offset):
            raise wrong(EXPECTED)
        found[TopicPartition(topic, int(index))] = int(offset)
    return found


def shown(offsets: Offsets) -> str:
    """The `next` of a page that ends there."""
    return NEXT + ",".join(f"{each.partition}:{offset}" for each, offset in sorted(offsets.items()))


def milliseconds(text: str) -> int:
    """Raises Refusal."""
    try:
        if _NUMBER.fullmatch(text):
            return min(int(text), INT64_MAX)
        found = datetime.fromisoformat(text)
        zoned = found.replace(tzinfo=UTC) if found.tzinfo is None else found
        return max(0, (zoned - _EPOCH) // timedelta(milliseconds=1))
    except (ValueError, OverflowError):
        told = "expected a time such as 2026-05-31T12:00:00Z, or milliseconds since 1970"
        raise wrong(f"@{text[:40]}: {told}") from None


def _within(offset: int, start: int, end: int) -> int:
    return min(max(offset, start), end)
