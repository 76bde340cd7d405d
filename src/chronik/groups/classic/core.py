"""The state of one classic group and the primitive operations that its request handlers use."""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from chronik.coordination.machine import Instruction, Reply, Storable, Store
from chronik.groups.classic.deadlines import DeadlineKind, Deadlines
from chronik.groups.classic.roster import Member, Roster
from chronik.groups.classic.transitions import GroupState, Lifecycle
from chronik.groups.config import GroupConfig
from chronik.groups.requests import JoinedMember, JoinResult, LeaveResult, SyncResult
from chronik.metadata.commands.base import NO_EPOCH
from chronik.metadata.commands.groups import DeleteConsumerGroup, GroupMember, UpdateConsumerGroup
from chronik.protocol.errors import ErrorCode


class AssignmentAwaited(msgspec.Struct, frozen=True):
    """The leader's assignment is being stored. The generation becomes stable when the store confirms it."""

    generation: int
    assignments: dict[str, bytes]


class EmptinessAwaited(msgspec.Struct, frozen=True):
    """The group without members is being stored. Members that left receive their responses when it is stored."""

    leavers: list[tuple[int, LeaveResult]] = msgspec.field(default_factory=list)


class ReplacementAwaited(msgspec.Struct, frozen=True):
    """A restarted static member's new member id is being stored. Then its join completes without a rebalance."""

    member_id: str
    waiter: int
    generation: int
    answer: JoinResult


class NewIdAwaited(msgspec.Struct, frozen=True):
    """A static member's new member id is being stored during a rebalance, which cannot complete before that."""


class DeletionAwaited(msgspec.Struct, frozen=True):
    """The deletion of the group is being stored."""

    waiter: int


Awaited = AssignmentAwaited | EmptinessAwaited | ReplacementAwaited | NewIdAwaited | DeletionAwaited

GroupReply = JoinResult | SyncResult | LeaveResult | ErrorCode

_MEMBER_ID_WRITES = EmptinessAwaited | ReplacementAwaited | NewIdAwaited


class StoredGroup(msgspec.Struct, frozen=True):
    """The persistent part of a group, from which another coordinator continues the same generation."""

    group_id: str
    generation: int
    protocol_type: str | None
    protocol_name: str | None
    leader: str | None
    members: tuple[GroupMember, ...]

    def as_command(self, epoch: int, time_ms: int) -> UpdateConsumerGroup:
        """Return the metadata command that stores this snapshot."""
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


class DeletedGroup(msgspec.Struct, frozen=True):
    """The deletion of a group, as a change for the metadata store."""

    group_id: str

    def as_command(self, epoch: int, time_ms: int) -> DeleteConsumerGroup:
        """Return the metadata command that deletes the group."""
        return DeleteConsumerGroup(self.group_id, epoch)


