"""The state of one classic group and the primitive operations that its request handlers use."""

from __future__ import annotations

import heapq
from enum import StrEnum

import msgspec
from msgspec.structs import replace

from chronik.coordination.machine import Instruction, StateMachineReply, StoredStateChange, StoreState
from chronik.groups.classic.members import ClassicMember, GroupMembers
from chronik.groups.classic.transitions import GroupLifecycle, GroupState
from chronik.groups.config import GroupConfig
from chronik.groups.requests import JoinedMember, JoinResult, LeaveResult, SyncResult
from chronik.metadata.commands.base import NO_EPOCH
from chronik.metadata.commands.groups import DeleteConsumerGroup, GroupMember, UpdateConsumerGroup
from chronik.protocol.errors import ErrorCode


class GroupDeadlineKind(StrEnum):
    """The kinds of deadlines of a consumer group, such as session timeouts and the rebalance timeout."""

    SESSION = "session"
    INITIAL_DELAY = "initial delay"
    JOIN = "join"
    SYNC = "sync"
    EMPTY_GROUP_RETRY = "emptiness retry"


QUEUE_REBUILD_LENGTH_MIN = 64
"""Minimum length of the deadline heap before outdated entries are removed by rebuilding the heap."""

DeadlineKey = tuple[GroupDeadlineKind, str]
"""The kind of a deadline, and the member id for session timeouts (otherwise empty)."""


class _Deadline(msgspec.Struct):
    due_at_ms: int
    queued_at_ms: int
    """The time under which the deadline is in the heap. It is earlier than `due_at_ms` if the deadline was postponed.
    """


class GroupDeadlines:
    """The pending deadlines of a consumer group, such as its members' session timeouts.

    Heartbeats move deadlines thousands of times per second, and almost none expires. Moving a deadline later therefore
    only records its new time; its heap entry is corrected when the old time passes.
    """

    def __init__(self) -> None:
        self._deadlines: dict[DeadlineKey, _Deadline] = {}
        self._queue: list[tuple[int, DeadlineKey]] = []

    @property
    def wake_at_ms(self) -> int | None:
        """The earliest time at which a deadline of the group can expire, or None if there are no deadlines."""
        return self._queue[0][0] if self._queue else None

    def set(self, kind: GroupDeadlineKind, at_ms: int, member_id: str = "") -> None:
        """Set or move a deadline."""
        key = (kind, member_id)
        deadline_entry = self._deadlines.get(key)
        if deadline_entry is not None and deadline_entry.queued_at_ms <= at_ms:
            deadline_entry.due_at_ms = at_ms
        else:
            self._enqueue_deadline(key, at_ms)

    def cancel(self, kind: GroupDeadlineKind, member_id: str = "") -> None:
        self._deadlines.pop((kind, member_id), None)

    def clear(self) -> None:
        self._deadlines.clear()
        self._queue.clear()

    def pop_expired_deadline(self, now_ms: int) -> DeadlineKey | None:
        """Remove and return the first expired deadline, or None. Process it before popping the next one."""
        while self._queue and self._queue[0][0] <= now_ms:
            queued_at_ms, key = heapq.heappop(self._queue)
            deadline = self._deadlines.get(key)
            if deadline is None or deadline.queued_at_ms != queued_at_ms:
                continue  # cancelled, or moved to an earlier time under a second heap entry
            if deadline.due_at_ms > now_ms:
                self._enqueue_deadline(key, deadline.due_at_ms)
                continue
            del self._deadlines[key]
            return key
        return None

    def _enqueue_deadline(self, key: DeadlineKey, at_ms: int) -> None:
        self._deadlines[key] = _Deadline(at_ms, at_ms)
        heapq.heappush(self._queue, (at_ms, key))
        if len(self._queue) > QUEUE_REBUILD_LENGTH_MIN + 2 * len(self._deadlines):
            self._queue = [(deadline.queued_at_ms, key) for key, deadline in self._deadlines.items()]
            heapq.heapify(self._queue)


class PendingAssignment(msgspec.Struct, frozen=True):
    """A pending write of the partition assignment. The group becomes stable when the write is complete."""

    generation: int
    assignments: dict[str, bytes]


