"""Committed offsets of groups: validation, proposal to the metadata store, reads and expiry.

Committed offsets exist only in the metadata image. A commit names existing partitions; the store rejects those that
have been deleted when it applies the commit.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Final

import msgspec

from chronik.clock import Clock
from chronik.coordination.host import CoordinatorTerm, StateMachineHost
from chronik.coordination.machine import StateDeleted
from chronik.coordination.proposals import CoordinatorStore, ProposalQueue, to_client_error
from chronik.errors import check_invariant
from chronik.groups.classic.members import CONSUMER_PROTOCOL_TYPE
from chronik.groups.config import (
    COMMIT_BATCH_BYTES_MAX,
    GROUP_OFFSETS_BYTES_MAX,
    OFFSETS_BYTES_MAX,
    OFFSETS_METADATA_BYTES_MAX,
    STAGED_OFFSETS_MAX,
    GroupConfig,
)
from chronik.groups.group_machine import GroupMachine, is_group_limit_reached
from chronik.groups.requests import (
    NO_GENERATION,
    UNKNOWN_MEMBER_ID,
    CommitCheckRequested,
    OffsetsStored,
    TopicPartition,
)
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
from chronik.metadata.records import ApplyResult, CommittedOffset, Group
from chronik.metadata.stores.store import Acks
from chronik.protocol.errors import ErrorCode
from chronik.scheduler import run_in_slices

log = logging.getLogger("chronik.groups.coordinator")

TIME_MS_MAX: Final = 2**63 - 1

OFFSETS_PER_STEP: Final = 100
"""Number of committed offsets that are read before other work may run on the event loop."""

UNSTABLE_OFFSET: Final = CommittedOffset(-1, NO_EPOCH, None, commit_time_ms=-1)
"""A placeholder for an offset that an open transaction may replace. Compare it with `is`."""

EXPIRED_OFFSETS_PER_COMMAND_MAX: Final = 10_000
"""Maximum number of expired offsets that one command deletes. Applying it takes about 50 ms."""

OFFSET_OVERHEAD_BYTES: Final = 32
"""Approximate size in bytes of a committed offset in a metadata command, without its strings."""


class OffsetManager:
    """The part of the group coordinator that commits offsets, stages them for transactions and deletes expired ones."""

    def __init__(
        self,
        store: CoordinatorStore,
        clock: Clock,
        config: GroupConfig,
        host: StateMachineHost[GroupMachine],
        proposals: ProposalQueue,
        acks: Acks,
    ) -> None:
        self._store = store
        self._clock = clock
        self._config = config
        self._host = host
        self._proposals = proposals
        self._acks = acks

    async def commit(
        self,
        group_id: str,
        offsets: Sequence[OffsetToCommit],
        generation: int = NO_GENERATION,
        member_id: str = UNKNOWN_MEMBER_ID,
        group_instance_id: str | None = None,
        retention_time_ms: int = -1,
    ) -> list[ErrorCode]:
        """Commit offsets for a group, and return an error code for each offset when they are stored.

        The empty group id is legal here, as in Kafka. With a `retention_time_ms` of -1, `offsets.retention.minutes`
        applies.
        """
        term = self._host.check_ownership(group_id)
        if isinstance(term, ErrorCode):
            return [term] * len(offsets)
        error_code = await self._find_commit_error(group_id, term, generation, member_id, group_instance_id)
        error_code = error_code or find_offset_quota_error(self._store.image, group_id, offsets)
        if error_code:
            return [error_code] * len(offsets)
        errors = [find_offset_metadata_error(offset, self._config) for offset in offsets]
        accepted = [offset for offset, error in zip(offsets, errors, strict=True) if error is ErrorCode.NONE]
        # The commit carries the epoch of the term that accepted it: later terms reject it.
        commands = build_commit_commands(group_id, accepted, self._clock.now_ms(), retention_time_ms, term.epoch)
        waiters = [self._propose_commit(command, size_bytes) for command, size_bytes in commands]
        outcomes = iter([error for waiter in waiters for error in await waiter])
        return [error or next(outcomes) for error in errors]

    async def stage(
        self,
        group_id: str,
        transactional_id: str,
        began_index: int,
        offsets: Sequence[OffsetToCommit],
        generation: int = NO_GENERATION,
        member_id: str = UNKNOWN_MEMBER_ID,
        group_instance_id: str | None = None,
    ) -> list[ErrorCode]:
        """Store offsets that become committed when the transaction commits (TxnOffsetCommit).

        `began_index` is the index of the metadata log at which the transaction started. Returns an error code for each
        offset, in order.
        """
        term = self._host.check_ownership(group_id)
        if isinstance(term, ErrorCode):
            return [term] * len(offsets)
        error_code = await self._find_commit_error(
            group_id, term, generation, member_id, group_instance_id, is_transactional=True
        ) or find_offset_quota_error(self._store.image, group_id, offsets)
        if not error_code and self._store.image.staged_count + len(offsets) > STAGED_OFFSETS_MAX:
            error_code = ErrorCode.COORDINATOR_NOT_AVAILABLE
        if error_code:
            return [error_code] * len(offsets)
        errors = [find_offset_metadata_error(offset, self._config) for offset in offsets]
        accepted = tuple(offset for offset, error in zip(offsets, errors, strict=True) if error is ErrorCode.NONE)
        if not accepted:
            return errors
        command = StageOffsets(group_id, transactional_id, began_index, accepted, self._clock.now_ms(), term.epoch)
        outcomes = iter(await self._proposals.propose_items(group_id, command, len(accepted)))
        return [error or next(outcomes) for error in errors]

    async def _find_commit_error(
        self,
        group_id: str,
        term: CoordinatorTerm,
        generation: int,
        member_id: str,
        group_instance_id: str | None,
        *,
        is_transactional: bool = False,
    ) -> ErrorCode | None:
        host = self._host
        group = host.get(group_id, term)
        if group is not None:
            return await host.request(
                group, ErrorCode, CommitCheckRequested, generation, member_id, group_instance_id, is_transactional
            )
        if generation >= 0:
            return ErrorCode.GROUP_ID_NOT_FOUND
        if len(group_id) > GROUP_ID_CHARACTERS_MAX:
            return ErrorCode.INVALID_GROUP_ID
        # The commit creates a group without members.
        return ErrorCode.COORDINATOR_NOT_AVAILABLE if is_group_limit_reached(host, self._store.image) else None

    def _propose_commit(self, commit: CommitOffset, size_bytes: int) -> asyncio.Future[list[ErrorCode]]:
        """Add an offset commit to the queued batch, or start a new batch if there is none or it is full."""
        last = self._proposals.last_queued_entry
        if not isinstance(last, OffsetCommitBatch) or last.size_bytes + size_bytes > COMMIT_BATCH_BYTES_MAX:
            last = OffsetCommitBatch(self._acks, self._on_offsets_stored)
            self._proposals.put(last)
        return last.add(commit, size_bytes)

    def _on_offsets_stored(self, group_id: str) -> None:
        group = self._host.get_hosted_machine(group_id)
        if group is not None and not group.is_stored and group_id in self._store.image.groups:
            self._host.handle_event(group, OffsetsStored(self._host.now_ms()))

    async def expire_periodically(self) -> None:
        """Delete expired offsets at the interval of `offsets.retention.check.interval.ms`."""
        while True:
            await asyncio.sleep(self._config.offsets_retention_check_interval_ms / 1000)
            await self.expire()

    async def expire(self) -> None:
        """Delete the expired offsets of all groups that this node coordinates."""
        for group_id in list(self._store.image.groups):
            await asyncio.sleep(0)  # there may be 100,000 groups, and most of them have nothing to expire
            while await self._expire_offset_batch(group_id):
                pass
        await run_in_slices(self._host.unload_deleted())

    async def _expire_offset_batch(self, group_id: str) -> bool:
        """Delete one batch of a group's expired offsets. Return whether there may be more."""
        stored = self._store.image.groups.get(group_id)
        term = self._host.check_ownership(group_id)
        if stored is None or isinstance(term, ErrorCode):
            return False
        group_machine = self._host.peek(group_id, term)
        assert group_machine is not None, "a stored group can be loaded"
        image = self._store.image
        stays = bool(image.get_staged_offsets(group_id))
        offsets = image.offsets(group_id)
        command = plan_offset_expiry(
            group_machine, stored, offsets, self._clock.now_ms(), self._config, keep_group=stays
        )
        if command is None:
            return False
        error = await self._proposals.propose(group_id, command)
        if error is not None:
            log.warning("group %r: offset expiry failed: error=%s; retrying at the next check", group_id, error.name)
            return False
        if group_id in self._store.image.groups:
            return True
        if (group := self._host.get_hosted_machine(group_id)) is not None:
            self._host.handle_event(group, StateDeleted(self._host.now_ms()))
        return False


