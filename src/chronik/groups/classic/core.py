"""The data of one group and the few primitive changes that all its handlers are made of."""

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
    """The leader's assignment is being stored; with it the generation becomes stable."""

    generation: int
    assignments: dict[str, bytes]


class EmptinessAwaited(msgspec.Struct, frozen=True):
    """The group without members is being stored; those whose leaving emptied it are answered then."""

    leavers: list[tuple[int, LeaveResult]] = msgspec.field(default_factory=list)


class ReplacementAwaited(msgspec.Struct, frozen=True):
    """A static member's new id is being stored; then its join is answered without a rebalance."""

    member_id: str
    waiter: int
    generation: int
    answer: JoinResult


class NewIdAwaited(msgspec.Struct, frozen=True):
    """A static member's new id is being stored while its group rebalances; the round ends only after that."""


class DeletionAwaited(msgspec.Struct, frozen=True):
    waiter: int


Awaited = AssignmentAwaited | EmptinessAwaited | ReplacementAwaited | NewIdAwaited | DeletionAwaited

Answer = JoinResult | SyncResult | LeaveResult | ErrorCode

_ID_CHANGES = EmptinessAwaited | ReplacementAwaited | NewIdAwaited


class StoredGroup(msgspec.Struct, frozen=True):
    """What is stored of a group: enough to go on with the same generation elsewhere."""

    group_id: str
    generation: int
    protocol_type: str | None
    protocol_name: str | None
    leader: str | None
    members: tuple[GroupMember, ...]

    def as_command(self, epoch: int, time_ms: int) -> UpdateConsumerGroup:
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
    group_id: str

    def as_command(self, epoch: int, time_ms: int) -> DeleteConsumerGroup:
        return DeleteConsumerGroup(self.group_id, epoch)


class GroupCore:
    """Only the handlers of this package change it, and only while an event is being handled."""

    def __init__(
        self, group_id: str, config: GroupConfig, epoch: int = NO_EPOCH, state: GroupState = GroupState.EMPTY
    ) -> None:
        self.key = group_id
        self.config = config
        self.epoch = epoch
        """The epoch of the coordinator's term, with which all that the group stores is marked."""
        self.lifecycle = Lifecycle(group_id, state)
        self.generation = 0
        self.protocol_type: str | None = None
        self.protocol_name: str | None = None
        self.roster = Roster()
        self.deadlines = Deadlines()
        self.now_ms = 0
        self.is_stored = False
        """Whether the metadata store knows the group, so that it may outlive its last member."""
        self.awaited: dict[int, Awaited] = {}
        """What happens once the store has answered, by ticket."""
        self.sent: StoredGroup | None = None
        """The group as it was last sent to the store, or found there."""
        self.ids_are_behind = False
        """Whether the store may still know a static member under an old id."""
        self.assignments_bytes = 0
        """The size of the assignments that were stored last."""
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

    def reply(self, waiter: int | None, answer: Answer) -> None:
        if waiter is not None:
            self.outbox.append(Reply(waiter, answer))

    def answer_join(self, member: Member, answer: JoinResult) -> None:
        self.reply(self.roster.set_join_waiter(member, None), answer)

    def answer_sync(self, member: Member, answer: SyncResult) -> None:
        self.reply(member.sync_waiter, answer)
        member.sync_waiter = None

    def store(self, awaited: Awaited, what: Storable) -> None:
        self._last_ticket += 1
        self.awaited[self._last_ticket] = awaited
        self.outbox.append(Store(self._last_ticket, what))

    def store_group(self, awaited: Awaited, assignments: dict[str, bytes] | None = None) -> None:
        """Stores the group; with `assignments`, these instead of those in force, which they replace once stored."""
        self._send(awaited, self.snapshot(assignments))

    def store_new_id(self, member: Member) -> None:
        """Stores the new id of a static member that comes back during a rebalance, in the last stored generation. With
        the old id, the next coordinator would take the living process for one that was replaced long ago, and fence
        it."""
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
        self._send(NewIdAwaited(), replace(sent, members=members, leader=leader))

    def store_ids(self) -> bool:
        """Returns whether the store knows the static members of this round by their current ids. If not, those are on
        their way; what could not be stored is sent again."""
        if not self.ids_are_behind or all(member.group_instance_id is None for member in self.roster):
            return True
        if self.sent is not None and not self.is_storing_ids:
            self._send(NewIdAwaited(), self.sent)
        return False

    @property
    def is_storing_ids(self) -> bool:
        return any(isinstance(awaited, _ID_CHANGES) for awaited in self.awaited.values())

    def _send(self, awaited: Awaited, group: StoredGroup) -> None:
        self.sent = group
        self.ids_are_behind |= isinstance(awaited, _ID_CHANGES)
        self.store(awaited, group)

    def snapshot(self, assignments: dict[str, bytes] | None = None) -> StoredGroup:
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
        """Removes it. A client that waits under its id learns so, and will come back if it is alive."""
        self.answer_join(member, JoinResult(ErrorCode.UNKNOWN_MEMBER_ID, ""))
        self.answer_sync(member, SyncResult(ErrorCode.UNKNOWN_MEMBER_ID))
        self.deadlines.cancel(DeadlineKind.SESSION, member.member_id)
        self.roster.remove(member.member_id)
        self.assignments_bytes -= len(member.assignment)

    def remove_pending(self, member_id: str) -> None:
        self.deadlines.cancel(DeadlineKind.SESSION, member_id)
        self.roster.pending.discard(member_id)

    def joined(self, member: Member) -> JoinResult:
        """Returns the answer to a join in the current generation; only the leader learns who the others are."""
        told_of = self.roster if member.member_id == self.roster.leader else ()
        members = tuple(
            JoinedMember(each.member_id, each.group_instance_id, each.metadata(self.protocol_name)) for each in told_of
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
