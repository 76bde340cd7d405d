"""A manually driven cluster for Raft tests, without a clock. Disks write immediately unless they are held."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from chronik.raft.config import RaftConfig
from chronik.raft.entries import EntryKind, RaftEntry
from chronik.raft.events import (
    Campaign,
    ChangeMembership,
    EntriesApplied,
    MessageReceived,
    Persist,
    Persisted,
    Propose,
    RaftEvent,
    ReadIndex,
    ReadIndexConfirmed,
    Ready,
    RequestAccepted,
    RequestRejected,
    SnapshotChunkRead,
    SnapshotTaken,
    Tick,
    TransferLeadership,
)
from chronik.raft.membership import UNBOUND_DIRECTORY, Membership, MembershipChange, RaftMember
from chronik.raft.messages import AnyRaftMessage, RaftMessage, decode_message, encode_message
from chronik.raft.node import RaftNode
from chronik.raft.roles import Role
from tests.raft.disk import HashChainStateMachine, SimulatedDisk

DELIVERIES_MAX: Final = 10_000
"""Maximum number of deliveries before the messages are considered an infinite loop."""

M = TypeVar("M", bound=RaftMessage)


def directory(node_id: int, generation: int = 0) -> bytes:
    return bytes([node_id, generation]) * 8


@dataclass
class LabHost:
    """A node of the lab with its disk."""

    node_id: int
    directory_id: bytes
    bootstrap: Membership
    node: RaftNode
    disk: SimulatedDisk = field(default_factory=SimulatedDisk)
    machine: HashChainStateMachine = field(default_factory=HashChainStateMachine)
    is_held: bool = False
    is_down: bool = False
    writing: Persist | None = None
    outcomes: list[RequestAccepted | RequestRejected | ReadIndexConfirmed] = field(default_factory=list)


class Lab:
    """A cluster whose events are controlled by the test."""

    def __init__(
        self,
        voters: Iterable[int] = (1, 2, 3),
        *,
        learners: Iterable[int] = (),
        outsiders: Iterable[int] = (),
        is_bound: bool = True,
        config: RaftConfig | None = None,
    ) -> None:
        self.config = config or RaftConfig()
        members = [
            RaftMember(node_id, directory(node_id) if is_bound else UNBOUND_DIRECTORY, is_voter)
            for ids, is_voter in ((voters, True), (learners, False))
            for node_id in ids
        ]
        self.bootstrap = Membership(tuple(sorted(members, key=lambda member: member.node_id)))
        self.messages_in_flight: list[AnyRaftMessage] = []
        self.cut_links: set[tuple[int, int]] = set()
        self.hosts: dict[int, LabHost] = {}
        self.sent: list[AnyRaftMessage] = []
        """All messages that any node has sent, including lost ones."""
        self._context = 0
        for member in self.bootstrap.members:
            self._install(member.node_id, self.bootstrap)
        for node_id in outsiders:
            self._install(node_id, Membership())

    def _install(self, node_id: int, bootstrap: Membership, generation: int = 0) -> None:
        disk = SimulatedDisk()
        node = self._make(node_id, directory(node_id, generation), disk, bootstrap)
        self.hosts[node_id] = LabHost(node_id, directory(node_id, generation), bootstrap, node, disk)

    def _make(self, node_id: int, directory_id: bytes, disk: SimulatedDisk, bootstrap: Membership) -> RaftNode:
        randomness = random.Random(node_id)
        return RaftNode(node_id, directory_id, self.config, disk, disk.recovered(), bootstrap, randomness)

    def role(self, node_id: int) -> Role:
        return self[node_id].status.role

    def __getitem__(self, node_id: int) -> RaftNode:
        return self.hosts[node_id].node

    # --------------------------------------------------------------------------------------------------------- events

    def handle(self, node_id: int, *events: RaftEvent) -> Ready:
        """Pass events to a node, execute its instructions, and return them."""
        host = self.hosts[node_id]
        assert not host.is_down, f"{node_id} is down"
        ready = host.node.handle(*events)
        self.observe(host, ready)
        self._execute(host, ready)
        return ready

    def observe(self, host: LabHost, ready: Ready) -> None:
        """Observe a `Ready`; overridden by subclasses."""

    def _execute(self, host: LabHost, ready: Ready) -> None:
        self.messages_in_flight += ready.messages
        self.sent += ready.messages
        host.outcomes += ready.outcomes
        if ready.persist is not None:
            host.writing = ready.persist
        if ready.restore is not None:
            host.machine.load(host.disk.snapshot_data)
        for entry in ready.committed:
            host.machine.apply(entry)
        events: list[RaftEvent] = []
        for wanted in ready.chunk_requests:
            is_there = wanted.index == host.disk.snapshot.index
            end = wanted.offset + wanted.bytes_max
            data = host.disk.snapshot_data[wanted.offset : end] if is_there else None
            events.append(SnapshotChunkRead(wanted.peer, wanted.index, wanted.offset, data))
        if ready.restore is not None or ready.committed:
            events.append(EntriesApplied(host.machine.applied))
        for event in events:
            self.handle(host.node_id, event)
        if not host.is_held:
            self.sync(host.node_id)

    def sync(self, node_id: int) -> None:
        """Complete the node's outstanding write."""
        host = self.hosts[node_id]
        if host.writing is not None:
            persist, host.writing = host.writing, None
            host.disk.write(persist)
            self.handle(node_id, Persisted(persist.sequence))

    def hold_disk(self, node_id: int) -> None:
        self.hosts[node_id].is_held = True

    def release_disk(self, node_id: int) -> None:
        self.hosts[node_id].is_held = False
        self.sync(node_id)

    def tick(self, node_id: int, count: int = 1) -> None:
        for _ in range(count):
            self.handle(node_id, Tick())

    def campaign(self, node_id: int) -> None:
        self.handle(node_id, Campaign())

    def elect(self, node_id: int) -> None:
        """Elect a node after the other nodes' leases have expired."""
        for other in self.hosts.values():
            if not other.is_down and other.node_id != node_id and other.node.status.role is Role.FOLLOWER:
                self._expire_lease(other)
        self.campaign(node_id)
        self.settle()
        assert self[node_id].status.role is Role.LEADER, f"{node_id} was not elected: {self[node_id].status}"

    def _expire_lease(self, host: LabHost) -> None:
        for _ in range(self.config.election_ticks):
            if host.node.status.role is Role.FOLLOWER and host.node._core.is_lease_valid:
                self.tick(host.node_id)

    def propose(self, node_id: int, *commands: bytes) -> RequestAccepted | RequestRejected:
        outcome = self._ask(node_id, Propose(commands, self._next_context()))
        assert isinstance(outcome, RequestAccepted | RequestRejected)
        return outcome

    def change(self, node_id: int, change: MembershipChange) -> RequestAccepted | RequestRejected:
        outcome = self._ask(node_id, ChangeMembership(change, self._next_context()))
        assert isinstance(outcome, RequestAccepted | RequestRejected)
        return outcome

    def transfer(self, node_id: int, target: int) -> RequestAccepted | RequestRejected:
        outcome = self._ask(node_id, TransferLeadership(target, self._next_context()))
        assert isinstance(outcome, RequestAccepted | RequestRejected)
        return outcome

    def read(self, node_id: int) -> int:
        """Request a read and return the context of its outcome."""
        context = self._next_context()
        self.handle(node_id, ReadIndex(context))
        return context

    def outcome(self, node_id: int, context: int) -> RequestAccepted | RequestRejected | ReadIndexConfirmed | None:
        return next((each for each in self.hosts[node_id].outcomes if each.context == context), None)

    def _ask(self, node_id: int, event: Propose | ChangeMembership | TransferLeadership) -> Any:
        self.handle(node_id, event)
        outcome = self.outcome(node_id, event.context)
        assert outcome is not None, f"{event} has no outcome"
        return outcome

    def _next_context(self) -> int:
        self._context += 1
        return self._context

    def take_snapshot(self, node_id: int, keep: int = 0) -> None:
        host = self.hosts[node_id]
        term = host.node.term_at(host.machine.applied)
        assert term is not None
        snapshot, data = host.machine.save(host.node.membership_at(host.machine.applied), term)
        host.disk.save_snapshot(snapshot, data)
        self.handle(node_id, SnapshotTaken(snapshot, max(0, snapshot.index - keep)))

    # -------------------------------------------------------------------------------------------------------- network

    def settle(self) -> None:
        """Deliver messages until none is in flight."""
        for _ in range(DELIVERIES_MAX):
            if not self.messages_in_flight:
                return
            self.deliver_one()
        raise AssertionError("messages do not come to an end")

    def deliver_one(self) -> None:
        message = self.messages_in_flight.pop(0)
        host = self.hosts.get(message.target)
        if host is None or host.is_down or (message.source, message.target) in self.cut_links:
            return
        self.handle(message.target, MessageReceived(decode_message(encode_message(message))))

    def receive(self, message: AnyRaftMessage) -> list[AnyRaftMessage]:
        """Pass a message to its target and return the messages that it sends, without delivering them."""
        before = len(self.messages_in_flight)
        self.handle(message.target, MessageReceived(message))
        answers = self.messages_in_flight[before:]
        del self.messages_in_flight[before:]
        return answers

    def message(self, kind: type[M], source: int, target: int, **fields: Any) -> M:
        """Create a message as if `source` had sent it."""
        head = {"source": source, "source_directory": directory(source), "target": target}
        return kind(**{**head, "target_directory": directory(target), **fields})

    def isolate(self, node_id: int) -> None:
        for other in self.hosts:
            if other != node_id:
                self.cut_link(node_id, other)

    def cut_link(self, one: int, other: int) -> None:
        self.cut_links |= {(one, other), (other, one)}

    def heal(self) -> None:
        self.cut_links.clear()

    # ---------------------------------------------------------------------------------------------- crash and restart

    def crash(self, node_id: int) -> None:
        """Crash a node; its outstanding write is lost."""
        host = self.hosts[node_id]
        host.is_down, host.writing = True, None

    def restart(self, node_id: int) -> None:
        host = self.hosts[node_id]
        host.is_down = host.is_held = False
        host.writing = None
        host.machine = HashChainStateMachine()
        if host.disk.snapshot.index:
            host.machine.load(host.disk.snapshot_data)
        host.node = self._make(node_id, host.directory_id, host.disk, host.bootstrap)
        self.handle(node_id)

    def wipe(self, node_id: int) -> None:
        """Restart a node with its configuration and an empty disk."""
        self._install(node_id, self.hosts[node_id].bootstrap, generation=1)

    # -------------------------------------------------------------------------------------------------------- queries

    def leader(self) -> int | None:
        up = [host for host in self.hosts.values() if not host.is_down]
        leading = [host.node_id for host in up if host.node.status.role is Role.LEADER]
        return leading[0] if len(leading) == 1 else None

    def log(self, node_id: int) -> list[tuple[int, int]]:
        """Return (index, term) of every entry on the node's disk."""
        return [(entry.index, entry.term) for entry in self.hosts[node_id].disk.log]

    def commands(self, node_id: int) -> list[bytes]:
        return self.hosts[node_id].machine.commands

    def seed_log(self, node_id: int, terms: list[int], term: int | None = None) -> None:
        """Give the node a durable log with entries of these terms."""
        host = self.hosts[node_id]
        host.disk.log = [
            RaftEntry(index, entry_term, EntryKind.COMMAND, b"%d" % index) for index, entry_term in enumerate(terms, 1)
        ]
        host.disk.hard_state = type(host.disk.hard_state)(term if term is not None else max(terms, default=0))
        self.restart(node_id)

    def sent_by(self, node_id: int, kind: type[M]) -> list[M]:
        return [message for message in self.sent if message.source == node_id and isinstance(message, kind)]