class OffsetCommitBatch(msgspec.Struct):
    """Offset commits of many groups that are proposed as one command."""

    acks: Acks
    on_stored: Callable[[str], None]
    """Callback for each group whose offsets are stored, even if all its requests have been cancelled."""
    commits: list[CommitOffset] = msgspec.field(default_factory=list)
    waiters: list[asyncio.Future[list[ErrorCode]]] = msgspec.field(default_factory=list)
    keys: set[str] = msgspec.field(default_factory=set)
    size_bytes: int = 0

    def add(self, commit: CommitOffset, size_bytes: int) -> asyncio.Future[list[ErrorCode]]:
        """Add an offset commit and return a future of the error codes of its offsets."""
        waiter: asyncio.Future[list[ErrorCode]] = asyncio.get_running_loop().create_future()
        self.commits.append(commit)
        self.waiters.append(waiter)
        self.keys.add(commit.group_id)
        self.size_bytes += size_bytes
        if self.acks is Acks.NONE:
            waiter.set_result([ErrorCode.NONE] * len(commit.offsets))
        return waiter

    def to_command(self) -> CommitOffsetBatch:
        return CommitOffsetBatch(tuple(self.commits))

    def complete(self, outcome: ApplyResult | ErrorCode) -> None:
        """Complete the waiting offset commits with the outcome of the command."""
        batch_error = outcome if isinstance(outcome, ErrorCode) else ErrorCode.NONE
        errors = [[batch_error] * len(commit.offsets) for commit in self.commits]
        if isinstance(outcome, ApplyResult):
            for failure in outcome.failures:
                parts = range(len(errors[failure.item])) if failure.part < 0 else (failure.part,)
                for part in parts:
                    errors[failure.item][part] = to_client_error(failure.code)
        for waiter, commit_errors in zip(self.waiters, errors, strict=True):
            if not waiter.done():  # the client may have disconnected, which does not undo the commit
                waiter.set_result(commit_errors)
        if isinstance(outcome, ApplyResult):
            for commit in self.commits:
                self.on_stored(commit.group_id)