class GroupCore:
    """The state of a classic group. Only the handlers of this package change it, while they handle an event."""

    def __init__(
        self, group_id: str, config: GroupConfig, epoch: int = NO_EPOCH, state: GroupState = GroupState.EMPTY
    ) -> None:
        self.key = group_id
        self.config = config
        self.epoch = epoch
        """The epoch of the coordinator's term. Every command that the group stores carries it."""
        self.lifecycle = Lifecycle(group_id, state)
        self.generation = 0
        self.protocol_type: str | None = None
        self.protocol_name: str | None = None
        self.roster = Roster()
        self.deadlines = Deadlines()
        self.now_ms = 0
        self.is_stored = False
        """Whether the metadata store knows the group. A stored group is kept when its last member leaves."""
        self.awaited: dict[int, Awaited] = {}
        """The writes that the store has not confirmed yet, by ticket."""
        self.sent: StoredGroup | None = None
        """The snapshot that was last sent to the store or loaded from it."""
        self.ids_are_behind = False
        """Whether the store may still have an old member id of a static member."""
        self.assignments_bytes = 0
        """Total size of the assignments that were stored last."""
        self.joined_during_delay = False
        self.initial_delay_ms = 0
        self.initial_delay_left_ms = 0
        self.outbox: list[Instruction] = []
        self._last_ticket = 0

    @property
    def state(self) -> GroupState:
        return self.lifecycle.state

    def move(self, target: GroupState, reason: str) -> None:
        self.lifecycle.move(target, self.generation, reason)

    def reply(self, waiter: int | None, result: GroupReply) -> None:
        """Send a reply to a waiting request, if there is one."""
        if waiter is not None:
            self.outbox.append(Reply(waiter, result))

    def answer_join(self, member: Member, result: JoinResult) -> None:
        self.reply(self.roster.set_join_waiter(member, None), result)

    def answer_sync(self, member: Member, result: SyncResult) -> None:
        self.reply(member.sync_waiter, result)
        member.sync_waiter = None

    def store(self, pending: Awaited, what: Storable) -> None:
        """Send a change to the store and remember what to do when the store confirms it."""
        self._last_ticket += 1
        self.awaited[self._last_ticket] = pending
        self.outbox.append(Store(self._last_ticket, what))

    def store_group(self, pending: Awaited, assignments: dict[str, bytes] | None = None) -> None:
        """Store a snapshot of the group, with new `assignments` in place of the current ones if given."""
        self._store_snapshot(pending, self.snapshot(assignments))

    def store_new_id(self, member: Member) -> None:
        """Store the new member id of a static member that rejoins during a rebalance, in the last stored generation.

        If the store kept the old id, the next coordinator would consider the running process a replaced one and fence
        it.
        """
        sent, instance = self.sent, member.group_instance_id
        if sent is None or instance is None:
            return
        old_id = next((each.member_id for each in sent.members if each.group_instance_id == instance), None)
        if old_id is None:
            return
        members = tuple(
            replace(each, member_id=member.member_id) if each.member_id == old_id else each for each in sent.members
        )
        leader = member.member_id if sent.leader == old_id else sent.leader
        self._store_snapshot(NewIdAwaited(), replace(sent, members=members, leader=leader))

    def store_ids(self) -> bool:
        """Return whether the store has the current member ids of all static members; otherwise store them.

        A write that failed earlier is sent again.
        """
        if not self.ids_are_behind or all(member.group_instance_id is None for member in self.roster):
            return True
        if self.sent is not None and not self.is_storing_ids:
            self._store_snapshot(NewIdAwaited(), self.sent)
        return False

    @property
    def is_storing_ids(self) -> bool:
        return any(isinstance(pending, _MEMBER_ID_WRITES) for pending in self.awaited.values())

    def _store_snapshot(self, pending: Awaited, group: StoredGroup) -> None:
        self.sent = group
        self.ids_are_behind |= isinstance(pending, _MEMBER_ID_WRITES)
        self.store(pending, group)

    def snapshot(self, assignments: dict[str, bytes] | None = None) -> StoredGroup:
        """Return the persistent state of the group, with `assignments` in place of the current ones if given."""
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
            for member in self.roster
        )
        leader = self.roster.leader
        return StoredGroup(self.key, self.generation, self.protocol_type, self.protocol_name, leader, members)

    def restart_session(self, member: Member) -> None:
        self.deadlines.set(DeadlineKind.SESSION, self.now_ms + member.session_timeout_ms, member.member_id)

    def remove_member(self, member: Member) -> None:
        """Remove a member and reject its waiting requests with UNKNOWN_MEMBER_ID, so that a live client rejoins."""
        self.answer_join(member, JoinResult(ErrorCode.UNKNOWN_MEMBER_ID, ""))
        self.answer_sync(member, SyncResult(ErrorCode.UNKNOWN_MEMBER_ID))
        self.deadlines.cancel(DeadlineKind.SESSION, member.member_id)
        self.roster.remove(member.member_id)
        self.assignments_bytes -= len(member.assignment)

    def remove_pending(self, member_id: str) -> None:
        self.deadlines.cancel(DeadlineKind.SESSION, member_id)
        self.roster.pending.discard(member_id)

    def joined(self, member: Member) -> JoinResult:
        """Return the JoinGroup result for a member of the current generation. Only the leader gets the member list."""
        visible_members = self.roster if member.member_id == self.roster.leader else ()
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
            self.roster.leader or "",
            members,
        )
