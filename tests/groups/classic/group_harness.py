"""A test bench for one group state machine, with manual time and a store that completes on request."""

from __future__ import annotations

from chronik.coordination.machine import (
    DeadlineCheckDue,
    StateMachineEvent,
    StateMachineReply,
    StateStored,
    StateStoreFailed,
    StoreState,
    Unload,
)
from chronik.groups import requests
from chronik.groups.classic.group_state import GroupSnapshot
from chronik.groups.classic.machine import ClassicGroup
from chronik.groups.classic.transitions import GroupState
from chronik.groups.config import GroupConfig
from chronik.groups.requests import (
    JoinRequest,
    JoinResult,
    LeaveRequest,
    LeaveResult,
    LeavingMember,
    MemberProtocols,
    SyncRequest,
    SyncResult,
)
from chronik.protocol.errors import ErrorCode

SESSION_MS = 10_000
REBALANCE_MS = 60_000
RANGE: MemberProtocols = (("range", b"range metadata"),)
ROUND_ROBIN: MemberProtocols = (("roundrobin", b"roundrobin metadata"),)
BOTH: MemberProtocols = (*RANGE, *ROUND_ROBIN)


class GroupHarness:
    def __init__(self, config: GroupConfig | None = None, group: ClassicGroup | None = None) -> None:
        self.group = group or ClassicGroup("orders", config or GroupConfig())
        self.now_ms = 1_000_000
        self.store_answers = True
        self.unanswered_stores: list[StoreState] = []
        self.stored: list[GroupSnapshot] = []
        self.forgotten = False
        self._replies: dict[int, object] = {}
        self._last_waiter = 0

    # --- events ---

    def handle_event(self, event: StateMachineEvent) -> None:
        for instruction in self.group.handle(event):
            match instruction:
                case StateMachineReply():
                    assert instruction.waiter not in self._replies, "answered twice"
                    self._replies[instruction.waiter] = instruction.reply
                case StoreState():
                    self.unanswered_stores.append(instruction)
                case Unload():
                    self.forgotten = True
        self.group.check_invariants()
        if self.store_answers:
            self.complete_stores()

    def complete_stores(self, error: ErrorCode | None = None) -> None:
        while self.unanswered_stores:
            self.complete_store(error)

    def complete_store(self, error: ErrorCode | None = None) -> None:
        instruction = self.unanswered_stores.pop(0)
        if error is not None:
            self.handle_event(StateStoreFailed(self.now_ms, instruction.ticket, error))
            return
        if isinstance(instruction.change, GroupSnapshot):
            self.stored.append(instruction.change)
        self.handle_event(StateStored(self.now_ms, instruction.ticket))

    def advance_time(self, milliseconds: int) -> None:
        self.now_ms += milliseconds
        self.handle_event(DeadlineCheckDue(self.now_ms))

    def new_waiter(self) -> int:
        self._last_waiter += 1
        return self._last_waiter

    def join(
        self,
        member_id: str = "",
        *,
        instance: str | None = None,
        protocols: MemberProtocols = RANGE,
        protocol_type: str = "consumer",
        require_known_member_id: bool = False,
        supports_skip_assignment: bool = True,
        session_ms: int = SESSION_MS,
        rebalance_ms: int = REBALANCE_MS,
    ) -> int:
        waiter = self.new_waiter()
        request = JoinRequest(
            group_id="orders",
            member_id=member_id,
            group_instance_id=instance,
            client_id="client",
            client_host="/127.0.0.1",
            session_timeout_ms=session_ms,
            rebalance_timeout_ms=rebalance_ms,
            protocol_type=protocol_type,
            protocols=protocols,
            require_known_member_id=require_known_member_id,
            supports_skip_assignment=supports_skip_assignment,
        )
        self.handle_event(requests.JoinRequested(self.now_ms, waiter, request, f"u{waiter}"))
        return waiter

    def sync(
        self,
        member_id: str,
        generation: int | None = None,
        assignments: dict[str, bytes] | None = None,
        *,
        instance: str | None = None,
        protocol_type: str | None = None,
        protocol_name: str | None = None,
    ) -> int:
        waiter = self.new_waiter()
        generation = self.group.generation if generation is None else generation
        given = tuple((assignments or {}).items())
        request = SyncRequest("orders", generation, member_id, instance, protocol_type, protocol_name, given)
        self.handle_event(requests.SyncRequested(self.now_ms, waiter, request))
        return waiter

    def heartbeat(self, member_id: str, generation: int | None = None, instance: str | None = None) -> ErrorCode:
        waiter = self.new_waiter()
        generation = self.group.generation if generation is None else generation
        self.handle_event(requests.HeartbeatRequested(self.now_ms, waiter, generation, member_id, instance))
        return self.error_code(waiter)

    def leave(self, *members: LeavingMember) -> int:
        waiter = self.new_waiter()
        self.handle_event(requests.LeaveRequested(self.now_ms, waiter, LeaveRequest("orders", members)))
        return waiter

    def commit(self, member_id: str = "", generation: int = -1, instance: str | None = None) -> ErrorCode:
        waiter = self.new_waiter()
        self.handle_event(requests.CommitCheckRequested(self.now_ms, waiter, generation, member_id, instance))
        return self.error_code(waiter)

    def delete(self) -> int:
        waiter = self.new_waiter()
        self.handle_event(requests.DeletionRequested(self.now_ms, waiter))
        return waiter

    # --- results ---

    def state(self) -> GroupState:
        return self.group.state

    def is_waiting(self, waiter: int) -> bool:
        return waiter not in self._replies

    def join_result(self, waiter: int) -> JoinResult:
        answer = self._replies[waiter]
        assert isinstance(answer, JoinResult)
        return answer

    def sync_result(self, waiter: int) -> SyncResult:
        answer = self._replies[waiter]
        assert isinstance(answer, SyncResult)
        return answer

    def leave_result(self, waiter: int) -> LeaveResult:
        answer = self._replies[waiter]
        assert isinstance(answer, LeaveResult)
        return answer

    def error_code(self, waiter: int) -> ErrorCode:
        answer = self._replies[waiter]
        assert isinstance(answer, ErrorCode)
        return answer

    # --- composed steps ---

    def join_first_member(self, **options: object) -> str:
        """Join one member in generation 1 and leave it waiting for its assignment. Return its member id."""
        waiter = self.join(**options)  # type: ignore[arg-type]
        self.advance_time(0)
        return self.join_result(waiter).member_id

    def create_stable_group(self, *instances: str | None, protocols: MemberProtocols = RANGE) -> list[str]:
        """Create a stable group with one member per instance id (None: dynamic) and return the member ids.

        The first member is the leader.
        """
        waiters = [self.join(instance=instance, protocols=protocols) for instance in instances]
        self.advance_time(0)
        self.advance_time(0)
        members = [self.join_result(waiter).member_id for waiter in waiters]
        leader = str(self.group.members.leader)
        assert leader == members[0]
        self.sync(leader, assignments={member: f"part of {member}".encode() for member in members})
        for member in members[1:]:
            self.sync(member)
        assert self.group.state is GroupState.STABLE
        return members
