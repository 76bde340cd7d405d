"""Offsets that groups commit: which are accepted, how they travel to the store, are read there, and expire.

They live in the metadata image alone. A commit names partitions that exist; those that are gone when it is applied are
refused by the store.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Final

import msgspec

from chronik.clock import Clock
from chronik.coordination.custody import Custody
from chronik.coordination.machine import Dropped
from chronik.coordination.proposals import ImageStore, Proposals, told_as
from chronik.coordination.tenure import Tenure
from chronik.errors import invariant
from chronik.groups.config import (
    COMMIT_BATCH_BYTES_MAX,
    GROUP_OFFSETS_BYTES_MAX,
    OFFSETS_BYTES_MAX,
    OFFSETS_METADATA_BYTES_MAX,
    STAGED_OFFSETS_MAX,
    GroupConfig,
)
from chronik.groups.events import CommitAsked, OffsetsStored
from chronik.groups.machines import GroupMachine, is_full
from chronik.groups.requests import NO_GENERATION, UNKNOWN_MEMBER, TopicPartition
from chronik.groups.subscription import CONSUMER_PROTOCOL_TYPE
from chronik.limits import GROUP_ID_CHARACTERS_MAX
from chronik.metadata.commands.base import NO_EPOCH
from chronik.metadata.commands.groups import (
    CommitOffset,
    CommitOffsetBatch,
    ExpiredOffset,
    ExpireOffsets,
    OffsetToCommit,
)
from chronik.metadata.commands.transactions import StageOffsets
from chronik.metadata.image import Image
from chronik.metadata.offsets import OFFSET_BYTES, OffsetSizes
from chronik.metadata.records import CommittedOffset, Group, Result
from chronik.metadata.stores.store import Acks
from chronik.protocol.errors import ErrorCode
from chronik.scheduler import run_in_slices

log = logging.getLogger("chronik.groups.coordinator")

TIME_MS_MAX: Final = 2**63 - 1

READ_PER_STEP: Final = 100

UNSTABLE: Final = CommittedOffset(-1, NO_EPOCH, None, commit_time_ms=-1)
"""Stands in the place of an offset that an open transaction may replace, told by its identity."""

EXPIRED_PER_COMMAND_MAX: Final = 10_000
"""Offsets that one command expires: with names of any length it fits into the log, and takes at most some 50 ms."""

OFFSET_OVERHEAD_BYTES: Final = 32
"""Numbers and framing of one offset in a command, roughly."""


class Offsets:
    def __init__(
        self,
        store: ImageStore,
        clock: Clock,
        config: GroupConfig,
        custody: Custody[GroupMachine],
        proposals: Proposals,
        acks: Acks,
    ) -> None:
        self._store = store
        self._clock = clock
        self._config = config
        self._custody = custody
        self._proposals = proposals
        self._acks = acks

    async def commit(
        self,
        group_id: str,
        offsets: Sequence[OffsetToCommit],
        generation: int = NO_GENERATION,
        member_id: str = UNKNOWN_MEMBER,
        group_instance_id: str | None = None,
        retention_time_ms: int = -1,
    ) -> list[ErrorCode]:
        """Returns when the offsets are stored, with an error code for each, in their order. The empty group id is legal
        here, as in Kafka. A `retention_time_ms` of -1 leaves it to `offsets.retention.minutes`."""
        tenure = self._custody.claim(group_id)
        if isinstance(tenure, ErrorCode):
            return [tenure] * len(offsets)
        refusal = await self._refusal(group_id, tenure, generation, member_id, group_instance_id)
        refusal = refusal or refusal_of_growth(self._store.image, group_id, offsets)
        if refusal:
            return [refusal] * len(offsets)
        errors = [refusal_of_offset(offset, self._config) for offset in offsets]
        accepted = [offset for offset, error in zip(offsets, errors, strict=True) if error is ErrorCode.NONE]
        # A commit is valid in the term in which it was accepted, and in no later one.
        commands = commands_of_commit(group_id, accepted, self._clock.now_ms(), retention_time_ms, tenure.epoch)
        waiters = [self._propose(command, size_bytes) for command, size_bytes in commands]
        outcomes = iter([error for waiter in waiters for error in await waiter])
        return [error or next(outcomes) for error in errors]

    async def stage(
        self,
        group_id: str,
        transactional_id: str,
        began_index: int,
        offsets: Sequence[OffsetToCommit],
        generation: int = NO_GENERATION,
        member_id: str = UNKNOWN_MEMBER,
        group_instance_id: str | None = None,
    ) -> list[ErrorCode]:
        """Returns when the offsets are stored beside the transaction, which began at `began_index` of the log, with an
        error code for each. They are committed when, and if, the transaction is."""
        tenure = self._custody.claim(group_id)
        if isinstance(tenure, ErrorCode):
            return [tenure] * len(offsets)
        refusal = await self._refusal(
            group_id, tenure, generation, member_id, group_instance_id, is_transactional=True
        ) or refusal_of_growth(self._store.image, group_id, offsets)
        if not refusal and self._store.image.staged_count + len(offsets) > STAGED_OFFSETS_MAX:
            refusal = ErrorCode.COORDINATOR_NOT_AVAILABLE
        if refusal:
            return [refusal] * len(offsets)
        errors = [refusal_of_offset(offset, self._config) for offset in offsets]
        accepted = tuple(offset for offset, error in zip(offsets, errors, strict=True) if error is ErrorCode.NONE)
        if not accepted:
            return errors
        command = StageOffsets(group_id, transactional_id, began_index, accepted, self._clock.now_ms(), tenure.epoch)
        outcomes = iter(await self._proposals.outcomes(group_id, command, len(accepted)))
        return [error or next(outcomes) for error in errors]

    async def _refusal(
        self,
        group_id: str,
        tenure: Tenure,
        generation: int,
        member_id: str,
        group_instance_id: str | None,
        *,
        is_transactional: bool = False,
    ) -> ErrorCode | None:
        custody = self._custody
        group = custody.get(group_id, tenure)
        if group is not None:
            return await custody.ask(
                group, ErrorCode, CommitAsked, generation, member_id, group_instance_id, is_transactional
            )
        if generation >= 0:
            return ErrorCode.GROUP_ID_NOT_FOUND
        if len(group_id) > GROUP_ID_CHARACTERS_MAX:
            return ErrorCode.INVALID_GROUP_ID
        # The commit creates a group without members.
        return ErrorCode.COORDINATOR_NOT_AVAILABLE if is_full(custody, self._store.image) else None

    def _propose(self, commit: CommitOffset, size_bytes: int) -> asyncio.Future[list[ErrorCode]]:
        """Puts the commit beside those of other groups that wait for their turn."""
        last = self._proposals.last
        if not isinstance(last, CommitBatch) or last.size_bytes + size_bytes > COMMIT_BATCH_BYTES_MAX:
            last = CommitBatch(self._acks, self._stored)
            self._proposals.put(last)
        return last.add(commit, size_bytes)

    def _stored(self, group_id: str) -> None:
        group = self._custody.in_hand(group_id)
        if group is not None and not group.is_stored and group_id in self._store.image.groups:
            self._custody.feed(group, OffsetsStored(self._custody.now_ms()))

    async def expire_forever(self) -> None:
        while True:
            await asyncio.sleep(self._config.offsets_retention_check_interval_ms / 1000)
            await self.expire()

    async def expire(self) -> None:
        """Goes through all groups once."""
        for group_id in list(self._store.image.groups):
            await asyncio.sleep(0)  # there may be a hundred thousand, and most have nothing to propose
            while await self._expire_some(group_id):
                pass
        await run_in_slices(self._custody.forget_what_is_gone())

    async def _expire_some(self, group_id: str) -> bool:
        """Returns whether there may be more."""
        stored = self._store.image.groups.get(group_id)
        tenure = self._custody.claim(group_id)
        if stored is None or isinstance(tenure, ErrorCode):
            return False
        live = self._custody.peek(group_id, tenure)
        assert live is not None, "what is stored can be loaded"
        image = self._store.image
        stays = bool(image.staged(group_id))
        offsets = image.offsets(group_id)
        command = plan_expiry(live, stored, offsets, self._clock.now_ms(), self._config, stays=stays)
        if command is None:
            return False
        error = await self._proposals.outcome(group_id, command)
        if error is not None:
            log.warning("offsets of group %r could not be expired: %s", group_id, error.name)
            return False
        if group_id in self._store.image.groups:
            return True
        if (group := self._custody.in_hand(group_id)) is not None:
            self._custody.feed(group, Dropped(self._custody.now_ms()))
        return False


class CommitBatch(msgspec.Struct):
    """Commits of many groups that travel together."""

    acks: Acks
    when_stored: Callable[[str], None]
    """Called for each group, even if nobody waits for the errors any more."""
    commits: list[CommitOffset] = msgspec.field(default_factory=list)
    waiters: list[asyncio.Future[list[ErrorCode]]] = msgspec.field(default_factory=list)
    keys: set[str] = msgspec.field(default_factory=set)
    size_bytes: int = 0

    def add(self, commit: CommitOffset, size_bytes: int) -> asyncio.Future[list[ErrorCode]]:
        waiter: asyncio.Future[list[ErrorCode]] = asyncio.get_running_loop().create_future()
        self.commits.append(commit)
        self.waiters.append(waiter)
        self.keys.add(commit.group_id)
        self.size_bytes += size_bytes
        if self.acks is Acks.NONE:
            waiter.set_result([ErrorCode.NONE] * len(commit.offsets))
        return waiter

    def as_command(self) -> CommitOffsetBatch:
        return CommitOffsetBatch(tuple(self.commits))

    def finish(self, outcome: Result | ErrorCode) -> None:
        """A failed batch fails all its callers; an applied one may still have refused some of its offsets."""
        failed = outcome if isinstance(outcome, ErrorCode) else ErrorCode.NONE
        errors = [[failed] * len(commit.offsets) for commit in self.commits]
        if isinstance(outcome, Result):
            for failure in outcome.failures:
                parts = range(len(errors[failure.item])) if failure.part < 0 else (failure.part,)
                for part in parts:
                    errors[failure.item][part] = told_as(failure.code)
        for waiter, commit_errors in zip(self.waiters, errors, strict=True):
            if not waiter.done():  # its connection may have closed, which does not undo the commit
                waiter.set_result(commit_errors)
        if isinstance(outcome, Result):
            for commit in self.commits:
                self.when_stored(commit.group_id)


def refusal_of_offset(offset: OffsetToCommit, config: GroupConfig) -> ErrorCode:
    """Returns NONE when it may be committed."""
    is_too_large = offset.metadata is not None and len(offset.metadata) > config.offset_metadata_characters_max
    return ErrorCode.OFFSET_METADATA_TOO_LARGE if is_too_large else ErrorCode.NONE


def refusal_of_growth(image: Image, group_id: str, offsets: Sequence[OffsetToCommit]) -> ErrorCode | None:
    """Returns why these would be too much to keep. Commits that replace others and take no more room are always
    accepted: a group that is full goes on."""
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
    group_id: str, offsets: Iterable[OffsetToCommit], now_ms: int, retention_time_ms: int = -1, epoch: int = NO_EPOCH
) -> Iterator[tuple[CommitOffset, int]]:
    """Cuts the offsets into commands of bounded size, and yields each with its size. Nearly always there is one.
    `epoch` is that of the coordinator's term in which they were accepted."""
    expire_time_ms = -1 if retention_time_ms < 0 else min(now_ms + retention_time_ms, TIME_MS_MAX)
    part: list[OffsetToCommit] = []
    part_bytes = 0
    for offset in offsets:
        invariant(offset.partition >= 0 and offset.leader_epoch >= NO_EPOCH, "a commit that the log can hold")
        offset_bytes = OFFSET_OVERHEAD_BYTES + len(offset.topic) + len((offset.metadata or "").encode())
        if part and part_bytes + offset_bytes > COMMIT_BATCH_BYTES_MAX:
            yield CommitOffset(group_id, tuple(part), now_ms, expire_time_ms, epoch), part_bytes
            part, part_bytes = [], 0
        part.append(offset)
        part_bytes += offset_bytes
    if part:
        yield CommitOffset(group_id, tuple(part), now_ms, expire_time_ms, epoch), part_bytes


