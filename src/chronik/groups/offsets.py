"""Committed offsets: what may be committed, how a commit is cut into commands, and which offsets have expired."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Final

from chronik.coordination.proposals import GroupImage
from chronik.groups.classic.machine import ClassicGroup
from chronik.groups.classic.transitions import GroupState
from chronik.groups.config import (
    COMMIT_BATCH_BYTES_MAX,
    GROUP_OFFSETS_BYTES_MAX,
    OFFSETS_BYTES_MAX,
    OFFSETS_METADATA_BYTES_MAX,
    GroupConfig,
)
from chronik.groups.requests import FetchedOffset, OffsetCommitRequest, TopicPartition
from chronik.groups.subscription import CONSUMER_PROTOCOL_TYPE
from chronik.metadata.commands import NO_EPOCH, CommitOffset, ExpiredOffset, ExpireOffsets, OffsetToCommit
from chronik.metadata.offsets import OFFSET_BYTES, OffsetSizes
from chronik.metadata.records import CommittedOffset, Group
from chronik.protocol.errors import ErrorCode

TIME_MS_MAX: Final = 2**63 - 1
PARTITION_INDEX_MAX: Final = 2**31 - 1
EXPIRED_PER_COMMAND_MAX: Final = 10_000
"""Offsets that one command expires: with names of any length it fits into the log and holds it up for some 50 ms."""

FETCHED_PER_STEP: Final = 100

OFFSET_OVERHEAD_BYTES: Final = 32
"""Numbers and framing of one offset in a command, roughly."""


def refusal_of_offset(offset: OffsetToCommit, config: GroupConfig) -> ErrorCode:
    """NONE when it may be committed. Whether the partition exists is for the metadata store to say."""
    if offset.metadata is not None and len(offset.metadata) > config.offset_metadata_letters_max:
        return ErrorCode.OFFSET_METADATA_TOO_LARGE
    if not 0 <= offset.partition <= PARTITION_INDEX_MAX:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return ErrorCode.NONE


def refusal_of_growth(image: GroupImage, group_id: str, offsets: Sequence[OffsetToCommit]) -> ErrorCode | None:
    """Why these would be too much to keep. Whoever commits in place of what is there, and no more than that, may
    always: a group that is full goes on."""
    sizes = image.offset_sizes(group_id)
    at_most = sum(len(offset.metadata or "") for offset in offsets)
    if not _exceeds(sizes, at_most + OFFSET_BYTES * len(offsets), at_most):
        return None  # as nearly always; what it replaces need not be looked up
    committed = image.offsets(group_id)
    growth = metadata_growth = 0
    for offset in offsets:
        old = committed.get((offset.topic, offset.partition))
        metadata_growth += len(offset.metadata or "") - (len(old.metadata or "") if old is not None else 0)
        growth += OFFSET_BYTES if old is None else 0
    return _exceeds(sizes, growth + metadata_growth, metadata_growth)


def _exceeds(sizes: OffsetSizes, growth: int, metadata_growth: int) -> ErrorCode | None:
    if growth > 0 and sizes.group_bytes + growth > GROUP_OFFSETS_BYTES_MAX:
        return ErrorCode.INVALID_COMMIT_OFFSET_SIZE
    if growth > 0 and sizes.all_bytes + growth > OFFSETS_BYTES_MAX:
        return ErrorCode.INVALID_COMMIT_OFFSET_SIZE
    if metadata_growth > 0 and sizes.all_metadata_bytes + metadata_growth > OFFSETS_METADATA_BYTES_MAX:
        return ErrorCode.OFFSET_METADATA_TOO_LARGE
    return None


def commands_of_commit(
    request: OffsetCommitRequest, accepted: Iterable[OffsetToCommit], now_ms: int, epoch: int = NO_EPOCH
) -> Iterator[tuple[CommitOffset, int]]:
    """The accepted offsets in commands of bounded size, with that size. Nearly always one. `epoch` is that of the
    coordinator's term in which they were accepted."""
    expire_time_ms = -1 if request.retention_time_ms < 0 else min(now_ms + request.retention_time_ms, TIME_MS_MAX)
    part: list[OffsetToCommit] = []
    part_bytes = 0
    for offset in accepted:
        offset_bytes = OFFSET_OVERHEAD_BYTES + len(offset.topic) + len((offset.metadata or "").encode())
        if part and part_bytes + offset_bytes > COMMIT_BATCH_BYTES_MAX:
            yield CommitOffset(request.group_id, tuple(part), now_ms, expire_time_ms, epoch), part_bytes
            part, part_bytes = [], 0
        part.append(_normal(offset))
        part_bytes += offset_bytes
    if part:
        yield CommitOffset(request.group_id, tuple(part), now_ms, expire_time_ms, epoch), part_bytes


