"""A cluster in one process, on virtual time, and everything that goes wrong in one: all from one seed.

Messages are lost, repeated, delayed and reordered; links break in one direction or both; nodes crash and lose what was
not written, pause, tick at different rates, have slow disks and failing ones, and come back on empty disks; members are
added, promoted, demoted and removed while clients write and read. `Checker` looks at every step. Then the faults stop,
and the cluster must come to an agreement within a bound.
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
    Accepted,
    Applied,
    ChangeMembership,
    Event,
    PeerGone,
    PeerReached,
    PeerUnreachable,
    Persist,
    Persisted,
    Propose,
    ReadConfirmed,
    ReadIndex,
    Ready,
    Received,
    Refused,
    SnapshotChunkRead,
    SnapshotTaken,
    Tick,
    TransferLeadership,
)
from chronik.raft.membership import UNBOUND, AddLearner, DemoteVoter, Member, Membership, PromoteLearner, RemoveNode
from chronik.raft.messages import AnyMessage, VoteAck, VoteRequest, decode_message, encode_message
from chronik.raft.node import RaftNode
from chronik.raft.roles import Role

from .checker import Checker
from .disk import Disk, Machine

TICK_MS: Final = 100.0
FAULTY_MS: Final = 25_000
"""Some twenty elections long."""
CALM_MS_MAX: Final = 30_000
"""The bound for liveness: a few election timeouts, a snapshot, and a member added again."""
ENDING_MS_MAX: Final = 5_000
"""The bound for what is still awaited when clients stop to ask. A message may be late even then, and a follower gives
up a request after some ticks, those that gathered behind it a tick later: 1.5 s on the slowest clock."""

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
"""Limits so small that all of them are reached."""


@dataclass
class Host:
    """A machine: its disk and directory, and the process on it while there is one."""

    node_id: int
    directory_id: bytes
    bootstrap: Membership
    tick_ms: float
    disk: Disk = field(default_factory=Disk)
    machine: Machine = field(default_factory=Machine)
    node: RaftNode | None = None
    life: int = 0
    """Counts restarts: what an earlier life began must not end in this one."""
    is_paused: bool = False
    backlog: list[Event] = field(default_factory=list)
    write_ms_max: float = 5.0
    writing: Persist | None = None
    entries_at_snapshot: int = 0


class Simulation:
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
        """Elections collide, and voters crash with the ink still wet."""
        self.delay_ms_max = 300.0 if self.is_stormy else self.random.choice((5.0, 40.0, 250.0))
        spread = 1 if self.is_stormy else self.random.choice((2, 3, 6))
        self.config = msgspec.structs.replace(CONFIG, election_spread_ticks=spread)
        self.is_calm = False
        self.have_clients_left = False
        self._next_context = 0
        self.hosts: dict[int, Host] = {}
        self._proposed: dict[int, bytes] = {}
        self._found()
        self.checker = Checker(self.hosts)
        for host in self.hosts.values():
            self._start(host)

    def _found(self) -> None:
        """Three or five voters, whose disks know each other or not, and up to two nodes that wait to be added."""
        voters = self.random.choice((3, 3, 5))
        is_bound = self.random.random() < 0.3
        directories = {node_id: self._directory() for node_id in range(1, voters + 3)}
        members = [
            Member(node_id, directories[node_id] if is_bound else UNBOUND, is_voter=True)
            for node_id in range(1, voters + 1)
        ]
        founders = Membership(tuple(members))
        for node_id in range(1, voters + 1 + self.random.randrange(3)):
            bootstrap = founders if node_id <= voters else Membership()
            tick_ms = TICK_MS * (self.random.uniform(0.99, 1.01) if self.is_stormy else self.random.uniform(0.8, 1.25))
            self.hosts[node_id] = Host(node_id, directories[node_id], bootstrap, tick_ms)

    def _directory(self) -> bytes:
        return self.random.getrandbits(128).to_bytes(16, "big")

    # -------------------------------------------------------------------------------------------------------- running

    def run(self) -> None:
        self._later(self.random.uniform(0, 500), self._fault)
        self._later(self.random.uniform(0, 300), self._client)
        self._later(self.random.uniform(1000, 3000), self._operator)
        self._run_until(lambda: self.now_ms >= FAULTY_MS)
        self._calm_down()
        deadline = self.now_ms + CALM_MS_MAX
        self._run_until(lambda: self._has_converged() or self.now_ms >= deadline)
        assert self._has_converged(), f"no agreement within {CALM_MS_MAX} ms after the faults stopped: {self.summary()}"
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
            + (f" commit {host.node.commit} last {host.node.last_index} {host.node.matches()}" if host.node else "")
            for host in self.hosts.values()
        ]
        return "; ".join(lines)

    # ---------------------------------------------------------------------------------------------------------- hosts

    def _start(self, host: Host) -> None:
        host.life += 1
        host.is_paused = False
        host.backlog = []
        host.writing = None
        host.machine = Machine()
        if host.disk.snapshot.index:
            host.machine.load(host.disk.snapshot_data)
        host.entries_at_snapshot = host.machine.applied
        randomness = random.Random(self.random.getrandbits(64))
        host.node = RaftNode(
            host.node_id, host.directory_id, self.config, host.disk, host.disk.recovered(), host.bootstrap, randomness
        )
        self.checker.started(host)
        life = host.life
        self._later(self.random.uniform(0, host.tick_ms), lambda: self._tick(host, life))

    def _crash(self, host: Host) -> None:
        """What was being written may be on disk up to any step of it."""
        if host.node is None:
            return
        if host.writing is not None:
            host.disk.write(host.writing, self.random.randrange(host.disk.steps(host.writing) + 1))
        host.node = None
        host.writing = None
        self.checker.crashed(host)
        self._tell_gone(host)

    def _tell_gone(self, host: Host) -> None:
        """Some of the others notice that nobody listens at its port, or believe so."""
        for other in self.hosts.values():
            if other is not host and self.random.random() < 0.7:
                gone = partial(self._after, other, other.life, PeerGone(host.node_id))
                self._later(self.random.uniform(1, 100), gone)

    def _heal(self) -> None:
        """Some notice at once whom they reach again, or believe so."""
        self.broken_links.clear()
        for host in self.hosts.values():
            if self.random.random() < 0.7:
                reached = partial(self._after, host, host.life, PeerReached(self.random.choice(list(self.hosts))))
                self._later(self.random.uniform(1, 100), reached)

    def _crash_and_return(self, host: Host) -> None:
        self._crash(host)
        life = host.life
        delay_ms = self.random.uniform(1, 10 if self.is_stormy else 100)
        self._later(delay_ms, lambda: self._start(host) if host.life == life else None)

    def _happens(self, probability: float) -> bool:
        return not self.is_calm and self.random.random() < probability

    def _tick(self, host: Host, life: int) -> None:
        if host.node is None or host.life != life:
            return
        self._later(host.tick_ms, lambda: self._tick(host, life))
        if not host.is_paused:  # a stalled loop ticks once, not once for every tick that it missed
            self._handle(host, Tick())

    def _handle(self, host: Host, *events: Event) -> None:
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
        self._carry_out(host, ready)

    def _carry_out(self, host: Host, ready: Ready) -> None:
        life = host.life
        if ready.persist is not None:
            host.writing = ready.persist
            self._later(self.random.uniform(0.1, host.write_ms_max), lambda: self._written(host, life))
        for message in ready.messages:
            self._send(message)
        has_voted = any(isinstance(m, VoteAck | VoteRequest) and not m.is_pre_vote for m in ready.messages)
        if has_voted and self._happens(0.3 if self.is_stormy else 0.05):
            self._crash_and_return(host)  # the moment at which forgetting is most dangerous
            return
        if ready.restore is not None:
            host.machine.load(host.disk.snapshot_data)
            self.checker.applied(host, None)
        for entry in ready.committed:
            host.machine.apply(entry)
            self.checker.applied(host, entry)
        if ready.restore is not None or ready.committed:
            index = host.machine.applied
            self._later(self.random.uniform(0, 4), lambda: self._after(host, life, Applied(index)))
        for outcome in ready.outcomes:
            self._take_outcome(host, outcome)
        for wanted in ready.chunks_wanted:
            is_there = wanted.index == host.disk.snapshot.index
            end = wanted.offset + wanted.bytes_max
            data = host.disk.snapshot_data[wanted.offset : end] if is_there else None
            answer = SnapshotChunkRead(wanted.peer, wanted.index, wanted.offset, data)
            self._later(self.random.uniform(0, 5), lambda answer=answer: self._after(host, life, answer))  # type: ignore[misc]

    def _after(self, host: Host, life: int, event: Event) -> None:
        if host.life == life and host.node is not None:
            self._handle(host, event)
            if isinstance(event, Applied):
                self._maybe_snapshot(host)

    def _written(self, host: Host, life: int) -> None:
        if host.life != life or host.node is None or host.writing is None:
            return
        if self._happens(0.001):
            self._crash(host)  # the sync failed: the node stops
            return
        persist, host.writing = host.writing, None
        host.disk.write(persist)
        self._handle(host, Persisted(persist.sequence))

    def _maybe_snapshot(self, host: Host) -> None:
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

    def _send(self, message: AnyMessage) -> None:
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
                delay_ms += self.random.uniform(0, 3_000)  # one that got lost in a queue, for several terms perhaps
            self._later(delay_ms, lambda: self._deliver(message.source, message.target, data))

    def _deliver(self, source: int, target: int, data: bytes) -> None:
        if (source, target) not in self.broken_links and target in self.hosts:
            self._handle(self.hosts[target], Received(decode_message(data)))

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
                self._tell_gone(self._leader() or host)  # which it is not
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

    def _cut(self, host: Host) -> None:
        for other in self.hosts:
            direction = self.random.randrange(4)
            if other != host.node_id and direction & 1:
                self.broken_links.add((host.node_id, other))
            if other != host.node_id and direction & 2:
                self.broken_links.add((other, host.node_id))

    def _resume(self, host: Host, life: int) -> None:
        if host.life == life and host.node is not None and host.is_paused:
            host.is_paused = False
            events, host.backlog = host.backlog, []
            if self._happens(0.5):
                self._read(host)  # before it hears what has happened meanwhile
            for event in events:
                self._handle(host, event)

    def _wipe(self, host: Host) -> None:
        """A disk is lost for good, and replaced by an empty one: one at a time, or committed entries would be lost by
        the loss of a majority of their copies; and not before every founder has heard of the cluster."""
        if self.random.random() < 0.5 or not self.checker.may_lose_disk(host):
            return
        self._crash(host)
        host.directory_id = self._directory()
        host.disk = Disk()

    # ------------------------------------------------------------------------------------------ clients and operators

    def _context(self) -> int:
        self._next_context += 1
        return self._next_context

    def _leader(self) -> Host | None:
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
            self.checker.outcome_awaited(host, context)
            self._proposed[context] = commands[0]
            self._handle(host, Propose(commands, context))

    def _read(self, host: Host) -> None:
        context = self._context()
        self.checker.read_asked(host, context)
        self._handle(host, ReadIndex(context))

    def _operator(self) -> None:
        """Adds, promotes, demotes and removes members, lets replaced disks in again, and hands leadership over."""
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
            self.checker.outcome_awaited(host, event.context)
            self._handle(host, event)

    def _membership_event(self, node: RaftNode) -> ChangeMembership | None:
        membership = node.membership
        for host in self.hosts.values():
            known = membership.get(host.node_id)
            if known is not None and known.directory_id not in (UNBOUND, host.directory_id):
                return ChangeMembership(AddLearner(host.node_id, host.directory_id), self._context())
        learners = [member.node_id for member in membership.members if not member.is_voter]
        if learners:
            return ChangeMembership(PromoteLearner(self.random.choice(learners)), self._context())
        if self.is_calm:
            return None
        strangers = [host for host in self.hosts.values() if membership.get(host.node_id) is None]
        if strangers and self.random.random() < 0.6:
            stranger = self.random.choice(strangers)
            return ChangeMembership(AddLearner(stranger.node_id, stranger.directory_id), self._context())
        if len(membership.voters) > 3 or (len(membership.voters) == 3 and self.random.random() < 0.1):
            change = RemoveNode if self.random.random() < 0.6 else DemoteVoter
            return ChangeMembership(change(self.random.choice(membership.voters)), self._context())
        return None

    def _take_outcome(self, host: Host, outcome: Accepted | Refused | ReadConfirmed) -> None:
        self.checker.ended(host, outcome)
        if isinstance(outcome, Accepted) and outcome.context in self._proposed:
            self.checker.awaited_commands[outcome.first_index, outcome.term] = self._proposed.pop(outcome.context)

    # ----------------------------------------------------------------------------------------------------- and the end

    def _calm_down(self) -> None:
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
        """What was asked a moment ago may be on its way still; only without newcomers can all of it have ended."""
        self.have_clients_left = True
        deadline = self.now_ms + ENDING_MS_MAX
        self._run_until(lambda: (self._has_converged() and not self.checker.is_awaiting) or self.now_ms >= deadline)
        assert self._has_converged(), f"the agreement was lost again: {self.summary()}"

    def _converging(self) -> list[Host]:
        """The members, in the eyes of the leader; a node that was removed is told nothing any more."""
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
