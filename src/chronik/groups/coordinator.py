"""The group coordinator of a node: what the handlers of Kafka's group and offset APIs call.

Membership is decided by the groups themselves (`machine`); committed offsets live in the metadata image alone.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial

from chronik.clock import Clock
from chronik.coordination.custody import GroupHost
from chronik.coordination.handover import LOOK_SECONDS, Custody
from chronik.coordination.proposals import CommitErrors, GroupStore, Proposals
from chronik.coordination.tenure import ALONE, Tenure
from chronik.groups import events
from chronik.groups.classic.joining import refusal_of_join, size_of_join
from chronik.groups.classic.machine import ClassicGroup
from chronik.groups.classic.transitions import GroupState
from chronik.groups.config import GROUPS_MAX, GroupConfig
from chronik.groups.offsets import (
    all_fetched,
    commands_of_commit,
    plan_expiry,
    refusal_of_growth,
    refusal_of_offset,
)
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
from chronik.metadata.commands import NO_EPOCH, DeleteOffsets, OffsetKey
from chronik.metadata.delta import Delta
from chronik.metadata.slices import in_slices
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
        owns: Callable[[str], Tenure | None] = lambda group_id: ALONE,
        offset_acks: Acks = Acks.ALL,
        is_fenced: Callable[[], bool] = lambda: False,
    ) -> None:
        """`on_fatal` hears of what cannot go on in the background; the node has to stop then. `owns` says which groups
        are this node's to coordinate, and in which term, as the image has it at the moment; `is_fenced`, whether others
        may believe that this node is gone."""
        self._store = store
        self._clock = clock
        self._config = config or GroupConfig()
        self._on_fatal = on_fatal
        self._proposals = Proposals(store, offset_acks)
        self._host = GroupHost(clock, self._proposals, self._holds, self._fail)
        self._custody = Custody(store, self._host, self._config, owns, is_fenced)
        self._tasks: list[asyncio.Task[None]] = []

    # --- life ---

    async def start(self) -> None:
        """Begins to take up the groups where the last coordinator left them."""
        self._custody.open()
        self._tasks = [
            asyncio.create_task(self._proposals.run(), name="group proposals"),
            asyncio.create_task(self._expire_offsets_forever(), name="offset expiry"),
            asyncio.create_task(self._look_forever(), name="group custody's look"),
            asyncio.create_task(self._custody.run(), name="group custody"),
        ]
        for task in self._tasks:
            task.add_done_callback(self._task_ended)

    def follow(self, delta: Delta) -> None:
        """Who coordinates which group may have changed: what is not ours any more is refused from now on."""
        self._custody.follow(delta)

    async def _look_forever(self) -> None:
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            self._custody.look()

    def _holds(self, group: ClassicGroup) -> bool:
        return self._custody.holds(group)

    async def close(self) -> None:
        """Everybody who waits is answered; what was proposed is seen through."""
        if not self._tasks:
            return
        self._custody.close()
        proposing, *others = self._tasks
        self._tasks = []
        for task in others:
            task.cancel()
        await in_slices(self._custody.let_go_of_all())
        self._proposals.close()
        await asyncio.wait([proposing, *others])

    def _task_ended(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        """From here on nobody is served; those who wait are sent away."""
        log.critical("the group coordinator cannot go on", exc_info=error)
        try:
            self._custody.close()
            for _ in self._custody.let_go_of_all():
                pass
        finally:
            if self._on_fatal is not None:
                self._on_fatal(error)

    # --- membership ---

    async def join(self, request: JoinRequest) -> JoinResult:
        refusal = self._custody.refusal(request.group_id) or refusal_of_join(request, self._config)
        if refusal is not None:
            return JoinResult(refusal, request.member_id)
        group = self._custody.get(request.group_id)
        if group is None:
            if request.member_id != UNKNOWN_MEMBER:
                return JoinResult(ErrorCode.UNKNOWN_MEMBER_ID, request.member_id)
            if self._is_full:
                return JoinResult(ErrorCode.COORDINATOR_NOT_AVAILABLE, request.member_id)
        growth = size_of_join(request) - (group.size_of_joining(request) if group is not None else 0)
        if not self._host.has_room(growth):
            return JoinResult(ErrorCode.COORDINATOR_NOT_AVAILABLE, request.member_id)
        if group is None:
            group = self._custody.found(request.group_id)
        question = events.JoinAsked(self._host.now_ms(), self._host.new_waiter(), request, str(uuid.uuid4()))
        return await self._host.ask(group, question, JoinResult)

    async def sync(self, request: SyncRequest) -> SyncResult:
        group, missing = self._find(request.group_id, ErrorCode.UNKNOWN_MEMBER_ID)
        if group is None:
            # Kafka's words: some clients know no "loading" here, and would fail. They join again, and wait there.
            is_loading = missing is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            return SyncResult(ErrorCode.REBALANCE_IN_PROGRESS if is_loading else missing)
        given_bytes = sum(len(assignment) for _, assignment in request.assignments)
        if not self._host.has_room(given_bytes - group.assignments_bytes):
            return SyncResult(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        question = events.SyncAsked(self._host.now_ms(), self._host.new_waiter(), request)
        return await self._host.ask(group, question, SyncResult)

    async def heartbeat(self, request: HeartbeatRequest) -> ErrorCode:
        group, missing = self._find(request.group_id, ErrorCode.UNKNOWN_MEMBER_ID)
        if group is None:
            # As Kafka does: the member is heard, and what became of its group it learns next time.
            return ErrorCode.NONE if missing is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS else missing
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

    @property
    def _is_full(self) -> bool:
        """Groups whose members are only joining are in memory alone, those without members in the image alone."""
        return max(len(self._host), len(self._store.image.groups)) >= GROUPS_MAX

    def _find(self, group_id: str, missing: ErrorCode) -> tuple[ClassicGroup | None, ErrorCode]:
        """The group, or what to say of its absence."""
        refusal = self._custody.refusal(group_id)
        if refusal is not None:
            return None, refusal
        if not group_id:
            return None, ErrorCode.INVALID_GROUP_ID
        return self._custody.get(group_id), missing

    # --- offsets ---

    async def commit_offsets(self, request: OffsetCommitRequest) -> OffsetCommitResult:
        """Answers when the offsets are stored. The empty group id is legal here, as in Kafka."""
        refusal = self._custody.refusal(request.group_id)
        # What is accepted holds in the term that it was accepted in, and in no later one.
        epoch = NO_EPOCH if refusal is not None else self._custody.epoch(request.group_id)
        if refusal is None:
            refusal = await self._refusal_of_commit(request)
        if refusal is None:
            refusal = refusal_of_growth(self._store.image, request.group_id, request.offsets)
        errors = [refusal or refusal_of_offset(offset, self._config) for offset in request.offsets]
        accepted = [index for index, error in enumerate(errors) if error is ErrorCode.NONE]
        outcomes = await self._store_offsets(request, accepted, epoch)
        for index, outcome in zip(accepted, outcomes, strict=True):
            errors[index] = outcome
        keys = ((offset.topic, offset.partition) for offset in request.offsets)
        return OffsetCommitResult(tuple(zip(keys, errors, strict=True)))

    async def _refusal_of_commit(self, request: OffsetCommitRequest) -> ErrorCode | None:
        group = self._custody.get(request.group_id)
        if group is None:
            if request.generation < 0:  # makes a group without members
                return ErrorCode.COORDINATOR_NOT_AVAILABLE if self._is_full else None
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

    async def _store_offsets(self, request: OffsetCommitRequest, accepted: Sequence[int], epoch: int) -> CommitErrors:
        offsets = (request.offsets[index] for index in accepted)
        commands = list(commands_of_commit(request, offsets, self._clock.now_ms(), epoch))
        when_stored = partial(self._offsets_stored, request.group_id)
        waiters = [self._proposals.commit(command, size_bytes, when_stored) for command, size_bytes in commands]
        return tuple([error for waiter in waiters for error in await waiter])

    def _offsets_stored(self, group_id: str) -> None:
        group = self._host.get(group_id)
        if group is not None and group_id in self._store.image.groups:
            self._host.feed(group, events.OffsetsStored(self._host.now_ms()))

    async def fetch_offsets(
        self, group_id: str, partitions: Sequence[TopicPartition] | None, require_stable: bool = False
    ) -> OffsetFetchResult:
        """All that the group committed when `partitions` is None.

        `require_stable` asks to be refused while a transaction holds offsets back; here none ever does.
        """
        refusal = self._custody.refusal(group_id)
        if refusal is not None:
            return OffsetFetchResult(refusal)
        offsets = await in_slices(all_fetched(self._store.image, group_id, partitions))
        refusal = self._custody.refusal(group_id)  # it may have become another's meanwhile
        return OffsetFetchResult(refusal) if refusal is not None else OffsetFetchResult(ErrorCode.NONE, offsets)

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
            offsets = tuple(OffsetKey(topic, partition) for topic, partition in keys)
            error = await self._proposals.outcome(DeleteOffsets(group_id, offsets, group.epoch))
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
        for group_id in list(self._store.image.groups):
            await asyncio.sleep(0)  # there may be a hundred thousand, and most have nothing to propose
            while await self._expire_some(group_id):
                pass
        await in_slices(self._custody.forget_what_is_gone())

    async def _expire_some(self, group_id: str) -> bool:
        """Whether there may be more."""
        stored = self._store.image.groups.get(group_id)
        if stored is None or self._custody.refusal(group_id) is not None:
            return False
        live = self._host.get(group_id) or ClassicGroup.load(
            stored, self._config, self._host.now_ms(), self._custody.epoch(group_id)
        )
        offsets = self._store.image.offsets(group_id)
        command = plan_expiry(live, stored, offsets, self._clock.now_ms(), self._config)
        if command is None:
            return False
        error = await self._proposals.outcome(command)
        if error is not None:
            log.warning("offsets of group %r could not be expired: %s", group_id, error.name)
            return False
        if group_id in self._store.image.groups:
            return True
        if (hosted := self._host.get(group_id)) is not None:
            self._host.feed(hosted, events.Expired(self._host.now_ms()))
        return False

    async def _expire_offsets_forever(self) -> None:
        while True:
            await asyncio.sleep(self._config.offsets_retention_check_interval_ms / 1000)
            await self.expire_offsets()

    # --- administration ---

    def describe(self, group_id: str) -> DescribedGroup:
        """The empty group id is legal here and in `delete`, as in Kafka: offsets may have been committed under it."""
        error = self._custody.refusal(group_id)
        group = self._custody.get(group_id) if error is None else None
        if group is None:
            return DescribedGroup(group_id, GroupState.DEAD, "", "", (), error or ErrorCode.GROUP_ID_NOT_FOUND)
        return group.describe()

    def list(self, states: Collection[str] = (), types: Collection[str] = ()) -> tuple[ListedGroup, ...]:
        """Filters ignore case; an empty one lets everything through."""
        return tuple(entry for entry in self.list_in_steps(states, types) if entry is not None)

    def list_in_steps(self, states: Collection[str], types: Collection[str]) -> Iterator[ListedGroup | None]:
        """None for a group that is not wanted: whoever walks over all of them may pause there."""
        wanted_states = {state.lower() for state in states}
        wanted_types = {group_type.lower() for group_type in types}
        for entry in self._custody.list_entries():
            is_wanted = entry is not None and (
                (not wanted_states or entry.state.lower() in wanted_states)
                and (not wanted_types or entry.group_type in wanted_types)
            )
            yield entry if is_wanted else None

    async def delete(self, group_ids: Sequence[str]) -> Mapping[str, ErrorCode]:
        errors = {group_id: self._refusal_of_deletion(group_id) for group_id in group_ids}
        # Only those that are there: a task for each of 100,000 made-up names would hold up the node.
        groups = [
            group
            for group_id, refusal in errors.items()
            if refusal is None and (group := self._custody.get(group_id)) is not None
        ]
        outcomes = await asyncio.gather(*map(self._delete, groups))
        errors.update((group.group_id, error) for group, error in zip(groups, outcomes, strict=True))
        missing = ErrorCode.GROUP_ID_NOT_FOUND
        return {group_id: missing if error is None else error for group_id, error in errors.items()}

    def _refusal_of_deletion(self, group_id: str) -> ErrorCode | None:
        refusal = self._custody.refusal(group_id)
        if refusal is None and self._custody.forget_if_gone(group_id):
            return ErrorCode.NONE  # done by an earlier request, which could not be told so
        return refusal

    async def _delete(self, group: ClassicGroup) -> ErrorCode:
        question = events.DeletionAsked(self._host.now_ms(), self._host.new_waiter())
        return await self._host.ask(group, question, ErrorCode)
