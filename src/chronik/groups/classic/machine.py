"""A classic consumer group as a state machine: `handle` takes an event and returns instructions, and is the only way
to change the group. Same group, same event, same instructions: no clock, no random numbers, no waiting in here.
`coordination.machine` says what its driver owes it.
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
    @classmethod
    def load(cls, stored: Group, config: GroupConfig, now_ms: int, epoch: int = NO_EPOCH) -> ClassicGroup:
        """Goes on where another term stopped. Every member gets a full session: nobody took its heartbeats."""
        group = cls(stored.group_id, config, epoch, GroupState.STABLE if stored.members else GroupState.EMPTY)
        group.now_ms = now_ms
        group.is_stored = True
        group.generation = stored.generation
        group.protocol_type = stored.protocol_type or None
        group.protocol_name = stored.protocol_name
        for member in stored.members:
            group.roster.add(Member(*astuple(member)))  # its first fields are those that are stored
            group.restart_session(group.roster[member.member_id])
        if stored.leader is not None and stored.leader in group.roster:
            group.roster.leader = stored.leader
        group.assignments_bytes = sum(len(member.assignment) for member in stored.members)
        group.sent = group.snapshot()
        return group

    def handle(self, event: Event) -> list[Instruction]:
        """Raises IllegalTransition or InvariantBroken when the group itself is wrong, which is a bug."""
        self.now_ms = max(self.now_ms, event.now_ms)
        if self.state is GroupState.DEAD:
            self._answer_for_the_dead(event)
        else:
            self._dispatch(event)
            self._bury_if_unused()
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
                    self._expire(key)
            case Stored():
                self._stored(self.awaited.pop(event.ticket), None)
            case StoreFailed():
                self._stored(self.awaited.pop(event.ticket), event.error)
            case events.OffsetsStored():
                self.is_stored = True
            case Dropped():
                self.is_stored = False
            case TakenOver():
                self._let_go()
            case _:
                raise InvariantBroken(f"a classic group knows no {event!r}")

    def _expire(self, key: DeadlineKey) -> None:
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

    def _stored(self, awaited: Awaited, error: ErrorCode | None) -> None:
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
                pass  # the round that waits for it is told below, or looks again a little later and sends it once more
            case DeletionAwaited():
                deletion_stored(self, awaited, error)
        if error is None:
            complete_join_when_all_joined(self)  # it may have waited until static members' ids were stored

    def _let_go(self) -> None:
        """Sends everybody who waits to look for the new coordinator."""
        for member in self.roster:
            self.answer_join(member, JoinResult(ErrorCode.NOT_COORDINATOR, member.member_id))
            self.answer_sync(member, SyncResult(ErrorCode.NOT_COORDINATOR))
        for awaited in self.awaited.values():
            if isinstance(awaited, EmptinessAwaited):
                emptiness_stored(self, awaited, ErrorCode.NOT_COORDINATOR)
            elif isinstance(awaited, DeletionAwaited):
                self.reply(awaited.waiter, ErrorCode.NOT_COORDINATOR)
        self.awaited.clear()
        self._die("another node takes over")

    def _bury_if_unused(self) -> None:
        """Drops a group that was deleted, or only ever gave out ids: it must not stay in memory."""
        if self.is_idle and not self.is_stored:
            self._die("nothing of it is stored")

    def _die(self, reason: str) -> None:
        self.deadlines.clear()
        self.move(GroupState.DEAD, reason)
        self.outbox.append(Forget())

    def _answer_for_the_dead(self, event: Event) -> None:
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
                pass  # news about time or the store no longer matter

    def _check(self) -> None:
        size = len(self.roster)
        invariant(self.state is not GroupState.EMPTY or size == 0, "an empty group has no members")
        if self.state in (GroupState.STABLE, GroupState.COMPLETING_REBALANCE):
            invariant(self.roster.leader is not None, "a generation has a leader")
            invariant(self.protocol_name is not None, "a generation has a protocol")

    def check_thoroughly(self) -> None:
        """Walks over all members: for tests and simulations."""
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
        """Roughly the memory that its members take."""
        return len(self.key) + self.roster.memory_bytes + self.assignments_bytes

    def growth_of_join(self, request: JoinRequest) -> int:
        """Returns how many bytes more it would hold, without what the replaced member, if any, took before."""
        roster = self.roster
        member = roster.get(roster.member_id_of_instance(request.group_instance_id) or request.member_id)
        known = 0
        if member is not None:
            known = size_of(member.protocols) + size_of_names(member.client_id, member.group_instance_id)
        return size_of_join(request) - known

    def growth_of_sync(self, request: SyncRequest) -> int:
        """Returns how many bytes more it would hold; the assignments replace those in force."""
        return sum(len(assignment) for _, assignment in request.assignments) - self.assignments_bytes

    @property
    def is_idle(self) -> bool:
        """Whether nobody is in it or about to join, and nothing of it is on its way to the store."""
        return self.is_empty and not (self.roster.pending or self.awaited)

    def subscribed_among(self, topics: Iterable[str]) -> frozenset[str]:
        """Returns the topics subscribed to; all, if the subscriptions of a group of consumers cannot be read."""
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
