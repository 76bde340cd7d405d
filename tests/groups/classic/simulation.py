"""A randomized simulation of one group with many clients: crashes, lost responses, late syncs, static restarts, slow or
failing stores, and coordinator failovers. The seed determines the run.

Invariants: generations only grow and have one leader; an assignment is delivered only after it was stored, only to
members of its generation, and covers every partition once; at the end, no request is left waiting.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from chronik.coordination.machine import CoordinatorChanged
from chronik.groups.classic.group_state import GroupSnapshot
from chronik.groups.classic.machine import ClassicGroup
from chronik.groups.classic.transitions import GroupState
from chronik.groups.config import GroupConfig
from chronik.groups.requests import JoinResult, LeavingMember, SyncResult
from chronik.metadata.records import Group
from chronik.protocol.errors import ErrorCode

from .group_harness import GroupHarness

PARTITIONS = frozenset(range(24))
SESSION_MS = 6_000
REBALANCE_MS = 15_000
STORE_ERRORS = (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR)


@dataclass
class SimulatedConsumer:
    """A consumer, as far as its group can observe it."""

    name: str
    instance: str | None
    subscription: int = 0
    member_id: str = ""
    generation: int = -1
    coordinator: int = 0
    """The coordinator that the pending request was sent to. The response may arrive after a failover."""
    join_waiter: int | None = None
    sync_waiter: int | None = None
    to_sync: JoinResult | None = None
    owned: frozenset[int] | None = None
    """The assigned partitions, or None if the client has no assignment."""

    @property
    def is_idle(self) -> bool:
        return self.join_waiter is None and self.sync_waiter is None and self.to_sync is None and self.owned is None

    def rejoin(self) -> None:
        self.join_waiter = self.sync_waiter = self.to_sync = self.owned = None

    def reset_membership(self) -> None:
        self.rejoin()
        self.member_id, self.generation = "", -1


@dataclass
class GroupSimulation:
    seed: int
    client_count: int = 8
    rebalances: int = 0
    commits: int = 0
    restarts_without_rebalance: int = 0
    trace: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        delay_ms = self.random.choice((0, 500, 3_000))
        self.config = GroupConfig(initial_rebalance_delay_ms=delay_ms, new_member_join_timeout_ms=30_000)
        self.lab = GroupHarness(self.config)
        self.lab.store_answers = False
        self.clients = [
            SimulatedConsumer(f"client{number}", f"static{number}" if number % 3 == 0 else None)
            for number in range(self.client_count)
        ]
        self.waiters: list[int] = []
        self.leaders: dict[tuple[int, int], str] = {}
        self.coordinators = 1

    # --- the run ---

    def run(self, steps: int) -> None:
        for _ in range(steps):
            self.step(trouble=True)
        for _ in range(2_000):
            if self.is_stable():
                break
            self.step(trouble=False)
        assert self.is_stable(), f"seed {self.seed}: {self.lab.group.state}, {self.clients}"
        self.check_coverage()
        self.drain_requests()

    def step(self, trouble: bool) -> None:
        lab = self.lab
        generation = lab.group.generation
        lab.advance_time(self.random.randrange(1_500 if trouble else 200))
        if lab.unanswered_stores and self.random.random() < 0.5:
            self.complete_store(self.random.choice(STORE_ERRORS) if trouble and self.random.random() < 0.05 else None)
        for client in self.clients:
            self.read_responses(client)
            if trouble and self.random.random() < 0.02:
                self.crash(client)
            elif self.random.random() < 0.6:
                self.act(client, trouble)
        if trouble and self.random.random() < 0.002:
            self.change_coordinator()
        elif not lab.forgotten:
            assert lab.group.generation >= generation, "generations only grow"
        self.reload_group()
        self.trace.append(f"{lab.now_ms} {lab.group.state} {lab.group.generation} {lab.group.members.leader}")

    def act(self, client: SimulatedConsumer, trouble: bool) -> None:
        lab = self.lab
        if client.is_idle:
            self.join(client)
        elif client.to_sync is not None:
            if not trouble or self.random.random() < 0.5:
                self.sync(client)
        elif client.owned is not None:
            if trouble and self.random.random() < 0.01:
                self.leave(client)
            elif trouble and self.random.random() < 0.01:
                client.subscription += 1
                client.rejoin()
            elif self.random.random() < 0.3:
                self.commit(client)
            else:
                self.handle_error(client, lab.heartbeat(client.member_id, client.generation, client.instance))

    # --- client actions ---

    def join(self, client: SimulatedConsumer) -> None:
        client.coordinator = self.coordinators
        client.join_waiter = self.lab.join(
            client.member_id,
            instance=client.instance,
            protocols=(("range", f"subscription {client.subscription}".encode()),),
            require_known_member_id=client.name != "client1",
            session_ms=SESSION_MS,
            rebalance_ms=REBALANCE_MS,
        )
        self.waiters.append(client.join_waiter)
        self.reload_group()

    def sync(self, client: SimulatedConsumer) -> None:
        joined = client.to_sync
        assert joined is not None
        client.to_sync = None
        assignments: dict[str, bytes] = {}
        if joined.leader == joined.member_id and not joined.skip_assignment:
            shares: dict[str, list[int]] = {member.member_id: [] for member in joined.members}
            for partition in sorted(PARTITIONS):
                shares[list(shares)[partition % len(shares)]].append(partition)
            assignments = {member_id: bytes(share) for member_id, share in shares.items()}
        client.sync_waiter = self.lab.sync(client.member_id, client.generation, assignments, instance=client.instance)
        self.waiters.append(client.sync_waiter)

    def leave(self, client: SimulatedConsumer) -> None:
        self.waiters.append(self.lab.leave(LeavingMember(client.member_id, client.instance)))
        client.reset_membership()

    def commit(self, client: SimulatedConsumer) -> None:
        error = self.lab.commit(client.member_id, client.generation, client.instance)
        if error is ErrorCode.NONE:
            self.commits += 1
            assert client.generation == self.lab.group.generation, "commit accepted from another generation"
        self.handle_error(client, error)

    def crash(self, client: SimulatedConsumer) -> None:
        """Lose the client's process and its state. Later responses reach no client."""
        client.reset_membership()

    # --- responses ---

    def read_responses(self, client: SimulatedConsumer) -> None:
        if client.join_waiter is not None and not self.lab.is_waiting(client.join_waiter):
            self.on_joined(client, self.lab.join_result(client.join_waiter))
        elif client.sync_waiter is not None and not self.lab.is_waiting(client.sync_waiter):
            self.on_synced(client, self.lab.sync_result(client.sync_waiter))

    def on_joined(self, client: SimulatedConsumer, joined: JoinResult) -> None:
        client.join_waiter = None
        if joined.error is ErrorCode.MEMBER_ID_REQUIRED:
            client.member_id = joined.member_id
        if joined.error is not ErrorCode.NONE:
            self.handle_error(client, joined.error)
            return
        if client.member_id and client.instance is None:
            assert joined.member_id == client.member_id
        client.member_id, client.generation, client.to_sync = joined.member_id, joined.generation, joined
        if joined.leader == joined.member_id and not joined.skip_assignment:
            assert joined.member_id in {member.member_id for member in joined.members}
            known = self.leaders.setdefault((client.coordinator, joined.generation), joined.member_id)
            assert known == joined.member_id, "two leaders in one generation"

    def on_synced(self, client: SimulatedConsumer, synced: SyncResult) -> None:
        client.sync_waiter = None
        if synced.error is not ErrorCode.NONE:
            self.handle_error(client, synced.error)
            return
        stored = (group for group in self.lab.stored if group.generation == client.generation)
        assignments = {(member.member_id, member.assignment) for group in stored for member in group.members}
        assert (client.member_id, synced.assignment) in assignments, "assignment delivered before it was stored"
        client.owned = frozenset(synced.assignment)

    def handle_error(self, client: SimulatedConsumer, error: ErrorCode) -> None:
        if error is ErrorCode.REBALANCE_IN_PROGRESS:
            client.rejoin()
        elif error not in (ErrorCode.NONE, ErrorCode.MEMBER_ID_REQUIRED):
            if error in STORE_ERRORS or error is ErrorCode.COORDINATOR_NOT_AVAILABLE:
                client.rejoin()
            else:
                expected = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION, ErrorCode.FENCED_INSTANCE_ID)
                assert error in expected, error
                client.reset_membership()

    # --- the store and the coordinator ---

    def complete_store(self, error: ErrorCode | None) -> None:
        instruction = self.lab.unanswered_stores[0]
        if error is None and isinstance(instruction.change, GroupSnapshot) and instruction.change.members:
            before = self.lab.stored[-1] if self.lab.stored else None
            if before is not None and before.generation == instruction.change.generation:
                self.restarts_without_rebalance += 1
            else:
                self.rebalances += 1
            shares = [bytes(member.assignment) for member in instruction.change.members]
            owned = [partition for share in shares for partition in share]
            assert sorted(owned) == sorted(PARTITIONS), "a generation must cover every partition exactly once"
        self.lab.complete_store(error)

    def change_coordinator(self) -> None:
        """Start a new coordinator with the stored state. Pending proposals may or may not have been stored."""
        for _ in range(self.random.randrange(len(self.lab.unanswered_stores) + 1)):
            self.complete_store(None)
        self.lab.handle_event(CoordinatorChanged(self.lab.now_ms))
        self.lab.unanswered_stores.clear()
        self.start_group()

    def reload_group(self) -> None:
        if self.lab.forgotten:
            self.start_group()

    def start_group(self) -> None:
        self.coordinators += 1
        self.lab.forgotten = False
        if not self.lab.stored:
            self.lab.group = ClassicGroup("orders", self.config)
            return
        last = self.lab.stored[-1]
        state = "Stable" if last.members else "Empty"
        leader, protocol_type = last.leader, last.protocol_type or ""
        record = Group("orders", protocol_type, last.generation, last.protocol_name, leader, state, last.members, 0)
        self.lab.group = ClassicGroup.load(record, self.config, self.lab.now_ms)

    # --- the end of the run ---

    def is_stable(self) -> bool:
        group = self.lab.group
        everybody_owns = all(
            client.owned is not None and client.generation == group.generation for client in self.clients
        )
        ids = sorted(client.member_id for client in self.clients)
        no_ghosts = sorted(member.member_id for member in group.describe().members) == ids
        return group.state is GroupState.STABLE and everybody_owns and no_ghosts

    def check_coverage(self) -> None:
        """Check that the clients' own view of their assignments covers every partition once."""
        owned = [partition for client in self.clients for partition in client.owned or ()]
        assert sorted(owned) == sorted(PARTITIONS)

    def drain_requests(self) -> None:
        for client in self.clients:
            self.crash(client)
        for _ in range(100):
            self.lab.advance_time(REBALANCE_MS)
            self.lab.complete_stores()
        assert self.lab.group.state is GroupState.EMPTY
        unanswered = [waiter for waiter in self.waiters if self.lab.is_waiting(waiter)]
        assert unanswered == [], f"seed {self.seed}: requests without response: {unanswered}"
