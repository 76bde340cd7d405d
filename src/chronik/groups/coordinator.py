"""The group coordinator of a node: what the handlers of Kafka's group and offset APIs call.

Membership is decided by the groups themselves (`machine`); committed offsets live in the metadata image alone.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial

from chronik.clock import Clock
from chronik.groups import events
from chronik.groups.config import GROUPS_MAX, GroupConfig
from chronik.groups.hosting import GroupHost
from chronik.groups.joining import refusal_of_join
from chronik.groups.machine import ClassicGroup
from chronik.groups.offsets import commands_of_commit, fetched, plan_expiry, refusal_of_offset
from chronik.groups.proposals import CommitErrors, GroupStore, Proposals
from chronik.groups.requests import (
    UNKNOWN_MEMBER,
    DescribedGroup,
    HeartbeatRequest,
    JoinRequest,
    JoinResult,
    LeaveRequest,
    LeaveResult,
    LeftMember,
    ListedGroup,
    OffsetCommitRequest,
    OffsetCommitResult,
    OffsetDeleteResult,
    OffsetFetchResult,
    SyncRequest,
    SyncResult,
    TopicPartition,
)
from chronik.groups.subscription import CONSUMER_PROTOCOL_TYPE
from chronik.groups.transitions import GroupState
from chronik.metadata.commands import DeleteOffsets, OffsetKey
from chronik.metadata.delta import Delta
from chronik.metadata.store import Acks
from chronik.protocol.errors import ErrorCode

log = logging.getLogger(__name__)


class GroupCoordinator:
    def __init__(
        self,
        store: GroupStore,
        clock: Clock,
        config: GroupConfig | None = None,
        on_fatal: Callable[[BaseException], None] | None = None,
        owns: Callable[[str], bool] = lambda group_id: True,
        offset_acks: Acks = Acks.ALL,
    ) -> None:
        """`on_fatal` hears of what cannot go on in the background; the node has to stop then. `owns` says which groups
        are this node's to coordinate, as the image has it at the moment."""
        self._store = store
        self._clock = clock
        self._config = config or GroupConfig()
        self._on_fatal = on_fatal
        self._owns = owns
        self._proposals = Proposals(store, offset_acks)
        self._host = GroupHost(clock, self._proposals, self._fail)
        self._tasks: list[asyncio.Task[None]] = []
        self._is_active = False

    # --- life ---

    async def start(self) -> None:
        """Takes up the groups where the last coordinator left them."""
        self._take_up_groups()
        self._tasks = [
            asyncio.create_task(self._proposals.run(), name="group proposals"),
            asyncio.create_task(self._expire_offsets_forever(), name="offset expiry"),
        ]
        for task in self._tasks:
            task.add_done_callback(self._task_ended)
        self._is_active = True

    def follow(self, delta: Delta) -> None:
        """Who coordinates which group may have changed: takes up what is ours now, lets go of what is not."""
        if not self._is_active or not (delta.topics or delta.brokers):
            return
        for group in self._host:
            if not self._owns(group.group_id):
                self._host.feed(group, events.TakenOver(self._host.now_ms()))
        self._take_up_groups()

    def _take_up_groups(self) -> None:
        for stored in self._store.image.groups.values():
            if self._host.get(stored.group_id) is None and self._owns(stored.group_id):
                self._host.add(ClassicGroup.load(stored, self._config, self._host.now_ms()))

    async def close(self) -> None:
        """Everybody who waits is answered; what was proposed is seen through."""
        if not self._tasks:
            return
        self._is_active = False
        self._let_go_of_all()
        self._proposals.close()
        proposing, expiring = self._tasks
        self._tasks = []
        expiring.cancel()
        await asyncio.wait([proposing, expiring])

    def _let_go_of_all(self) -> None:
        for group in self._host:
            self._host.feed(group, events.TakenOver(self._host.now_ms()))

    def _task_ended(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        """From here on nobody is served; those who wait are sent away."""
        log.critical("the group coordinator cannot go on", exc_info=error)
        self._is_active = False
        try:
            self._let_go_of_all()
        finally:
            if self._on_fatal is not None:
                self._on_fatal(error)

    # --- membership ---

    async def join(self, request: JoinRequest) -> JoinResult:
        refusal = self._refusal(request.group_id) or refusal_of_join(request, self._config)
        if refusal is not None:
            return JoinResult(refusal, request.member_id)
        group = self._hosted(request.group_id)
        if group is None:
            if request.member_id != UNKNOWN_MEMBER:
                return JoinResult(ErrorCode.UNKNOWN_MEMBER_ID, request.member_id)
            if len(self._host) >= GROUPS_MAX:
                return JoinResult(ErrorCode.COORDINATOR_NOT_AVAILABLE, request.member_id)
            group = self._host.add(ClassicGroup(request.group_id, self._config))
        question = events.JoinAsked(self._host.now_ms(), self._host.new_waiter(), request, str(uuid.uuid4()))
        return await self._host.ask(group, question, JoinResult)

    async def sync(self, request: SyncRequest) -> SyncResult:
        group, missing = self._find(request.group_id, ErrorCode.UNKNOWN_MEMBER_ID)
        if group is None:
            return SyncResult(missing)
        question = events.SyncAsked(self._host.now_ms(), self._host.new_waiter(), request)
        return await self._host.ask(group, question, SyncResult)

    async def heartbeat(self, request: HeartbeatRequest) -> ErrorCode:
        group, missing = self._find(request.group_id, ErrorCode.UNKNOWN_MEMBER_ID)
        if group is None:
            return missing
        question = events.HeartbeatAsked(self._host.now_ms(), self._host.new_waiter(), request)
        return await self._host.ask(group, question, ErrorCode)

    async def leave(self, request: LeaveRequest) -> LeaveResult:
        group, missing = self._find(request.group_id, ErrorCode.UNKNOWN_MEMBER_ID)
        if group is not None:
            question = events.LeaveAsked(self._host.now_ms(), self._host.new_waiter(), request)
            return await self._host.ask(group, question, LeaveResult)
        if missing is not ErrorCode.UNKNOWN_MEMBER_ID:
            return LeaveResult(missing)
        left = tuple(LeftMember(leaving.member_id, leaving.group_instance_id, missing) for leaving in request.members)
        return LeaveResult(ErrorCode.NONE, left)

    def _refusal(self, group_id: str) -> ErrorCode | None:
        if not self._is_active:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        return None if self._owns(group_id) else ErrorCode.NOT_COORDINATOR

    def _find(self, group_id: str, missing: ErrorCode) -> tuple[ClassicGroup | None, ErrorCode]:
        """The group, or what to say of its absence."""
        refusal = self._refusal(group_id)
        if refusal is not None:
            return None, refusal
        if not group_id:
            return None, ErrorCode.INVALID_GROUP_ID
        return self._hosted(group_id), missing

    def _hosted(self, group_id: str) -> ClassicGroup | None:
        """A group that was given up while its last command had no answer yet may have been stored after all."""
        stored = self._store.image.groups.get(group_id)
        if stored is not None and self._host.get(group_id) is None:
            return self._host.add(ClassicGroup.load(stored, self._config, self._host.now_ms()))
        return self._host.get(group_id)

    # --- offsets ---

    async def commit_offsets(self, request: OffsetCommitRequest) -> OffsetCommitResult:
        """Answers when the offsets are stored. The empty group id is legal here, as in Kafka."""
        refusal = self._refusal(request.group_id) or await self._refusal_of_commit(request)
        errors = [refusal or refusal_of_offset(offset, self._config) for offset in request.offsets]
        accepted = [index for index, error in enumerate(errors) if error is ErrorCode.NONE]
        outcomes = await self._store_offsets(request, accepted)
        for index, outcome in zip(accepted, outcomes, strict=True):
            errors[index] = outcome
        keys = ((offset.topic, offset.partition) for offset in request.offsets)
        return OffsetCommitResult(tuple(zip(keys, errors, strict=True)))

    async def _refusal_of_commit(self, request: OffsetCommitRequest) -> ErrorCode | None:
        group = self._hosted(request.group_id)
        if group is None:
            if request.generation < 0:  # makes a group without members
                return ErrorCode.COORDINATOR_NOT_AVAILABLE if len(self._host) >= GROUPS_MAX else None
            return ErrorCode.GROUP_ID_NOT_FOUND if request.knows_group_id_not_found else ErrorCode.ILLEGAL_GENERATION
        question = events.CommitAsked(
            self._host.now_ms(),
            self._host.new_waiter(),
            request.generation,
            request.member_id,
            request.group_instance_id,
        )
        error = await self._host.ask(group, question, ErrorCode)
        return None if error is ErrorCode.NONE else error

    async def _store_offsets(self, request: OffsetCommitRequest, accepted: Sequence[int]) -> CommitErrors:
        offsets = (request.offsets[index] for index in accepted)
        commands = list(commands_of_commit(request, offsets, self._clock.now_ms()))
        when_stored = partial(self._offsets_stored, request.group_id)
        waiters = [self._proposals.commit(command, size_bytes, when_stored) for command, size_bytes in commands]
        return tuple([error for waiter in waiters for error in await waiter])

    def _offsets_stored(self, group_id: str) -> None:
        if self._is_active and group_id in self._store.image.groups:
            group = self._host.get(group_id) or self._host.add(ClassicGroup(group_id, self._config))
            self._host.feed(group, events.OffsetsStored(self._host.now_ms()))

    async def fetch_offsets(
        self, group_id: str, partitions: Sequence[TopicPartition] | None, require_stable: bool = False
    ) -> OffsetFetchResult:
        """All that the group committed when `partitions` is None.

        `require_stable` asks to be refused while a transaction holds offsets back; here none ever does.
        """
        refusal = self._refusal(group_id)
        if refusal is not None:
            return OffsetFetchResult(refusal)
        offsets = self._store.image.offsets(group_id)
        keys = list(offsets) if partitions is None else partitions
        return OffsetFetchResult(ErrorCode.NONE, {key: fetched(offsets.get(key)) for key in keys})

    async def delete_offsets(self, group_id: str, partitions: Sequence[TopicPartition]) -> OffsetDeleteResult:
        group, missing = self._find(group_id, ErrorCode.GROUP_ID_NOT_FOUND)
        if group is None:
            return OffsetDeleteResult(missing)
        if group.state is not GroupState.EMPTY and group.protocol_type != CONSUMER_PROTOCOL_TYPE:
            return OffsetDeleteResult(ErrorCode.NON_EMPTY_GROUP)
        subscribed = group.subscribed_among(topic for topic, _ in partitions)
        committed = self._store.image.offsets(group_id)
        keys = [key for key in partitions if key[0] not in subscribed and key in committed]
        if keys:
            command = DeleteOffsets(group_id, tuple(OffsetKey(topic, partition) for topic, partition in keys))
            error = await self._proposals.outcome(command)
            if error is not None:
                return OffsetDeleteResult(error)
        return OffsetDeleteResult(
            ErrorCode.NONE,
            tuple(
                (key, ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if key[0] in subscribed else ErrorCode.NONE)
                for key in partitions
            ),
        )

    async def expire_offsets(self) -> None:
        """One pass over all groups; comes by itself every `offsets.retention.check.interval.ms`."""
        for group in self._host:
            await asyncio.sleep(0)  # there may be a hundred thousand, and most have nothing to propose
            while await self._expire_some(group):
                pass

    async def _expire_some(self, group: ClassicGroup) -> bool:
        """Whether there may be more."""
        stored = self._store.image.groups.get(group.group_id)
        if stored is None:
            return False
        offsets = self._store.image.offsets(group.group_id)
        command = plan_expiry(group, stored, offsets, self._clock.now_ms(), self._config)
        if command is None:
            return False
        error = await self._proposals.outcome(command)
        if error is not None:
            log.warning("offsets of group %r could not be expired: %s", group.group_id, error.name)
            return False
        if group.group_id not in self._store.image.groups:
            self._host.feed(group, events.Expired(self._host.now_ms()))
            return False
        return True

    async def _expire_offsets_forever(self) -> None:
        while True:
            await asyncio.sleep(self._config.offsets_retention_check_interval_ms / 1000)
            await self.expire_offsets()

    # --- administration ---

    def describe(self, group_id: str) -> DescribedGroup:
        """The empty group id is legal here and in `delete`, as in Kafka: offsets may have been committed under it."""
        group = self._host.get(group_id)
        if group is None or not self._is_active:
            error = self._refusal(group_id) or ErrorCode.GROUP_ID_NOT_FOUND
            return DescribedGroup(group_id, GroupState.DEAD, "", "", (), error)
        return group.describe()

    def list(self, states: Collection[str] = (), types: Collection[str] = ()) -> tuple[ListedGroup, ...]:
        """Filters ignore case; an empty one lets everything through."""
        wanted_states = {state.lower() for state in states}
        wanted_types = {group_type.lower() for group_type in types}
        return tuple(
            entry
            for entry in (group.list_entry() for group in self._host)
            if (not wanted_states or entry.state.lower() in wanted_states)
            and (not wanted_types or entry.group_type in wanted_types)
        )

    async def delete(self, group_ids: Sequence[str]) -> Mapping[str, ErrorCode]:
        errors = {group_id: self._refusal(group_id) or ErrorCode.GROUP_ID_NOT_FOUND for group_id in group_ids}
        if self._is_active:
            # Only those that are there: a task for each of 100,000 made-up names would hold up the node.
            groups = [group for group_id in errors if (group := self._host.get(group_id)) is not None]
            outcomes = await asyncio.gather(*map(self._delete, groups))
            errors.update((group.group_id, error) for group, error in zip(groups, outcomes, strict=True))
        return errors

    async def _delete(self, group: ClassicGroup) -> ErrorCode:
        question = events.DeletionAsked(self._host.now_ms(), self._host.new_waiter())
        return await self._host.ask(group, question, ErrorCode)
