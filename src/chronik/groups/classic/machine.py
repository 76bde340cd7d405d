"""A classic consumer group as a deterministic state machine: `handle` takes an event and returns instructions.

`handle` is the only way to change a group. It reads no clock, draws no random numbers and never waits.
`coordination.machine` describes what the host of a state machine must do.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import astuple

from chronik.coordination.machine import (
    Dropped,
    Event,
    Forget,
    Instruction,
    Question,
    Stored,
    StoreFailed,
    TakenOver,
    TimePassed,
)
from chronik.errors import InvariantBroken, invariant
from chronik.groups import events
from chronik.groups.classic.core import (
    AssignmentAwaited,
    Awaited,
    DeletionAwaited,
    EmptinessAwaited,
    GroupCore,
    NewIdAwaited,
    ReplacementAwaited,
)
from chronik.groups.classic.deadlines import DeadlineKey, DeadlineKind
from chronik.groups.classic.joining import join, replacement_stored, size_of_join
from chronik.groups.classic.membership import (
    check_commit,
    delete,
    deletion_stored,
    emptiness_stored,
    expire_session,
    heartbeat,
    leave,
    retry_emptiness,
)
from chronik.groups.classic.rebalancing import complete_join, complete_join_when_all_joined, end_initial_delay
from chronik.groups.classic.roster import Member, size_of, size_of_names
from chronik.groups.classic.syncing import assignment_stored, expire_sync, sync
from chronik.groups.classic.transitions import GroupState
from chronik.groups.config import GroupConfig
from chronik.groups.requests import (
    DescribedGroup,
    DescribedMember,
    JoinRequest,
    JoinResult,
    LeaveResult,
    ListedGroup,
    SyncRequest,
    SyncResult,
)
from chronik.groups.subscription import CONSUMER_PROTOCOL_TYPE, subscribed_topics
from chronik.metadata.commands.base import NO_EPOCH
from chronik.metadata.records import Group
from chronik.protocol.errors import ErrorCode


class ClassicGroup(GroupCore):
    """The state machine of one classic consumer group."""

    @classmethod
    def load(cls, stored: Group, config: GroupConfig, now_ms: int, epoch: int = NO_EPOCH) -> ClassicGroup:
        """Restore a group that another coordinator stored. Every member starts a new session timeout."""
        group = cls(stored.group_id, config, epoch, GroupState.STABLE if stored.members else GroupState.EMPTY)
        group.now_ms = now_ms
        group.is_stored = True
        group.generation = stored.generation
        group.protocol_type = stored.protocol_type or None
        group.protocol_name = stored.protocol_name
        for member in stored.members:
            group.roster.add(Member(*astuple(member)))  # the first fields of both structs are the same
            group.restart_session(group.roster[member.member_id])
        if stored.leader is not None and stored.leader in group.roster:
            group.roster.leader = stored.leader
        group.assignments_bytes = sum(len(member.assignment) for member in stored.members)
        group.sent = group.snapshot()
        return group

    def handle(self, event: Event) -> list[Instruction]:
        """Apply an event and return the instructions that follow from it.

        Raises:
            InvariantBroken: The group is inconsistent, which is a bug. `IllegalGroupTransition` is a subclass.
        """
        self.now_ms = max(self.now_ms, event.now_ms)
        if self.state is GroupState.DEAD:
            self._reply_when_dead(event)
        else:
            self._dispatch(event)
            self._unload_if_unused()
        self._check()
        instructions, self.outbox = self.outbox, []
        return instructions

    def _dispatch(self, event: Event) -> None:
        match event:
            case events.JoinAsked():
                join(self, event)
            case events.SyncAsked():
                sync(self, event)
            case events.HeartbeatAsked():
                heartbeat(self, event)
            case events.LeaveAsked():
                leave(self, event)
            case events.CommitAsked():
                check_commit(self, event)
            case events.DeletionAsked():
                delete(self, event)
            case TimePassed():
                while (key := self.deadlines.take_first_due(self.now_ms)) is not None:
                    self._on_deadline(key)
            case Stored():
                self._on_stored(self.awaited.pop(event.ticket), None)
            case StoreFailed():
                self._on_stored(self.awaited.pop(event.ticket), event.error)
            case events.OffsetsStored():
                self.is_stored = True
            case Dropped():
                self.is_stored = False
            case TakenOver():
                self._on_coordinator_changed()
            case _:
                raise InvariantBroken(f"a classic group cannot handle the event {event!r}")

    def _on_deadline(self, key: DeadlineKey) -> None:
        kind, member_id = key
        match kind:
            case DeadlineKind.SESSION:
                expire_session(self, member_id)
            case DeadlineKind.INITIAL_DELAY:
                end_initial_delay(self)
            case DeadlineKind.JOIN:
                complete_join(self)
            case DeadlineKind.SYNC:
                expire_sync(self)
            case DeadlineKind.EMPTINESS_RETRY:
                retry_emptiness(self)

    def _on_stored(self, awaited: Awaited, error: ErrorCode | None) -> None:
        if error is None:
            self.is_stored = True
            self.ids_are_behind = self.is_storing_ids
        match awaited:
            case AssignmentAwaited():
                assignment_stored(self, awaited, error)
            case EmptinessAwaited():
                emptiness_stored(self, awaited, error)
            case ReplacementAwaited():
                replacement_stored(self, awaited, error)
            case NewIdAwaited():
                pass  # the rebalance that waits for the id completes below, or retries after a delay
            case DeletionAwaited():
                deletion_stored(self, awaited, error)
        if error is None:
            complete_join_when_all_joined(self)  # the rebalance may have waited for static member ids to be stored

    def _on_coordinator_changed(self) -> None:
        """Reject all waiting requests with NOT_COORDINATOR, so that clients look up the new coordinator."""
        for member in self.roster:
            self.answer_join(member, JoinResult(ErrorCode.NOT_COORDINATOR, member.member_id))
            self.answer_sync(member, SyncResult(ErrorCode.NOT_COORDINATOR))
        for awaited in self.awaited.values():
            if isinstance(awaited, EmptinessAwaited):
                emptiness_stored(self, awaited, ErrorCode.NOT_COORDINATOR)
            elif isinstance(awaited, DeletionAwaited):
                self.reply(awaited.waiter, ErrorCode.NOT_COORDINATOR)
        self.awaited.clear()
        self._unload("another node takes over")

    def _unload_if_unused(self) -> None:
        """Unload a group that was deleted or never stored, so that it does not stay in memory."""
        if self.is_idle and not self.is_stored:
            self._unload("nothing of it is stored")

    def _unload(self, reason: str) -> None:
        self.deadlines.clear()
        self.move(GroupState.DEAD, reason)
        self.outbox.append(Forget())

    def _reply_when_dead(self, event: Event) -> None:
        error = ErrorCode.COORDINATOR_NOT_AVAILABLE
        match event:
            case events.JoinAsked():
                self.reply(event.waiter, JoinResult(error, event.request.member_id))
            case events.SyncAsked():
                self.reply(event.waiter, SyncResult(error))
            case events.LeaveAsked():
                self.reply(event.waiter, LeaveResult(error))
            case Question():
                self.reply(event.waiter, error)
            case _:
                pass  # timers and store confirmations no longer matter

    def _check(self) -> None:
        size = len(self.roster)
        invariant(self.state is not GroupState.EMPTY or size == 0, "an empty group has no members")
        if self.state in (GroupState.STABLE, GroupState.COMPLETING_REBALANCE):
            invariant(self.roster.leader is not None, "a generation has a leader")
            invariant(self.protocol_name is not None, "a generation has a protocol")

    def check_thoroughly(self) -> None:
        """Verify all invariants by iterating over all members. Used by tests and simulations."""
        self._check()
        self.roster.check()

    @property
    def is_empty(self) -> bool:
        return self.state is GroupState.EMPTY

    @property
    def is_stable(self) -> bool:
        return self.state is GroupState.STABLE

    @property
    def wake_at_ms(self) -> int | None:
        return self.deadlines.wake_at_ms

    @property
    def memory_bytes(self) -> int:
        """Approximate memory of the group and its members."""
        return len(self.key) + self.roster.memory_bytes + self.assignments_bytes

    def growth_of_join(self, request: JoinRequest) -> int:
        """Return by how many bytes a join request would increase the group, less the size of the member it replaces."""
        roster = self.roster
        member = roster.get(roster.member_id_of_instance(request.group_instance_id) or request.member_id)
        replaced_bytes = 0
        if member is not None:
            replaced_bytes = size_of(member.protocols) + size_of_names(member.client_id, member.group_instance_id)
        return size_of_join(request) - replaced_bytes

    def growth_of_sync(self, request: SyncRequest) -> int:
        """Return by how many bytes a sync request would increase the group. New assignments replace current ones."""
        return sum(len(assignment) for _, assignment in request.assignments) - self.assignments_bytes

    @property
    def is_idle(self) -> bool:
        """Whether the group has no members, no pending member ids and no unconfirmed writes."""
        return self.is_empty and not (self.roster.pending or self.awaited)

    def subscribed_among(self, topics: Iterable[str]) -> frozenset[str]:
        """Return which of the topics the members subscribe to; all of them if a subscription cannot be decoded."""
        if self.protocol_type != CONSUMER_PROTOCOL_TYPE:
            return frozenset()
        subscribed = subscribed_topics(member.metadata(self.protocol_name) for member in self.roster)
        return frozenset(topics) if subscribed is None else subscribed.intersection(topics)

    def describe(self) -> DescribedGroup:
        is_stable = self.is_stable
        members = tuple(
            DescribedMember(
                member.member_id,
                member.group_instance_id,
                member.client_id,
                member.client_host,
                member.metadata(self.protocol_name) if is_stable else b"",
                member.assignment if is_stable else b"",
            )
            for member in self.roster
        )
        protocol_name = self.protocol_name if is_stable else None
        return DescribedGroup(self.key, self.state, self.protocol_type or "", protocol_name or "", members)

    def list_entry(self) -> ListedGroup:
        return ListedGroup(self.key, self.protocol_type or "", self.state)