def _normal(offset: OffsetToCommit) -> OffsetToCommit:
    """A negative leader epoch means that the client knows none, whichever negative number it chose."""
    if offset.leader_epoch >= NO_EPOCH:
        return offset
    return OffsetToCommit(offset.topic, offset.partition, offset.offset, NO_EPOCH, offset.metadata)


def fetched(committed: CommittedOffset | None) -> FetchedOffset:
    if committed is None:
        return FetchedOffset()
    return FetchedOffset(committed.offset, committed.leader_epoch, committed.metadata or "")


def all_fetched(
    image: GroupImage, group_id: str, wanted: Iterable[TopicPartition] | None
) -> Generator[None, None, dict[TopicPartition, FetchedOffset]]:
    """All there are when `wanted` is None. In steps: there may be a million."""
    keys = iter(list(image.offsets(group_id)) if wanted is None else wanted)
    found: dict[TopicPartition, FetchedOffset] = {}
    while some := list(islice(keys, FETCHED_PER_STEP)):
        offsets = image.offsets(group_id)
        found.update((key, fetched(offsets.get(key))) for key in some)
        yield
    return found


def plan_expiry(
    live: ClassicGroup,
    stored: Group,
    offsets: Mapping[TopicPartition, CommittedOffset],
    now_ms: int,
    config: GroupConfig,
) -> ExpireOffsets | None:
    """What of a group has outlived `offsets.retention.minutes` (KIP-211), or as much of it as one command takes; None
    when nothing has.

    The retention runs from the moment the group became empty, for members that are away for a while keep their place;
    from the commit itself for a group that never had members, and for topics that the members no longer subscribe to.
    A commit made into an empty group starts it anew: in Kafka an administrator's reset of a long-empty group expires at
    once.
    """
    is_empty = live.state is GroupState.EMPTY and not stored.members
    if not is_empty and not (live.state is GroupState.STABLE and live.protocol_type == CONSUMER_PROTOCOL_TYPE):
        return None
    empty_since_ms = stored.time_ms if is_empty and stored.protocol_type else 0
    subscribed = frozenset() if is_empty else live.subscribed_among(topic for topic, _ in offsets)
    outlived = (
        ExpiredOffset(topic, partition, committed.commit_time_ms)
        for (topic, partition), committed in offsets.items()
        if topic not in subscribed and _is_expired(committed, empty_since_ms, now_ms, config.offsets_retention_ms)
    )
    expired = tuple(islice(outlived, EXPIRED_PER_COMMAND_MAX))
    group_goes = is_empty and live.is_idle and len(expired) == len(offsets)
    if not expired and not group_goes:
        return None
    return ExpireOffsets(live.group_id, expired, stored.time_ms if group_goes else -1, live.epoch)


def _is_expired(committed: CommittedOffset, empty_since_ms: int, now_ms: int, retention_ms: int) -> bool:
    if committed.expire_time_ms >= 0:
        return now_ms >= committed.expire_time_ms  # OffsetCommit 2-4 lets the client choose
    return now_ms - max(committed.commit_time_ms, empty_since_ms) >= retention_ms
