"""The state of a node, and the few things that every part of the core does with it: terms, roles, the outbox.

The parts (election, replication, reads, snapshots, members) are functions over this state; `node.RaftNode` is the only
one that calls them. What a change means for safety is decided in `rules`.
"""

from __future__ import annotations

import random
from collections import deque
from typing import Any, Final

from chronik.errors import invariant
from chronik.raft import rules
from chronik.raft.config import RaftConfig
from chronik.raft.entries import Entry, EntryKind, Recovered, Storage
from chronik.raft.events import Accepted, ReadConfirmed, Refusal, Refused, SnapshotChunkWanted, Status
from chronik.raft.log_view import LogView
from chronik.raft.membership import NOBODY, UNBOUND, Membership, MembershipHistory, decode_membership
from chronik.raft.messages import PROMISES, AnyMessage, Message
from chronik.raft.progress import Progress
from chronik.raft.read_queue import ForwardedReads, ReadQueue
from chronik.raft.roles import Career, Role, Step
from chronik.raft.writes import IncomingSnapshot, Writes


class RaftCore:
    def __init__(
        self,
        node_id: int,
        directory_id: bytes,
        config: RaftConfig,
        storage: Storage,
        recovered: Recovered,
        bootstrap: Membership,
        randomness: random.Random,
    ) -> None:
        config.check()
        invariant(directory_id != UNBOUND and len(directory_id) == 16, "a node needs a directory id")
        self.node_id: Final = node_id
        self.directory_id: Final = directory_id
        self.config: Final = config
        self.random: Final = randomness

        # What is on disk, or will be with the next persist:
        self.log: Final = LogView(storage, recovered)
        self.snapshot = recovered.snapshot
        first_membership = recovered.snapshot.membership if recovered.snapshot.index else bootstrap
        self.memberships: Final = MembershipHistory(recovered.snapshot.index, first_membership)
        self.term, self.vote, self.commit = self._recover(recovered)
        self.applied = self.handed_to_apply = recovered.snapshot.index
        self.writes: Final = Writes(self.log, recovered.hard_state)
        self.restore_after: int | None = None
        """The sequence after which the state machine may load the snapshot that has taken the place of the log."""

        # In every role:
        self.career: Final = Career(node_id)
        self.leader = NOBODY
        self.elapsed_ticks = self.election_timeout_ticks = 0
        self.is_disowned = False
        """A peer has addressed this node on another disk: it was a member before, and has forgotten it. Until a
        membership names the present disk, it must not pass for a fresh node that helps to found a cluster."""
        self.incoming: IncomingSnapshot | None = None
        self.forwarded: Final = ForwardedReads(randomness.getrandbits(62))

        # As a candidate:
        self.votes: dict[int, bool] = {}
        self.directories_seen: dict[int, bytes] = {node_id: directory_id}

        # As a leader:
        self.peers: dict[int, Progress] = {}
        self.heartbeat_elapsed_ticks = self.quorum_elapsed_ticks = self.transfer_elapsed_ticks = 0
        self.reads: Final = ReadQueue()
        self.transferee = NOBODY
        self.uncommitted: Final[deque[tuple[int, int]]] = deque()
        """(last index, bytes) of each proposal, oldest first."""
        self.uncommitted_bytes = 0

        # What the next Ready will hold:
        self.outbox: list[AnyMessage] = []
        self.outcomes: list[Accepted | Refused | ReadConfirmed] = []
        self.chunks_wanted: list[SnapshotChunkWanted] = []
        self.steps: list[Step] = []
        self.status_told = Status(Role.FOLLOWER, self.term, NOBODY)

        self.adopt_membership()
        self.restart_election_timer()

    def _recover(self, recovered: Recovered) -> tuple[int, int, int]:
        """Reads the log once, for its terms and memberships; returns term, vote and commit index."""
        for entry in self.log.recover():
            if entry.kind is EntryKind.MEMBERSHIP and entry.index > recovered.snapshot.index:
                self.memberships.append(entry.index, decode_membership(entry.data))
        term, vote = recovered.hard_state.term, recovered.hard_state.vote
        if self.log.last_term > term:
            # Entries were written, the hard state beside them was lost in a crash. A vote in that term would have
            # been durable before it was given, so none was given.
            term, vote = self.log.last_term, NOBODY
        commit = max(recovered.hard_state.commit, recovered.snapshot.index)
        invariant(commit <= self.log.last_index, "the log on disk has lost entries that were committed")
        return term, vote, commit

    # ------------------------------------------------------------------------------------------------------- looking

    @property
    def role(self) -> Role:
        return self.career.role

    @property
    def membership(self) -> Membership:
        return self.memberships.current

    @property
    def may_campaign(self) -> bool:
        """A node that its newest membership leaves out still stands until that is committed (thesis §4.2.2): it may be
        the only one that has the entry, and then the others cannot elect anybody without it. It will not count
        itself."""
        if self.is_disowned:
            return False
        is_settled = self.memberships.index <= self.commit
        seats = [self.membership] if is_settled else [self.membership, self.memberships.previous]
        return any(
            rules.may_campaign(seat.get(self.node_id), self.directory_id, self.memberships.index) for seat in seats
        )

    @property
    def is_leased(self) -> bool:
        is_leader = self.role is Role.LEADER
        return rules.is_leased(is_leader, self.leader, self.elapsed_ticks, self.config.election_ticks)

    @property
    def has_committed_in_term(self) -> bool:
        return rules.may_serve_reads(self.log.term(self.commit), self.term)

    def counts(self, node_id: int, directory_id: bytes) -> bool:
        return rules.counts(self.membership.get(node_id), directory_id, self.memberships.index)

    def status(self) -> Status:
        return Status(self.role, self.term, self.leader)

    # ------------------------------------------------------------------------------------------------ terms and roles

    def enter_term(self, term: int, vote: int = NOBODY) -> None:
        """The only place where term and vote move together: a vote belongs to its term."""
        invariant(term > self.term, f"the term goes from {self.term} to {term}")
        self.vote = rules.vote_in_new_term(self.vote, self.term, term) if vote == NOBODY else vote
        self.term = term
        self.writes.enter_term(term)

    def become_follower(self, leader: int, reason: str) -> None:
        """The node follows in the current term; whatever it was about to do as a candidate or leader is void."""
        self.leader = leader
        if self.role is not Role.FOLLOWER:
            self.take_step(Role.FOLLOWER, reason)
        self.leave_office()
        self.restart_election_timer()

    def take_step(self, target: Role, reason: str) -> None:
        self.steps.append(self.career.move(target, self.term, reason))

    def leave_office(self) -> None:
        """Drops all that belongs to one election or one leadership; those who wait for it are told."""
        self.votes = {}
        self.peers = {}
        self.transferee = NOBODY
        self.uncommitted.clear()
        self.uncommitted_bytes = 0
        self.fail_reads()

    def fail_reads(self) -> None:
        """Refuses our own reads that wait for a confirmation here; those of other nodes get no answer, and time out."""
        for read in self.reads.drain():
            if read.node_id == self.node_id:
                self.refuse(read.request, Refusal.NOT_LEADER)
        for context in self.forwarded.drain():
            self.refuse(context, Refusal.NOT_LEADER)

    def restart_election_timer(self) -> None:
        self.elapsed_ticks = 0
        spread = self.random.randrange(self.config.election_spread_ticks)
        self.election_timeout_ticks = self.config.election_ticks + spread

    # ---------------------------------------------------------------------------------------------------- membership

    def adopt_membership(self, next_index: int | None = None) -> None:
        """Is called after every change of the membership in force. A peer on another disk is another peer: nothing that
        is known about the old one holds for it. New peers are tried with `next_index` first."""
        own = self.membership.get(self.node_id)
        if own is not None and own.directory_id == self.directory_id:
            self.is_disowned = False
        if self.role is not Role.LEADER:
            return
        peers: dict[int, Progress] = {}
        for member in self.membership.members:
            if member.node_id == self.node_id:
                continue
            known = self.peers.get(member.node_id)
            if known is None or known.directory_id != member.directory_id:
                known = Progress(member.directory_id, next_index or self.log.last_index + 1, self.config)
            peers[member.node_id] = known
        self.peers = peers
        if self.transferee not in peers:
            self.transferee = NOBODY

    # --------------------------------------------------------------------------------------------------------- the log

    def append_to_log(self, entries: list[Entry] | tuple[Entry, ...]) -> None:
        """Appends; memberships among the entries are in force at once, and those that a conflict removes no longer."""
        is_changed = self.memberships.truncate_from(entries[0].index)
        self.log.append(entries)
        for entry in entries:
            if entry.kind is EntryKind.MEMBERSHIP:
                self.memberships.append(entry.index, decode_membership(entry.data))
                is_changed = True
        if is_changed:
            self.adopt_membership(next_index=entries[0].index)

    def commit_through(self, index: int) -> None:
        if index <= self.commit:
            return
        invariant(index <= self.log.last_index, f"commit {index} is beyond the end {self.log.last_index}")
        self.commit = index
        while self.uncommitted and self.uncommitted[0][0] <= index:
            self.uncommitted_bytes -= self.uncommitted.popleft()[1]

    # ------------------------------------------------------------------------------------------------------ the outbox

    def send(self, kind: type[Message], target: int, **fields: Any) -> None:
        known = self.membership.get(target)
        self._post(kind, target, known.directory_id if known else UNBOUND, fields)

    def reply(self, received: AnyMessage, kind: type[Message], **fields: Any) -> None:
        """Answers the very disk that asked, whatever the membership thinks of it."""
        self._post(kind, received.source, received.source_directory, fields)

    def _post(self, kind: type[Message], target: int, target_directory: bytes, fields: dict[str, Any]) -> None:
        message: Any = kind(
            source=self.node_id,
            source_directory=self.directory_id,
            target=target,
            target_directory=target_directory,
            term=self.term,
            **fields,
        )
        promise = PROMISES[kind]
        is_term_durable = self.writes.is_term_durable(self.term, self.vote)
        is_everything_durable = self.writes.is_everything_durable(self.term, self.vote)
        if rules.waits_for(promise, is_term_durable, is_everything_durable):
            self.writes.hold(message, promise, self.term, self.vote)
        else:
            self.outbox.append(message)

    def refuse(self, context: int, refusal: Refusal) -> None:
        self.outcomes.append(Refused(context, refusal, self.leader))
