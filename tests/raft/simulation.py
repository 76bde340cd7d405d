"""A deterministic simulation of a Raft cluster on virtual time with fault injection, driven by one seed.

Messages are lost, duplicated, delayed and reordered; links fail in one or both directions; nodes crash and lose
unsynced writes, pause, tick at different rates, have slow or failing disks, and return with empty disks; members are
added, promoted, demoted and removed while clients write and read. `Checker` verifies every step. After the faults stop,
the cluster must converge within a time limit.
"""

from __future__ import annotations

import hashlib
import heapq
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Final

import msgspec

from chronik.raft.config import RaftConfig
from chronik.raft.events import (
    ChangeMembership,
    EntriesApplied,
    MessageReceived,
    PeerConnected,
    PeerDown,
    PeerUnreachable,
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
from chronik.raft.membership import (
    UNBOUND_DIRECTORY,
    AddLearner,
    DemoteVoter,
    Membership,
    PromoteLearner,
    RaftMember,
    RemoveMember,
)
from chronik.raft.messages import AnyRaftMessage, VoteAck, VoteRequest, decode_message, encode_message
from chronik.raft.node import RaftNode
from chronik.raft.roles import Role
from tests.raft.checker import RaftChecker
from tests.raft.disk import HashChainStateMachine, SimulatedDisk

TICK_MS: Final = 100.0
FAULTY_MS: Final = 25_000
"""Duration of the faults: about twenty elections."""
CALM_MS_MAX: Final = 30_000
"""Time limit for convergence: a few election timeouts, a snapshot, and the admission of a member."""
ENDING_MS_MAX: Final = 5_000
"""Time limit for the last requests after clients have stopped.

Messages may still be delayed, and a follower's requests time out after some ticks: 1.5 s on the slowest clock."""

CONFIG: Final = RaftConfig(
    election_ticks=6,
    election_spread_ticks=6,
    heartbeat_ticks=2,
    entry_bytes_max=1_000,
    append_bytes_max=200,
    inflight_messages_max=4,
    inflight_bytes_max=600,
    uncommitted_bytes_max=2_000,
    apply_bytes_max=300,
    snapshot_chunk_bytes=150,
    snapshot_retry_ticks=4,
    promotion_lag_max_entries=8,
    reads_pending_max=40,
    forwarded_read_ticks=8,
)
"""Limits that are small enough for all of them to be reached."""


@dataclass
class SimulatedHost:
    """A machine with its disk and directory id, and its Raft node while it is running."""

    node_id: int
    directory_id: bytes
    bootstrap: Membership
    tick_ms: float
    disk: SimulatedDisk = field(default_factory=SimulatedDisk)
    machine: HashChainStateMachine = field(default_factory=HashChainStateMachine)
    node: RaftNode | None = None
    life: int = 0
    """Number of restarts, used to ignore events from before the last one."""
    is_paused: bool = False
    backlog: list[RaftEvent] = field(default_factory=list)
    write_ms_max: float = 5.0
    writing: Persist | None = None
    entries_at_snapshot: int = 0


class RaftSimulation:
    """A simulated cluster, its clients and its faults."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.random = random.Random(seed)
        self.now_ms = 0.0
        self._queue: list[tuple[float, int, Callable[[], None]]] = []
        self._queued = 0
        self._trace = hashlib.blake2b(digest_size=16)
        self.steps = 0
        self.broken_links: set[tuple[int, int]] = set()
        self.loss = self.random.choice((0.0, 0.02, 0.1))
        self.duplication = self.random.choice((0.0, 0.05))
        self.is_stormy = self.random.random() < 0.25
        """Whether elections collide and voters often crash right after voting."""
        self.delay_ms_max = 300.0 if self.is_stormy else self.random.choice((5.0, 40.0, 250.0))
        spread = 1 if self.is_stormy else self.random.choice((2, 3, 6))
        self.config = msgspec.structs.replace(CONFIG, election_spread_ticks=spread)
        self.is_calm = False
        self.have_clients_left = False
        self._next_context = 0
        self.hosts: dict[int, SimulatedHost] = {}
        self._proposed: dict[int, bytes] = {}
        self._create_hosts()
        self.checker = RaftChecker(self.hosts)
        for host in self.hosts.values():
            self._start(host)

    def _create_hosts(self) -> None:
        """Create three or five voters, bound to their directories or not, and up to two nodes to be added later."""
        voters = self.random.choice((3, 3, 5))
        is_bound = self.random.random() < 0.3
        directories = {node_id: self._directory() for node_id in range(1, voters + 3)}
        members = [
            RaftMember(node_id, directories[node_id] if is_bound else UNBOUND_DIRECTORY, is_voter=True)
            for node_id in range(1, voters + 1)
        ]
        founders = Membership(tuple(members))
        for node_id in range(1, voters + 1 + self.random.randrange(3)):
            bootstrap = founders if node_id <= voters else Membership()
            tick_ms = TICK_MS * (self.random.uniform(0.99, 1.01) if self.is_stormy else self.random.uniform(0.8, 1.25))
            self.hosts[node_id] = SimulatedHost(node_id, directories[node_id], bootstrap, tick_ms)

    def _directory(self) -> bytes:
        return self.random.getrandbits(128).to_bytes(16, "big")

    # -------------------------------------------------------------------------------------------------------- running

    def run(self) -> None:
        self._later(self.random.uniform(0, 500), self._fault)
        self._later(self.random.uniform(0, 300), self._client)
        self._later(self.random.uniform(1000, 3000), self._operator)
        self._run_until(lambda: self.now_ms >= FAULTY_MS)
        self._stop_faults()
        deadline = self.now_ms + CALM_MS_MAX
        self._run_until(lambda: self._has_converged() or self.now_ms >= deadline)
        assert self._has_converged(), f"no convergence within {CALM_MS_MAX} ms after the faults: {self.summary()}"
        self._let_requests_end()
        self.checker.check_end(self._converging())

    def _run_until(self, is_done: Callable[[], bool]) -> None:
        while not is_done():
            self.now_ms, _, action = heapq.heappop(self._queue)
            action()

    def _later(self, delay_ms: float, action: Callable[[], None]) -> None:
        self._queued += 1
        heapq.heappush(self._queue, (self.now_ms + delay_ms, self._queued, action))

    def trace_hash(self) -> str:
        return self._trace.hexdigest()

    def summary(self) -> str:
        lines = [
            f"{host.node_id}: {host.node.status if host.node else 'down'}"
            + (
                f" commit {host.node.commit} last {host.node.last_index} {host.node.match_indexes()}"
                if host.node
                else ""
            )
            for host in self.hosts.values()
        ]
        return "; ".join(lines)

    # ---------------------------------------------------------------------------------------------------------- hosts

    def _start(self, host: SimulatedHost) -> None:
        host.life += 1
        host.is_paused = False
        host.backlog = []
        host.writing = None
        host.machine = HashChainStateMachine()
        if host.disk.snapshot.index:
            host.machine.load(host.disk.snapshot_data)
        host.entries_at_snapshot = host.machine.applied
        randomness = random.Random(self.random.getrandbits(64))
        host.node = RaftNode(
            host.node_id, host.directory_id, self.config, host.disk, host.disk.recovered(), host.bootstrap, randomness
        )
        self.checker.on_started(host)
        life = host.life
        self._later(self.random.uniform(0, host.tick_ms), lambda: self._tick(host, life))

    def _crash(self, host: SimulatedHost) -> None:
        """Crash a node; any prefix of its outstanding write may be on disk."""
        if host.node is None:
            return
        if host.writing is not None:
            host.disk.write(host.writing, self.random.randrange(host.disk.steps(host.writing) + 1))
        host.node = None
        host.writing = None
        self.checker.on_crashed(host)
        self._report_down(host)

    def _report_down(self, host: SimulatedHost) -> None:
        """Report the host as down to some of the other nodes, rightly or not."""
        for other in self.hosts.values():
            if other is not host and self.random.random() < 0.7:
                gone = partial(self._after, other, other.life, PeerDown(host.node_id))
                self._later(self.random.uniform(1, 100), gone)

    def _heal(self) -> None:
        """Repair all links and report reconnected peers to some nodes, rightly or not."""
        self.broken_links.clear()
        for host in self.hosts.values():
            if self.random.random() < 0.7:
                reached = partial(self._after, host, host.life, PeerConnected(self.random.choice(list(self.hosts))))
                self._later(self.random.uniform(1, 100), reached)

    def _crash_and_return(self, host: SimulatedHost) -> None:
        self._crash(host)
        life = host.life
        delay_ms = self.random.uniform(1, 10 if self.is_stormy else 100)
        self._later(delay_ms, lambda: self._start(host) if host.life == life else None)

    def _happens(self, probability: float) -> bool:
        return not self.is_calm and self.random.random() < probability

    def _tick(self, host: SimulatedHost, life: int) -> None:
        if host.node is None or host.life != life:
            return
        self._later(host.tick_ms, lambda: self._tick(host, life))
        if not host.is_paused:  # a stalled event loop does not make up for missed ticks
            self._handle(host, Tick())

    def _handle(self, host: SimulatedHost, *events: RaftEvent) -> None:
        if host.node is None:
            return
        if host.is_paused:
            host.backlog.extend(events)
            return
        self.steps += 1
        self.checker.before(host)
        ready = host.node.handle(*events)
        self._trace.update(f"{self.now_ms:.6f} {host.node_id} {events!r} {ready!r}".encode())
        self.checker.after(host, ready)
        self._execute(host, ready)

    def _execute(self, host: SimulatedHost, ready: Ready) -> None:
        life = host.life
        if ready.persist is not None:
            host.writing = ready.persist
            self._later(self.random.uniform(0.1, host.write_ms_max), lambda: self._written(host, life))
        for message in ready.messages:
            self._send(message)
        has_voted = any(isinstance(m, VoteAck | VoteRequest) and not m.is_pre_vote for m in ready.messages)
        if has_voted and self._happens(0.3 if self.is_stormy else 0.05):
            self._crash_and_return(host)  # a crash right after voting is the most dangerous one
            return
        if ready.restore is not None:
            host.machine.load(host.disk.snapshot_data)
            self.checker.on_applied(host, None)
        for entry in ready.committed:
            host.machine.apply(entry)
            self.checker.on_applied(host, entry)
        if ready.restore is not None or ready.committed:
            index = host.machine.applied
            self._later(self.random.uniform(0, 4), lambda: self._after(host, life, EntriesApplied(index)))
        for outcome in ready.outcomes:
            self._take_outcome(host, outcome)
        for wanted in ready.chunk_requests:
            is_there = wanted.index == host.disk.snapshot.index
            end = wanted.offset + wanted.bytes_max
            data = host.disk.snapshot_data[wanted.offset : end] if is_there else None
            answer = SnapshotChunkRead(wanted.peer, wanted.index, wanted.offset, data)
            self._later(self.random.uniform(0, 5), lambda answer=answer: self._after(host, life, answer))  # type: ignore[misc]

    def _after(self, host: SimulatedHost, life: int, event: RaftEvent) -> None:
        if host.life == life and host.node is not None:
            self._handle(host, event)
            if isinstance(event, EntriesApplied):
                self._maybe_snapshot(host)

    def _written(self, host: SimulatedHost, life: int) -> None:
        if host.life != life or host.node is None or host.writing is None:
            return
        if self._happens(0.001):
            self._crash(host)  # the sync failed, so the node stops
            return
        persist, host.writing = host.writing, None
        host.disk.write(persist)
        self._handle(host, Persisted(persist.sequence))

    def _maybe_snapshot(self, host: SimulatedHost) -> None:
        node = host.node
        if node is None or host.is_paused or host.writing is not None or node.applied != host.machine.applied:
            return
        if node.applied - host.entries_at_snapshot < 25 or node.applied <= node.snapshot.index:
            return
        term = node.term_at(node.applied)
        assert term is not None
        snapshot, data = host.machine.save(node.membership_at(node.applied), term)
        host.disk.save_snapshot(snapshot, data)
        host.entries_at_snapshot = snapshot.index
        self._handle(host, SnapshotTaken(snapshot, max(0, snapshot.index - self.random.choice((0, 10)))))

    # -------------------------------------------------------------------------------------------------------- network

    def _send(self, message: AnyRaftMessage) -> None:
        if (message.source, message.target) in self.broken_links or self.random.random() < self.loss:
            if self.random.random() < 0.1:
                source = self.hosts[message.source]
                life = source.life
                self._later(1.0, lambda: self._after(source, life, PeerUnreachable(message.target)))
            return
        data = encode_message(message)
        copies = 2 if self.random.random() < self.duplication else 1
        for _ in range(copies):
            delay_ms = self.random.uniform(0.2, self.delay_ms_max)
            if self.random.random() < 0.01:
                delay_ms += self.random.uniform(0, 3_000)  # a message delayed for several terms
            self._later(delay_ms, lambda: self._deliver(message.source, message.target, data))

    def _deliver(self, source: int, target: int, data: bytes) -> None:
        if (source, target) not in self.broken_links and target in self.hosts:
            self._handle(self.hosts[target], MessageReceived(decode_message(data)))

    # --------------------------------------------------------------------------------------------------------- faults

    def _fault(self) -> None:
        if self.is_calm:
            return
        self._later(self.random.expovariate(1 / 350), self._fault)
        host = self.random.choice(list(self.hosts.values()))
        kind = self.random.choice(("crash", "crash", "start", "start", "cut", "cut", "heal", "pause", "disk", "wipe"))
        if kind == "crash":
            victim = self._leader() if self._happens(0.4) else None
            if self._happens(0.5):
                self._crash(victim or host)
            else:
                self._crash_and_return(victim or host)
        elif kind == "start":
            for each in self.hosts.values():
                if each.node is None and self.random.random() < 0.7:
                    self._start(each)
        elif kind == "cut":
            self._cut(self._leader() or host)
            if self._happens(0.2):
                self._report_down(self._leader() or host)  # a false report
        elif kind == "heal":
            self._heal()
        elif kind == "pause" and host.node is not None:
            host.is_paused = True
            life = host.life
            self._later(self.random.uniform(100, 2_500), lambda: self._resume(host, life))
        elif kind == "disk":
            host.write_ms_max = self.random.choice((1.0, 5.0, 50.0, 800.0))
        elif kind == "wipe":
            self._wipe(host)

    def _cut(self, host: SimulatedHost) -> None:
        for other in self.hosts:
            direction = self.random.randrange(4)
            if other != host.node_id and direction & 1:
                self.broken_links.add((host.node_id, other))
            if other != host.node_id and direction & 2:
                self.broken_links.add((other, host.node_id))

    def _resume(self, host: SimulatedHost, life: int) -> None:
        if host.life == life and host.node is not None and host.is_paused:
            host.is_paused = False
            events, host.backlog = host.backlog, []
            if self._happens(0.5):
                self._read(host)  # before the node receives newer messages
            for event in events:
                self._handle(host, event)

    def _wipe(self, host: SimulatedHost) -> None:
        """Replace a disk with an empty one.

        Only one disk is replaced at a time, because committed entries must remain on a majority, and not before every
        initial voter knows the cluster.
        """
        if self.random.random() < 0.5 or not self.checker.may_lose_disk(host):
            return
        self._crash(host)
        host.directory_id = self._directory()
        host.disk = SimulatedDisk()

    # ------------------------------------------------------------------------------------------ clients and operators

    def _context(self) -> int:
        self._next_context += 1
        return self._next_context

    def _leader(self) -> SimulatedHost | None:
        leading = [h for h in self.hosts.values() if h.node is not None and h.node.status.role is Role.LEADER]
        return max(leading, key=lambda h: h.node.status.term if h.node else 0, default=None)

    def _client(self) -> None:
        if self.have_clients_left:
            return
        self._later(self.random.expovariate(1 / 70), self._client)
        host = self._leader() if self.random.random() < 0.7 else None
        host = host or self.random.choice(list(self.hosts.values()))
        if host.node is None or host.is_paused:
            return
        if self.random.random() < 0.4:
            self._read(host)
        else:
            context = self._context()
            count = self.random.choice((1, 1, 3, 12))
            commands = tuple(b"%d.%d" % (context, number) for number in range(count))
            self.checker.on_request(host, context)
            self._proposed[context] = commands[0]
            self._handle(host, Propose(commands, context))

    def _read(self, host: SimulatedHost) -> None:
        context = self._context()
        self.checker.on_read_requested(host, context)
        self._handle(host, ReadIndex(context))

    def _operator(self) -> None:
        """Change the membership, admit replaced disks, and transfer the leadership."""
        self._later(self.random.expovariate(1 / 700), self._operator)
        host = self._leader()
        if host is None or host.node is None or host.is_paused:
            return
        event: ChangeMembership | TransferLeadership | None = None
        if self.random.random() < 0.8:
            event = self._membership_event(host.node)
        if event is None and not self.is_calm:
            target = self.random.choice(list(self.hosts))
            event = TransferLeadership(target, self._context())
        if event is not None:
            self.checker.on_request(host, event.context)
            self._handle(host, event)

    def _membership_event(self, node: RaftNode) -> ChangeMembership | None:
        membership = node.membership
        for host in self.hosts.values():
            known = membership.get(host.node_id)
            if known is not None and known.directory_id not in (UNBOUND_DIRECTORY, host.directory_id):
                return ChangeMembership(AddLearner(host.node_id, host.directory_id), self._context())
        learners = [member.node_id for member in membership.members if not member.is_voter]
        if learners:
            return ChangeMembership(PromoteLearner(self.random.choice(learners)), self._context())
        if self.is_calm:
            return None
        outsiders = [host for host in self.hosts.values() if membership.get(host.node_id) is None]
        if outsiders and self.random.random() < 0.6:
            outsider = self.random.choice(outsiders)
            return ChangeMembership(AddLearner(outsider.node_id, outsider.directory_id), self._context())
        if len(membership.voters) > 3 or (len(membership.voters) == 3 and self.random.random() < 0.1):
            change = RemoveMember if self.random.random() < 0.6 else DemoteVoter
            return ChangeMembership(change(self.random.choice(membership.voters)), self._context())
        return None

    def _take_outcome(
        self, host: SimulatedHost, outcome: RequestAccepted | RequestRejected | ReadIndexConfirmed
    ) -> None:
        self.checker.on_outcome(host, outcome)
        if isinstance(outcome, RequestAccepted) and outcome.context in self._proposed:
            self.checker.awaited_commands[outcome.first_index, outcome.term] = self._proposed.pop(outcome.context)

    # --------------------------------------------------------------------------------------------------- end of the run

    def _stop_faults(self) -> None:
        self.is_calm = True
        self.broken_links.clear()
        self.loss = self.duplication = 0.0
        self.delay_ms_max = 5.0
        for host in self.hosts.values():
            host.write_ms_max = 5.0
            if host.node is None:
                self._start(host)
            self._resume(host, host.life)

    def _let_requests_end(self) -> None:
        """Wait for the last requests, after clients have stopped."""
        self.have_clients_left = True
        deadline = self.now_ms + ENDING_MS_MAX
        self._run_until(
            lambda: (self._has_converged() and not self.checker.has_pending_requests) or self.now_ms >= deadline
        )
        assert self._has_converged(), f"the cluster has diverged again: {self.summary()}"

    def _converging(self) -> list[SimulatedHost]:
        """Return the hosts of the leader's members; removed nodes receive no more updates."""
        leader = self._leader()
        if leader is None or leader.node is None:
            return []
        return [self.hosts[member.node_id] for member in leader.node.membership.members]

    def _has_converged(self) -> bool:
        leader = self._leader()
        if leader is None or leader.node is None or self.now_ms < FAULTY_MS + 3_000:
            return False
        members = leader.node.membership.members
        if any(self.hosts[m.node_id].directory_id != m.directory_id or not m.is_voter for m in members):
            return False
        commit = leader.node.commit
        if commit < leader.node.last_index - 15 or leader.node.term_at(commit) != leader.node.status.term:
            return False
        return all(self.hosts[member.node_id].machine.applied >= commit for member in members)