def all_committed(
    image: Image, group_id: str, wanted: Iterable[TopicPartition] | None, *, stable: bool = False
) -> Generator[None, None, dict[TopicPartition, CommittedOffset | None]]:
    """Returns what a group has committed for the wanted partitions; for all when that is None. It works in steps: there
    may be a million. If only what is `stable` will do, it is UNSTABLE where an open transaction may replace it."""
    # An immutable snapshot: a list of all keys would take more memory than the offsets, for every request that waits.
    keys = iter(image.frozen_offsets(group_id) if wanted is None else wanted)
    found: dict[TopicPartition, CommittedOffset | None] = {}
    while some := list(islice(keys, READ_PER_STEP)):
        offsets = image.offsets(group_id)
        found.update((key, offsets.get(key)) for key in some)
        if stable and image.staged(group_id):  # in the same turn: once the transaction is decided, they are others
            found.update((key, UNSTABLE) for key in some if image.is_staged(group_id, *key))
        yield
    return found


def plan_expiry(
    live: GroupMachine,
    stored: Group,
    offsets: Mapping[TopicPartition, CommittedOffset],
    now_ms: int,
    config: GroupConfig,
    *,
    stays: bool = False,
) -> ExpireOffsets | None:
    """Returns the offsets of a group that have outlived `offsets.retention.minutes` (KIP-211), or as many of them as
    one command takes; None when there are none. The group goes with the last, unless it `stays` for a transaction.

    The retention runs from the moment the group became empty, for members that are away for a while keep their place;
    from the commit itself for a group that never had members, and for topics that the members no longer subscribe to.
    A commit made into an empty group starts it anew: in Kafka an administrator's reset of a long-empty group expires at
    once.
    """
    is_empty = live.is_empty and not stored.members
    if not is_empty and not (live.is_stable and live.protocol_type == CONSUMER_PROTOCOL_TYPE):
        return None
    empty_since_ms = stored.time_ms if is_empty and stored.protocol_type else 0
    subscribed = frozenset() if is_empty else live.subscribed_among(topic for topic, _ in offsets)
    outlived = (
        ExpiredOffset(topic, partition, committed.commit_time_ms)
        for (topic, partition), committed in offsets.items()
        if topic not in subscribed and _is_expired(committed, empty_since_ms, now_ms, config.offsets_retention_ms)
    )
    expired = tuple(islice(outlived, EXPIRED_PER_COMMAND_MAX))
    group_goes = is_empty and live.is_idle and not stays and len(expired) == len(offsets)
    if not expired and not group_goes:
        return None
    return ExpireOffsets(live.key, expired, stored.time_ms if group_goes else -1, live.epoch)


def _is_expired(committed: CommittedOffset, empty_since_ms: int, now_ms: int, retention_ms: int) -> bool:
    if committed.expire_time_ms >= 0:
        return now_ms >= committed.expire_time_ms  # OffsetCommit 2-4 lets the client choose
    return now_ms - max(committed.commit_time_ms, empty_since_ms) >= retention_ms
