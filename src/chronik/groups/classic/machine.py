"""A classic consumer group as a deterministic state machine: `handle` takes an event and returns instructions.

`handle` is the only way to change a group. It reads no clock, draws no random numbers and never waits.
`coordination.machine` describes what the host of a state machine must do.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import astuple

from chronik.coordination.machine import (
    CoordinatorChanged,
    DeadlineCheckDue,
    Instruction,
    StateDeleted,
    StateMachineEvent,
    StateMachineRequest,
    StateStored,
    StateStoreFailed,
    Unload,
)
from chronik.errors import InvariantError, check_invariant
from chronik.groups import requests
from chronik.groups.classic.group_state import (
    ClassicGroupState,
    DeadlineKey,
    GroupDeadlineKind,
    PendingAssignment,
    PendingDeletion,
    PendingEmptyGroup,
    PendingMemberId,
    PendingReplacement,
    PendingStore,
)
from chronik.groups.classic.members import (
    CONSUMER_PROTOCOL_TYPE,
    ClassicMember,
    decode_subscribed_topics,
    estimate_member_names_size,
    estimate_protocols_size,
)
from chronik.groups.classic.membership import (
    expire_session,
    handle_commit_check,
    handle_delete,
    handle_heartbeat,
    handle_leave,
    on_deletion_stored,
    on_empty_group_stored,
    retry_store_empty_group,
)
from chronik.groups.classic.rebalance import (
    complete_join,
    complete_join_when_all_joined,
    estimate_join_request_size,
    expire_pending_syncs,
    handle_join,
    handle_sync,
    on_assignment_stored,
    on_initial_delay_expired,
    on_replacement_stored,
)
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
from chronik.metadata.commands.base import NO_EPOCH
from chronik.metadata.records import Group
from chronik.protocol.errors import ErrorCode


class ClassicGroup(ClassicGroupState):
    """The state machine of one consumer group that uses the classic protocol."""

    @classmethod
    def load(cls, stored: Group, config: GroupConfig, now_ms: int, epoch: int = NO_EPOCH) -> ClassicGroup:
        """Restore a consumer group from its stored state. Every member's session timeout starts again."""
        group = cls(stored.group_id, config, epoch, GroupState.STABLE if stored.members else GroupState.EMPTY)
        group.now_ms = now_ms
        group.is_stored = True
        group.generation = stored.generation
        group.protocol_type = stored.protocol_type or None
        group.protocol_name = stored.protocol_name
        for member in stored.members:
            group.members.add(ClassicMember(*astuple(member)))  # the first fields of both structs are the same
            group.reset_session_timeout(group.members[member.member_id])
        if stored.leader is not None and stored.leader in group.members:
            group.members.leader = stored.leader
        group.assignments_bytes = sum(len(member.assignment) for member in stored.members)
        group.last_snapshot = group.take_snapshot()
        return group

    def handle(self, event: StateMachineEvent) -> list[Instruction]:
        """Process an event and return the resulting instructions to the host.

        Raises:
            InvariantError: The group is inconsistent, which is a bug. `IllegalGroupTransition` is a subclass.
        """
        self.now_ms = max(self.now_ms, event.now_ms)
        if self.state is GroupState.DEAD:
            self._reject_request_of_dead_group(event)
        else:
            self._dispatch(event)
            self._unload_if_unused()
        self._check_state_invariants()
        instructions, self.outbox = self.outbox, []
        return instructions

    def _dispatch(self, event: StateMachineEvent) -> None:
        match event:
            case requests.JoinRequested():
                handle_join(self, event)
            case requests.SyncRequested():
                handle_sync(self, event)
            case requests.HeartbeatRequested():
                handle_heartbeat(self, event)
            case requests.LeaveRequested():
                handle_leave(self, event)
            case requests.CommitCheckRequested():
                handle_commit_check(self, event)
            case requests.DeletionRequested():
                handle_delete(self, event)
            case DeadlineCheckDue():
                while (key := self.deadlines.pop_expired_deadline(self.now_ms)) is not None:
                    self._on_deadline(key)
            case StateStored():
                self._on_stored(self.pending_stores.pop(event.ticket), None)
            case StateStoreFailed():
                self._on_stored(self.pending_stores.pop(event.ticket), event.error)
            case requests.OffsetsStored():
                self.is_stored = True
            case StateDeleted():
                self.is_stored = False
            case CoordinatorChanged():
                self._on_coordinator_changed()
            case _:
                raise InvariantError(f"a classic group cannot handle the event {event!r}")

    def _on_deadline(self, key: DeadlineKey) -> None:
        kind, member_id = key
        match kind:
            case GroupDeadlineKind.SESSION:
                expire_session(self, member_id)
            case GroupDeadlineKind.INITIAL_DELAY:
                on_initial_delay_expired(self)
            case GroupDeadlineKind.JOIN:
                complete_join(self)
            case GroupDeadlineKind.SYNC:
                expire_pending_syncs(self)
            case GroupDeadlineKind.EMPTY_GROUP_RETRY:
                retry_store_empty_group(self)

    def _on_stored(self, awaited: PendingStore, error: ErrorCode | None) -> None:
        if error is None:
            self.is_stored = True
            self.has_unstored_member_ids = self.is_storing_member_ids
        match awaited:
            case PendingAssignment():
                on_assignment_stored(self, awaited, error)
            case PendingEmptyGroup():
                on_empty_group_stored(self, awaited, error)
            case PendingReplacement():
                on_replacement_stored(self, awaited, error)
            case PendingMemberId():
                pass  # the rebalance that waits for the id completes below, or retries after a delay
            case PendingDeletion():
                on_deletion_stored(self, awaited, error)
        if error is None:
            complete_join_when_all_joined(self)  # the rebalance may have waited for static member ids to be stored

    def _on_coordinator_changed(self) -> None:
        """Reject all waiting requests with NOT_COORDINATOR, so that the clients look up the new coordinator."""
        for member in self.members:
            self.reply_to_join(member, JoinResult(ErrorCode.NOT_COORDINATOR, member.member_id))
            self.reply_to_sync(member, SyncResult(ErrorCode.NOT_COORDINATOR))
        for awaited in self.pending_stores.values():
            if isinstance(awaited, PendingEmptyGroup):
                on_empty_group_stored(self, awaited, ErrorCode.NOT_COORDINATOR)
            elif isinstance(awaited, PendingDeletion):
                self.reply(awaited.waiter, ErrorCode.NOT_COORDINATOR)
        self.pending_stores.clear()
        self._unload("another node takes over")

    def _unload_if_unused(self) -> None:
        """Unload the group if it has no members and is not stored, so that it does not stay in memory."""
        if self.is_idle and not self.is_stored:
            self._unload("nothing of it is stored")

    def _unload(self, reason: str) -> None:
        self.deadlines.clear()
        self.transition_to(GroupState.DEAD, reason)
        self.outbox.append(Unload())

    def _reject_request_of_dead_group(self, event: StateMachineEvent) -> None:
        error = ErrorCode.COORDINATOR_NOT_AVAILABLE
        match event:
            case requests.JoinRequested():
                self.reply(event.waiter, JoinResult(error, event.request.member_id))
            case requests.SyncRequested():
                self.reply(event.waiter, SyncResult(error))
            case requests.LeaveRequested():
                self.reply(event.waiter, LeaveResult(error))
            case StateMachineRequest():
                self.reply(event.waiter, error)
            case _:
                pass  # timers and store confirmations no longer matter

    def _check_state_invariants(self) -> None:
        size = len(self.members)
        check_invariant(self.state is not GroupState.EMPTY or size == 0, "an empty group has no members")
        if self.state in (GroupState.STABLE, GroupState.COMPLETING_REBALANCE):
            check_invariant(self.members.leader is not None, "a generation has a leader")
            check_invariant(self.protocol_name is not None, "a generation has a protocol")

    def check_invariants(self) -> None:
        """Verify all invariants by iterating over all members. Used by tests and simulations."""
        self._check_state_invariants()
        self.members.check_invariants()

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
        return len(self.key) + self.members.memory_bytes + self.assignments_bytes

    def compute_join_growth_bytes(self, request: JoinRequest) -> int:
        """Return by how many bytes a join request changes the group's memory usage."""
        roster = self.members
        member = roster.get(roster.find_static_member_id(request.group_instance_id) or request.member_id)
        replaced_bytes = 0
        if member is not None:
            replaced_bytes = estimate_protocols_size(member.protocols) + estimate_member_names_size(
                member.client_id, member.group_instance_id
            )
        return estimate_join_request_size(request) - replaced_bytes

    def compute_sync_growth_bytes(self, request: SyncRequest) -> int:
        """Return by how many bytes a sync request changes the group's memory usage."""
        return sum(len(assignment) for _, assignment in request.assignments) - self.assignments_bytes

    @property
    def is_idle(self) -> bool:
        """Whether the group has no members, no pending member ids and no pending writes."""
        return self.is_empty and not (self.members.pending_member_ids or self.pending_stores)

    def filter_subscribed(self, topics: Iterable[str]) -> frozenset[str]:
        """Return those of the topics that members subscribe to, or all of them if a subscription cannot be decoded."""
        if self.protocol_type != CONSUMER_PROTOCOL_TYPE:
            return frozenset()
        subscribed = decode_subscribed_topics(member.metadata(self.protocol_name) for member in self.members)
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
            for member in self.members
        )
        protocol_name = self.protocol_name if is_stable else None
        return DescribedGroup(self.key, self.state, self.protocol_type or "", protocol_name or "", members)

    def to_listing(self) -> ListedGroup:
        return ListedGroup(self.key, self.protocol_type or "", self.state)