def find_offset_metadata_error(offset: OffsetToCommit, config: GroupConfig) -> ErrorCode:
    """Return OFFSET_METADATA_TOO_LARGE if the metadata of a commit exceeds the configured limit, otherwise NONE."""
    exceeds_metadata_limit = (
        offset.metadata is not None and len(offset.metadata) > config.offset_metadata_characters_max
    )
    return ErrorCode.OFFSET_METADATA_TOO_LARGE if exceeds_metadata_limit else ErrorCode.NONE


def find_offset_quota_error(image: Image, group_id: str, offsets: Sequence[OffsetToCommit]) -> ErrorCode | None:
    """Return the error of an offset commit that exceeds the memory quotas for committed offsets, or None.

    A commit that replaces offsets and needs no more memory is always accepted.
    """
    sizes = image.offset_sizes(group_id)
    metadata_bytes_max = sum(len(offset.metadata or "") for offset in offsets)
    if not _find_quota_error(sizes, metadata_bytes_max + OFFSET_BYTES * len(offsets), metadata_bytes_max):
        return None  # the common case, without a lookup of the replaced offsets
    committed = image.offsets(group_id)
    growth = metadata_growth = 0
    for offset in offsets:
        old = committed.get((offset.topic, offset.partition))
        metadata_growth += len(offset.metadata or "") - (len(old.metadata or "") if old is not None else 0)
        growth += OFFSET_BYTES if old is None else 0
    return _find_quota_error(sizes, growth + metadata_growth, metadata_growth)


def _find_quota_error(sizes: OffsetSizes, growth: int, metadata_growth: int) -> ErrorCode | None:
    if growth > 0 and sizes.group_bytes + growth > GROUP_OFFSETS_BYTES_MAX:
        return ErrorCode.INVALID_COMMIT_OFFSET_SIZE
    if growth > 0 and sizes.all_bytes + growth > OFFSETS_BYTES_MAX:
        return ErrorCode.INVALID_COMMIT_OFFSET_SIZE
    if metadata_growth > 0 and sizes.all_metadata_bytes + metadata_growth > OFFSETS_METADATA_BYTES_MAX:
        return ErrorCode.OFFSET_METADATA_TOO_LARGE
    return None