class PendingEmptyGroup(msgspec.Struct, frozen=True):
    """A pending write of a group without members. When it is complete, the last LeaveGroup requests get their
    responses.
    """

    leavers: list[tuple[int, LeaveResult]] = msgspec.field(default_factory=list)


class PendingReplacement(msgspec.Struct, frozen=True):
    """A pending write of a restarted static member's new id, after which the member rejoins without a rebalance."""

    member_id: str
    waiter: int
    generation: int
    result: JoinResult


class PendingMemberId(msgspec.Struct, frozen=True):
    """A pending write of a static member's new member id during a rebalance, which waits for the write."""


class PendingDeletion(msgspec.Struct, frozen=True):
    """A pending write that deletes the consumer group."""

    waiter: int


PendingStore = PendingAssignment | PendingEmptyGroup | PendingReplacement | PendingMemberId | PendingDeletion

GroupReply = JoinResult | SyncResult | LeaveResult | ErrorCode

_MEMBER_ID_WRITES = PendingEmptyGroup | PendingReplacement | PendingMemberId


class GroupSnapshot(msgspec.Struct, frozen=True):
    """The stored state of a consumer group, from which another coordinator continues the current generation."""

    group_id: str
    generation: int
    protocol_type: str | None
    protocol_name: str | None
    leader: str | None
    members: tuple[GroupMember, ...]

    def to_command(self, epoch: int, time_ms: int) -> UpdateConsumerGroup:
        """Return the metadata command that stores this state of the group."""
        return UpdateConsumerGroup(
            group_id=self.group_id,
            protocol_type=self.protocol_type or "",
            generation=self.generation,
            protocol_name=self.protocol_name,
            leader=self.leader,
            state=GroupState.STABLE.value if self.members else GroupState.EMPTY.value,
            members=self.members,
            time_ms=time_ms,
            coordinator_epoch=epoch,
        )


class GroupDeletion(msgspec.Struct, frozen=True):
    """A change that deletes a consumer group from the metadata."""

    group_id: str

    def to_command(self, epoch: int, time_ms: int) -> DeleteConsumerGroup:
        """Return the metadata command that deletes the consumer group."""
        return DeleteConsumerGroup(self.group_id, epoch)


