"""Parsing of positions in a topic, such as `start`, `-50` or `@2026-05-31`, and their offsets per partition."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Final

from chronik.client.offsets import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP
from chronik.client.records import TopicPartition
from chronik.console.rest.context import OperationContext, build_bad_request_error
from chronik.console.rest.operations.shared import fetch_available_offsets, group_partitions_by_leader
from chronik.protocol.errors import ErrorCode, KafkaError
from chronik.protocol.messages.metadata import MetadataResponseTopic
from chronik.wording import pluralize

Offsets = dict[TopicPartition, int]

INT64_MAX: Final = 2**63 - 1
NEXT_PREFIX: Final = "~"
"""Prefix of a page's `next` value, which encodes the offset of each partition, such as ~0:17,1:4."""

_NUMBER: Final = re.compile(r"[0-9]{1,19}")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
EXPECTED_POSITION: Final = "expected start, end, an offset, -N (the last N), @TIME, or `next` or `previous` of a page"


def fetch_available_partitions(
    context: OperationContext, name: str, only: int | None
) -> tuple[MetadataResponseTopic, list[TopicPartition]]:
    """Return a topic's metadata and those of its partitions that have a leader.

    Raises:
        KafkaError: The topic or partition does not exist, or no partition has a leader.
    """
    topic = context.cluster.retry(lambda: context.cluster.topic(name))
    if only is not None and only not in [each.partition_index for each in topic.partitions]:
        message = f"topic {name} has no partition {only}: it has {pluralize(len(topic.partitions), 'partition')}"
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, message)
    led = [
        TopicPartition(name, each.partition_index)
        for each in topic.partitions
        if each.leader_id >= 0 and only in (None, each.partition_index)
    ]
    if not led:
        raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, f"topic {name}: the partitions have no leader at the moment")
    return topic, led


def fetch_offset_bounds(
    context: OperationContext, topic: MetadataResponseTopic, partitions: list[TopicPartition], isolation: int
) -> tuple[Offsets, Offsets]:
    """Return the start and end offsets of partitions, omitting those whose leader does not respond."""
    led = group_partitions_by_leader([topic], set(partitions))
    starts, ends = (
        fetch_available_offsets(context, led, EARLIEST_TIMESTAMP),
        fetch_available_offsets(context, led, LATEST_TIMESTAMP, isolation),
    )
    known = [each for each in partitions if each in starts and each in ends]
    if not known:
        raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, f"topic {topic.name}: no partition leader responds")
    return {each: starts[each][0] for each in known}, {each: ends[each][0] for each in known}


def resolve_position(
    context: OperationContext, topic: MetadataResponseTopic, where: str, starts: Offsets, ends: Offsets
) -> Offsets:
    """Convert a position, such as `end` or a time, to an offset in each partition.

    Raises:
        RestError: The position is malformed.
    """
    if where == "start":
        return dict(starts)
    if where == "end":
        return dict(ends)
    if where.startswith("@"):
        return _find_offsets_at_time(context, topic, parse_timestamp_ms(where[1:]), starts, ends)
    if where.startswith(NEXT_PREFIX):
        wanted = _parse_page_token(topic.name or "", where[1:])
        return {each: _clamp_offset(wanted.get(each, starts[each]), starts[each], ends[each]) for each in starts}
    if where.startswith("-") and _NUMBER.fullmatch(where[1:]):
        return {each: max(starts[each], ends[each] - int(where[1:])) for each in starts}
    if _NUMBER.fullmatch(where):
        return {each: _clamp_offset(int(where), starts[each], ends[each]) for each in starts}
    raise build_bad_request_error(f"{where[:40]!r}: {EXPECTED_POSITION}")


def parse_last_count(where: str) -> int:
    """Parse the position -N. Raise RestError if it is malformed."""
    if not _NUMBER.fullmatch(where[1:]):
        raise build_bad_request_error(f"{where[:40]!r}: {EXPECTED_POSITION}")
    return int(where[1:])


def _find_offsets_at_time(
    context: OperationContext, topic: MetadataResponseTopic, moment_ms: int, starts: Offsets, ends: Offsets
) -> Offsets:
    found = fetch_available_offsets(context, group_partitions_by_leader([topic], set(starts)), moment_ms)
    return {
        each: _clamp_offset(found[each][0], starts[each], ends[each]) if each in found else ends[each]
        for each in starts
    }


def _parse_page_token(topic: str, text: str) -> Offsets:
    found = {}
    for part in text.split(","):
        index, colon, offset = part.partition(":")
        if not colon or not _NUMBER.fullmatch(index) or not _NUMBER.fullmatch(offset):
            raise build_bad_request_error(EXPECTED_POSITION)
        found[TopicPartition(topic, int(index))] = int(offset)
    return found


def format_page_token(offsets: Offsets) -> str:
    """Format partition offsets as the `next` value of a page, which the client sends to get the following page."""
    return NEXT_PREFIX + ",".join(f"{each.partition}:{offset}" for each, offset in sorted(offsets.items()))


def parse_timestamp_ms(text: str) -> int:
    """Parse a time, ISO 8601 or milliseconds since 1970. Raise RestError if it is malformed."""
    try:
        if _NUMBER.fullmatch(text):
            return min(int(text), INT64_MAX)
        found = datetime.fromisoformat(text)
        zoned = found.replace(tzinfo=UTC) if found.tzinfo is None else found
        return max(0, (zoned - _EPOCH) // timedelta(milliseconds=1))
    except (ValueError, OverflowError):
        message = "expected a time such as 2026-05-31T12:00:00Z, or milliseconds since 1970"
        raise build_bad_request_error(f"@{text[:40]}: {message}") from None


def _clamp_offset(offset: int, start: int, end: int) -> int:
    return min(max(offset, start), end)