def build_commit_commands(
    group_id: str, offsets: Iterable[OffsetToCommit], now_ms: int, retention_time_ms: int = -1, epoch: int = NO_EPOCH
) -> Iterator[tuple[CommitOffset, int]]:
    """Split an offset commit into commands of limited size, and yield each command with its size in bytes.

    `epoch` is the epoch of the coordinator's term that accepted the commit.
    """
    expire_time_ms = -1 if retention_time_ms < 0 else min(now_ms + retention_time_ms, TIME_MS_MAX)
    part: list[OffsetToCommit] = []
    part_bytes = 0
    for offset in offsets:
        check_invariant(offset.partition >= 0 and offset.leader_epoch >= NO_EPOCH, "a commit that the log can hold")
        offset_bytes = OFFSET_OVERHEAD_BYTES + len(offset.topic) + len((offset.metadata or "").encode())
        if part and part_bytes + offset_bytes > COMMIT_BATCH_BYTES_MAX:
            yield CommitOffset(group_id, tuple(part), now_ms, expire_time_ms, epoch), part_bytes
            part, part_bytes = [], 0
        part.append(offset)
        part_bytes += offset_bytes
    if part:
        yield CommitOffset(group_id, tuple(part), now_ms, expire_time_ms, epoch), part_bytes


def read_committed_offsets(
    image: Image, group_id: str, wanted: Iterable[TopicPartition] | None, *, require_stable: bool = False
) -> Generator[None, None, dict[TopicPartition, CommittedOffset | None]]:
    """Return a group's committed offsets for the wanted partitions, or for all partitions if `wanted` is None.

    The generator yields between steps, because there may be a million offsets. With `require_stable`, the value is
    `UNSTABLE_OFFSET` where an open transaction may replace the offset.
    """
    # An immutable snapshot: a list of all keys would take more memory than the offsets, for every waiting request.
    keys = iter(image.frozen_offsets(group_id) if wanted is None else wanted)
    found: dict[TopicPartition, CommittedOffset | None] = {}
    while chunk := list(islice(keys, OFFSETS_PER_STEP)):
        offsets = image.offsets(group_id)
        found.update((key, offsets.get(key)) for key in chunk)
        # Check in the same event-loop iteration: when the transaction ends, the offsets change.
        if require_stable and image.get_staged_offsets(group_id):
            found.update((key, UNSTABLE_OFFSET) for key in chunk if image.has_staged_offset(group_id, *key))
        yield
    return found


def plan_offset_expiry(
    group_machine: GroupMachine,
    stored: Group,
    offsets: Mapping[TopicPartition, CommittedOffset],
    now_ms: int,
    config: GroupConfig,
    *,
    keep_group: bool = False,
) -> ExpireOffsets | None:
    """Return a command that deletes a group's offsets older than `offsets.retention.minutes` (KIP-211), or None.

    The group is deleted with its last offset unless `keep_group` is set because of a transaction. One command expires
    a limited number of offsets.

    The retention starts when the group becomes empty, so that members that are absent for a while keep their offsets.
    For a group that never had members, and for topics that the members no longer subscribe to, it starts at the commit.
    A commit into an empty group restarts it: in Kafka, offsets that an administrator resets in a group that has been
    empty for long expire immediately.
    """
    is_empty = group_machine.is_empty and not stored.members
    if not is_empty and not (group_machine.is_stable and group_machine.protocol_type == CONSUMER_PROTOCOL_TYPE):
        return None
    empty_since_ms = stored.time_ms if is_empty and stored.protocol_type else 0
    subscribed = frozenset() if is_empty else group_machine.filter_subscribed(topic for topic, _ in offsets)
    expired_offsets = (
        ExpiredOffset(topic, partition, committed.commit_time_ms)
        for (topic, partition), committed in offsets.items()
        if topic not in subscribed and _is_expired(committed, empty_since_ms, now_ms, config.offsets_retention_ms)
    )
    expired = tuple(islice(expired_offsets, EXPIRED_OFFSETS_PER_COMMAND_MAX))
    deletes_group = is_empty and group_machine.is_idle and not keep_group and len(expired) == len(offsets)
    if not expired and not deletes_group:
        return None
    return ExpireOffsets(group_machine.key, expired, stored.time_ms if deletes_group else -1, group_machine.epoch)


def _is_expired(committed: CommittedOffset, empty_since_ms: int, now_ms: int, retention_ms: int) -> bool:
    if committed.expire_time_ms >= 0:
        return now_ms >= committed.expire_time_ms  # OffsetCommit 2-4 lets the client choose the retention
    return now_ms - max(committed.commit_time_ms, empty_since_ms) >= retention_ms