class ClassicGroupState:
    """The state of a consumer group that uses the classic protocol (JoinGroup and SyncGroup)."""

    def __init__(
        self, group_id: str, config: GroupConfig, epoch: int = NO_EPOCH, state: GroupState = GroupState.EMPTY
    ) -> None:
        self.key = group_id
        self.config = config
        self.epoch = epoch
        """Epoch of the coordinator term. Every command that stores the group contains it."""
        self.lifecycle = GroupLifecycle(group_id, state)
        self.generation = 0
        self.protocol_type: str | None = None
        self.protocol_name: str | None = None
        self.members = GroupMembers()
        self.deadlines = GroupDeadlines()
        self.now_ms = 0
        self.is_stored = False
        """Whether the group is stored in the metadata. A stored group remains when its last member leaves."""
        self.pending_stores: dict[int, PendingStore] = {}
        """The writes whose outcome is not known yet, by ticket."""
        self.last_snapshot: GroupSnapshot | None = None
        """The group state that was last stored or loaded."""
        self.has_unstored_member_ids = False
        """Whether the metadata may still contain an outdated member id of a static member."""
        self.assignments_bytes = 0
        """Total size in bytes of the members' stored assignments."""
        self.has_joined_during_delay = False
        self.initial_delay_ms = 0
        self.remaining_initial_delay_ms = 0
        self.outbox: list[Instruction] = []
        self._last_ticket = 0

    @property
    def state(self) -> GroupState:
        return self.lifecycle.state

    def transition_to(self, target: GroupState, reason: str) -> None:
        self.lifecycle.transition_to(target, self.generation, reason)

    def reply(self, waiter: int | None, result: GroupReply) -> None:
        """Send a reply to a waiting request, if there is one."""
        if waiter is not None:
            self.outbox.append(StateMachineReply(waiter, result))

    def reply_to_join(self, member: ClassicMember, result: JoinResult) -> None:
        self.reply(self.members.set_join_waiter(member, None), result)

    def reply_to_sync(self, member: ClassicMember, result: SyncResult) -> None:
        self.reply(member.sync_waiter, result)
        member.sync_waiter = None

    def store_change(self, pending: PendingStore, what: StoredStateChange) -> None:
        """Write a change of the group to the metadata. `pending` determines how to continue after the write."""
        self._last_ticket += 1
        self.pending_stores[self._last_ticket] = pending
        self.outbox.append(StoreState(self._last_ticket, what))

    def store_group(self, pending: PendingStore, assignments: dict[str, bytes] | None = None) -> None:
        """Write the group's state to the metadata. If given, `assignments` replaces the current assignments."""
        self._store_snapshot(pending, self.take_snapshot(assignments))

    def store_member_id(self, member: ClassicMember) -> None:
        """Store the new member id of a static member that rejoins during a rebalance, within the current generation.

        Otherwise, the next coordinator would load the old id and fence the running client.
        """
        sent, instance = self.last_snapshot, member.group_instance_id
        if sent is None or instance is None:
            return
        old_id = next((each.member_id for each in sent.members if each.group_instance_id == instance), None)
        if old_id is None:
            return
        members = tuple(
            replace(each, member_id=member.member_id) if each.member_id == old_id else each for each in sent.members
        )
        leader = member.member_id if sent.leader == old_id else sent.leader
        self._store_snapshot(PendingMemberId(), replace(sent, members=members, leader=leader))

    def store_member_ids(self) -> bool:
        """Store the static members' new member ids. Return whether all of them had been stored before.

        A write that failed earlier is sent again.
        """
        if not self.has_unstored_member_ids or all(member.group_instance_id is None for member in self.members):
            return True
        if self.last_snapshot is not None and not self.is_storing_member_ids:
            self._store_snapshot(PendingMemberId(), self.last_snapshot)
        return False

    @property
    def is_storing_member_ids(self) -> bool:
        return any(isinstance(pending, _MEMBER_ID_WRITES) for pending in self.pending_stores.values())

    def _store_snapshot(self, pending: PendingStore, group: GroupSnapshot) -> None:
        self.last_snapshot = group
        self.has_unstored_member_ids |= isinstance(pending, _MEMBER_ID_WRITES)
        self.store_change(pending, group)

    def take_snapshot(self, assignments: dict[str, bytes] | None = None) -> GroupSnapshot:
        """Return the group's state in its stored form. If given, `assignments` replaces the current assignments."""
        members = tuple(
            GroupMember(
                member.member_id,
                member.group_instance_id,
                member.client_id,
                member.client_host,
                member.session_timeout_ms,
                member.rebalance_timeout_ms,
                member.protocols,
                member.assignment if assignments is None else assignments[member.member_id],
            )
            for member in self.members
        )
        leader = self.members.leader
        return GroupSnapshot(self.key, self.generation, self.protocol_type, self.protocol_name, leader, members)

    def reset_session_timeout(self, member: ClassicMember) -> None:
        self.deadlines.set(GroupDeadlineKind.SESSION, self.now_ms + member.session_timeout_ms, member.member_id)

    def remove_member(self, member: ClassicMember) -> None:
        """Remove a member and reject its waiting requests with UNKNOWN_MEMBER_ID, so that a live client rejoins."""
        self.reply_to_join(member, JoinResult(ErrorCode.UNKNOWN_MEMBER_ID, ""))
        self.reply_to_sync(member, SyncResult(ErrorCode.UNKNOWN_MEMBER_ID))
        self.deadlines.cancel(GroupDeadlineKind.SESSION, member.member_id)
        self.members.remove(member.member_id)
        self.assignments_bytes -= len(member.assignment)

    def remove_pending_member(self, member_id: str) -> None:
        self.deadlines.cancel(GroupDeadlineKind.SESSION, member_id)
        self.members.pending_member_ids.discard(member_id)

    def build_join_result(self, member: ClassicMember) -> JoinResult:
        """Return the JoinGroup result for a member of this generation. Only the leader receives the member list."""
        visible_members = self.members if member.member_id == self.members.leader else ()
        members = tuple(
            JoinedMember(each.member_id, each.group_instance_id, each.metadata(self.protocol_name))
            for each in visible_members
        )
        return JoinResult(
            ErrorCode.NONE,
            member.member_id,
            self.generation,
            self.protocol_type,
            self.protocol_name,
            self.members.leader or "",
            members,
        )
