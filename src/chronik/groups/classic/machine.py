"""A classic consumer group as a state machine: `handle` takes an event and returns instructions, and is the only way
to change the group. Same group, same event, same instructions: no clock, no random numbers, no waiting in here.

The driver owes it three things: it feeds back `Stored` or `StoreFailed` for every ticket, in the order the tickets were
issued; it sends a `TimePassed` no later than a moment after `wake_at_ms`; and it drops the group on `Forget`.
"""

from __future__ import annotations

from collections.abc import Iterable

from chronik.errors import invariant
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
from chronik.groups.classic.joining import join, replacement_stored
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
from chronik.groups.classic.transitions import GroupState, Step
from chronik.groups.config import GroupConfig
from chronik.groups.requests import (
    DescribedGroup,
    DescribedMember,
    JoinRequest,
    JoinResult,
    LeaveResult,
    ListedGroup,
    SyncResult,
)
from chronik.groups.subscription import CONSUMER_PROTOCOL_TYPE, subscribed_topics
from chronik.metadata.commands import NO_EPOCH
from chronik.metadata.records import Group
from chronik.protocol.errors import ErrorCode


class ClassicGroup:
    def __init__(self, group_id: str, config: GroupConfig, epoch: int = NO_EPOCH) -> None:
        """`epoch` is that of the coordinator's term, with which all that the group stores is marked."""
        self._core = GroupCore(group_id, config, epoch)

    @classmethod
    def load(cls, stored: Group, config: GroupConfig, now_ms: int, epoch: int = NO_EPOCH) -> ClassicGroup:
        """Goes on where another term stopped. Every member gets a full session: nobody took its heartbeats."""
        group = cls(stored.group_id, config, epoch)
        state = GroupState.STABLE if stored.members else GroupState.EMPTY
        core = group._core = GroupCore(stored.group_id, config, epoch, state)
        core.now_ms = now_ms
        core.is_stored = True
        core.generation = stored.generation
        core.protocol_type = stored.protocol_type or None
        core.protocol_name = stored.protocol_name
        for member in stored.members:
            core.roster.add(
                Member(
                    member.member_id,
                    member.group_instance_id,
                    member.client_id,
                    member.client_host,
                    member.session_timeout_ms,
                    member.rebalance_timeout_ms,
                    member.protocols,
                    member.assignment,
                )
            )
            core.restart_session(core.roster[member.member_id])
        if stored.leader is not None and stored.leader in core.roster:
            core.roster.leader = stored.leader
        core.assignments_bytes = sum(len(member.assignment) for member in stored.members)
        core.sent = core.snapshot()
        return group

    def handle(self, event: events.Event) -> list[events.Instruction]:
        """Raises IllegalTransition or InvariantBroken when the group itself is wrong, which is a bug."""
        core = self._core
        core.now_ms = max(core.now_ms, event.now_ms)
        if core.state is GroupState.DEAD:
            self._answer_for_the_dead(event)
        else:
            self._dispatch(event)
            self._bury_if_unused()
        self._check()
        instructions, core.outbox = core.outbox, []
        return instructions

    def _dispatch(self, event: events.Event) -> None:
        core = self._core
        match event:
            case events.JoinAsked():
                join(core, event)
            case events.SyncAsked():
                sync(core, event)
            case events.HeartbeatAsked():
                heartbeat(core, event)
            case events.LeaveAsked():
                leave(core, event)
            case events.CommitAsked():
                check_commit(core, event)
            case events.DeletionAsked():
                delete(core, event)
            case events.TimePassed():
                while (key := core.deadlines.take_first_due(core.now_ms)) is not None:
                    self._expire(key)
            case events.Stored():
                self._stored(core.awaited.pop(event.ticket), None)
            case events.StoreFailed():
                self._stored(core.awaited.pop(event.ticket), event.error)
            case events.OffsetsStored():
                core.is_stored = True
            case events.Expired():
                core.is_stored = False
            case events.TakenOver():
                self._let_go()

    def _expire(self, key: DeadlineKey) -> None:
        kind, member_id = key
        match kind:
            case DeadlineKind.SESSION:
                expire_session(self._core, member_id)
            case DeadlineKind.INITIAL_DELAY:
                end_initial_delay(self._core)
            case DeadlineKind.JOIN:
                complete_join(self._core)
            case DeadlineKind.SYNC:
                expire_sync(self._core)
            case DeadlineKind.EMPTINESS_RETRY:
                retry_emptiness(self._core)

    def _stored(self, awaited: Awaited, error: ErrorCode | None) -> None:
        core = self._core
        if error is None:
            core.is_stored = True
            core.ids_are_behind = core.is_storing_ids
        match awaited:
            case AssignmentAwaited():
                assignment_stored(core, awaited, error)
            case EmptinessAwaited():
                emptiness_stored(core, awaited, error)
            case ReplacementAwaited():
                replacement_stored(core, awaited, error)
            case NewIdAwaited():
                pass  # the round that waits for it is told below, or looks again a little later and sends it once more
            case DeletionAwaited():
                deletion_stored(core, awaited, error)
        if error is None:
            complete_join_when_all_joined(core)  # it may have waited until static members' ids were stored

    def _let_go(self) -> None:
        """Everybody who waits is sent to look for the new coordinator."""
        core = self._core
        for member in core.roster:
            core.answer_join(member, JoinResult(ErrorCode.NOT_COORDINATOR, member.member_id))
            core.answer_sync(member, SyncResult(ErrorCode.NOT_COORDINATOR))
        for awaited in core.awaited.values():
            if isinstance(awaited, EmptinessAwaited):
                emptiness_stored(core, awaited, ErrorCode.NOT_COORDINATOR)
            elif isinstance(awaited, DeletionAwaited):
                core.reply(awaited.waiter, ErrorCode.NOT_COORDINATOR)
        core.awaited.clear()
        self._die("another node takes over")

    def _bury_if_unused(self) -> None:
        """A group that was deleted, or only ever gave out ids, must not stay in memory."""
        if self.is_idle and not self._core.is_stored:
            self._die("nothing of it is stored")

    def _die(self, reason: str) -> None:
        core = self._core
        core.deadlines.clear()
        core.move(GroupState.DEAD, reason)
        core.outbox.append(events.Forget())

    def _answer_for_the_dead(self, event: events.Event) -> None:
        core = self._core
        error = ErrorCode.COORDINATOR_NOT_AVAILABLE
        match event:
            case events.JoinAsked():
                core.reply(event.waiter, JoinResult(error, event.request.member_id))
            case events.SyncAsked():
                core.reply(event.waiter, SyncResult(error))
            case events.LeaveAsked():
                core.reply(event.waiter, LeaveResult(error))
            case events.HeartbeatAsked() | events.CommitAsked() | events.DeletionAsked():
                core.reply(event.waiter, error)
            case _:
                pass  # news about time or the store no longer matter

    def _check(self) -> None:
        core = self._core
        size = len(core.roster)
        invariant(core.state is not GroupState.EMPTY or size == 0, "an empty group has no members")
        if core.state in (GroupState.STABLE, GroupState.COMPLETING_REBALANCE):
            invariant(core.roster.leader is not None, "a generation has a leader")
            invariant(core.protocol_name is not None, "a generation has a protocol")

    def check_thoroughly(self) -> None:
        """Walks over all members: for tests and simulations."""
        self._check()
        self._core.roster.check()

    @property
    def group_id(self) -> str:
        return self._core.group_id

    @property
    def epoch(self) -> int:
        return self._core.epoch

    @property
    def state(self) -> GroupState:
        return self._core.state

    @property
    def generation(self) -> int:
        return self._core.generation

    @property
    def leader(self) -> str | None:
        return self._core.roster.leader

    @property
    def protocol_type(self) -> str | None:
        return self._core.protocol_type

    @property
    def history(self) -> list[Step]:
        return list(self._core.lifecycle.history)

    @property
    def wake_at_ms(self) -> int | None:
        return self._core.deadlines.wake_at_ms

    @property
    def memory_bytes(self) -> int:
        """What its members brought, roughly."""
        return len(self._core.group_id) + self._core.roster.memory_bytes + self._core.assignments_bytes

    @property
    def assignments_bytes(self) -> int:
        """Those in force, which the next ones replace."""
        return self._core.assignments_bytes

    def size_of_joining(self, request: JoinRequest) -> int:
        """What the member has brought before in whose place it joins: 0 for a new one."""
        roster = self._core.roster
        member = roster.get(roster.member_id_of_instance(request.group_instance_id) or request.member_id)
        if member is None:
            return 0
        return size_of(member.protocols) + size_of_names(member.client_id, member.group_instance_id)

    @property
    def is_idle(self) -> bool:
        """Nobody is in it or about to join, and nothing of it is on its way to the store."""
        return self._core.state is GroupState.EMPTY and not (self._core.roster.pending or self._core.awaited)

    def subscribed_among(self, topics: Iterable[str]) -> frozenset[str]:
        """A group of consumers whose subscriptions we cannot read may be subscribed to anything."""
        core = self._core
        if core.protocol_type != CONSUMER_PROTOCOL_TYPE:
            return frozenset()
        subscribed = subscribed_topics(member.metadata(core.protocol_name) for member in core.roster)
        return frozenset(topics) if subscribed is None else subscribed.intersection(topics)

    def describe(self) -> DescribedGroup:
        core = self._core
        is_stable = core.state is GroupState.STABLE
        members = tuple(
            DescribedMember(
                member.member_id,
                member.group_instance_id,
                member.client_id,
                member.client_host,
                member.metadata(core.protocol_name) if is_stable else b"",
                member.assignment if is_stable else b"",
            )
            for member in core.roster
        )
        protocol_name = core.protocol_name if is_stable else None
        return DescribedGroup(core.group_id, core.state, core.protocol_type or "", protocol_name or "", members)

    def list_entry(self) -> ListedGroup:
        return ListedGroup(self._core.group_id, self._core.protocol_type or "", self._core.state)
