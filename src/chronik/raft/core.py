"""The state of a Raft node and the operations that all parts of the algorithm share: terms, roles and the outbox.

Elections, replication, reads, snapshots and membership changes are functions over this state, called only by
`node.RaftNode`. All safety decisions are made in `rules`.
"""

from __future__ import annotations

import random
from collections import deque
from typing import Any, Final

from chronik.errors import check_invariant
from chronik.raft import rules
from chronik.raft.config import RaftConfig
from chronik.raft.entries import EntryKind, EntryStorage, RaftEntry, RecoveredRaftState
from chronik.raft.events import (
    RaftStatus,
    ReadIndexConfirmed,
    RejectionReason,
    RequestAccepted,
    RequestRejected,
    SnapshotChunkRequest,
)
from chronik.raft.log import RaftLog
from chronik.raft.membership import NO_NODE, UNBOUND_DIRECTORY, Membership, MembershipHistory, decode_membership
from chronik.raft.messages import REQUIRED_DURABILITY, AnyRaftMessage, RaftMessage
from chronik.raft.pending_writes import IncomingSnapshot, PendingWrites
from chronik.raft.progress import PeerProgress
from chronik.raft.read_queue import ForwardedReads, ReadQueue
from chronik.raft.roles import Role, RoleHistory, RoleTransition


class RaftCore:
    """The state of a Raft node: its log, term, vote, role and peers, and the results of the current event."""

    def __init__(
        self,
        node_id: int,
        directory_id: bytes,
        config: RaftConfig,
        storage: EntryStorage,
        recovered: RecoveredRaftState,
        bootstrap: Membership,
        randomness: random.Random,
    ) -> None:
        config.check()
        check_invariant(
            directory_id != UNBOUND_DIRECTORY and len(directory_id) == 16, "Raft: a node needs a 16-byte directory id"
        )
        self.node_id: Final = node_id
        self.directory_id: Final = directory_id
        self.config: Final = config
        self.random: Final = randomness

        # Persistent state, on disk or part of the next persist:
        self.log: Final = RaftLog(storage, recovered)
        self.snapshot = recovered.snapshot
        first_membership = recovered.snapshot.membership if recovered.snapshot.index else bootstrap
        self.memberships: Final = MembershipHistory(recovered.snapshot.index, first_membership)
        self.term, self.vote, self.commit = self._recover_state(recovered)
        self.applied = self.applying_index = recovered.snapshot.index
        self.writes: Final = PendingWrites(self.log, recovered.hard_state)
        self.restore_after_sequence: int | None = None
        """The number of the write that installs a snapshot, after which the state machine loads it, or None."""

        # Volatile state in every role:
        self.role_history: Final = RoleHistory(node_id)
        self.leader = NO_NODE
        self.elapsed_ticks = self.election_timeout_ticks = 0
        self.has_replaced_directory = False
        """Whether a peer has sent a message to a previous data directory of this node.

        In this case, the node was a member and has lost its disk. It must neither campaign nor vote until a membership
        contains its current directory.
        """
        self.incoming_snapshot: IncomingSnapshot | None = None
        self.forwarded_reads: Final = ForwardedReads(randomness.getrandbits(62))

        # Volatile state of a candidate:
        self.votes: dict[int, bool] = {}
        self.voter_directories: dict[int, bytes] = {node_id: directory_id}

        # Volatile state of a leader:
        self.peers: dict[int, PeerProgress] = {}
        self.heartbeat_elapsed_ticks = self.quorum_elapsed_ticks = self.transfer_elapsed_ticks = 0
        self.reads: Final = ReadQueue()
        self.transferee = NO_NODE
        self.uncommitted: Final[deque[tuple[int, int]]] = deque()
        """The last index and the size in bytes of each uncommitted proposal, oldest first."""
        self.uncommitted_bytes = 0

        # Contents of the next Ready:
        self.outbox: list[AnyRaftMessage] = []
        self.outcomes: list[RequestAccepted | RequestRejected | ReadIndexConfirmed] = []
        self.chunk_requests: list[SnapshotChunkRequest] = []
        self.role_transitions: list[RoleTransition] = []
        self.reported_status = RaftStatus(Role.FOLLOWER, self.term, NO_NODE)

        self.adopt_membership()
        self.restart_election_timer()

    def _recover_state(self, recovered: RecoveredRaftState) -> tuple[int, int, int]:
        """Read the terms and memberships in the log, and return the recovered term, vote and commit index."""
        for entry in self.log.recover():
            if entry.kind is EntryKind.MEMBERSHIP and entry.index > recovered.snapshot.index:
                self.memberships.append(entry.index, decode_membership(entry.data))
        term, vote = recovered.hard_state.term, recovered.hard_state.vote
        if self.log.last_term > term:
            # The entries were written, but a crash lost the hard state written after them. A vote in that term
            # would have been durable before it was sent, so the node has not voted.
            term, vote = self.log.last_term, NO_NODE
        commit = max(recovered.hard_state.commit, recovered.snapshot.index)
        check_invariant(commit <= self.log.last_index, "Raft log on disk lacks committed entries")
        return term, vote, commit

    # -------------------------------------------------------------------------------------------------------- queries

    @property
    def role(self) -> Role:
        return self.role_history.role

    @property
    def membership(self) -> Membership:
        return self.memberships.current

    @property
    def can_campaign(self) -> bool:
        """Whether this node may start an election under its current membership.

        A node that its newest membership removes may still campaign until that entry is committed (thesis §4.2.2): it
        may be the only node with the entry, and the others then cannot elect a leader without it. It does not count
        its own vote.
        """
        if self.has_replaced_directory:
            return False
        is_committed = self.memberships.index <= self.commit
        memberships_in_question = [self.membership] if is_committed else [self.membership, self.memberships.previous]
        return any(
            rules.can_campaign(membership_in_question.get(self.node_id), self.directory_id, self.memberships.index)
            for membership_in_question in memberships_in_question
        )

    @property
    def is_lease_valid(self) -> bool:
        is_leader = self.role is Role.LEADER
        return rules.is_lease_valid(is_leader, self.leader, self.elapsed_ticks, self.config.election_ticks)

    @property
    def has_committed_in_term(self) -> bool:
        return rules.can_serve_reads(self.log.term_at(self.commit), self.term)

    def counts_towards_quorum(self, node_id: int, directory_id: bytes) -> bool:
        return rules.counts_towards_quorum(self.membership.get(node_id), directory_id, self.memberships.index)

    def status(self) -> RaftStatus:
        return RaftStatus(self.role, self.term, self.leader)

    # ------------------------------------------------------------------------------------------------ terms and roles

    def enter_term(self, term: int, vote: int = NO_NODE) -> None:
        """Change to a higher term, and set this node's vote in that term."""
        check_invariant(term > self.term, f"Raft: term changes from {self.term} to {term}")
        self.vote = rules.get_vote_after_term_change(self.vote, self.term, term) if vote == NO_NODE else vote
        self.term = term
        self.writes.drop_outdated_messages(term)

    def become_follower(self, leader: int, reason: str) -> None:
        """Become a follower in the current term, and reset the state of a candidate or leader."""
        self.leader = leader
        if self.role is not Role.FOLLOWER:
            self.transition_to(Role.FOLLOWER, reason)
        self.reset_leadership_state()
        self.restart_election_timer()

    def transition_to(self, target: Role, reason: str) -> None:
        self.role_transitions.append(self.role_history.transition_to(target, self.term, reason))

    def reset_leadership_state(self) -> None:
        """Reset the state of a candidate or leader, and reject its pending reads."""
        self.votes = {}
        self.peers = {}
        self.transferee = NO_NODE
        self.uncommitted.clear()
        self.uncommitted_bytes = 0
        self.reject_pending_reads()

    def reject_pending_reads(self) -> None:
        """Reject the pending reads of this node. Reads that other nodes have forwarded time out."""
        for read in self.reads.drain():
            if read.node_id == self.node_id:
                self.reject_request(read.request, RejectionReason.NOT_LEADER)
        for context in self.forwarded_reads.drain():
            self.reject_request(context, RejectionReason.NOT_LEADER)

    def restart_election_timer(self) -> None:
        self.elapsed_ticks = 0
        spread = self.random.randrange(self.config.election_spread_ticks)
        self.election_timeout_ticks = self.config.election_ticks + spread

    # ---------------------------------------------------------------------------------------------------- membership

    def adopt_membership(self, next_index: int | None = None) -> None:
        """Update the leader's peers and other state after a change of the cluster membership.

        A peer with another directory counts as a new peer. Replication to new peers starts at `next_index`.
        """
        own = self.membership.get(self.node_id)
        if own is not None and own.directory_id == self.directory_id:
            self.has_replaced_directory = False
        if self.role is not Role.LEADER:
            return
        peers: dict[int, PeerProgress] = {}
        for member in self.membership.members:
            if member.node_id == self.node_id:
                continue
            known = self.peers.get(member.node_id)
            if known is None or known.directory_id != member.directory_id:
                known = PeerProgress(member.directory_id, next_index or self.log.last_index + 1, self.config)
            peers[member.node_id] = known
        self.peers = peers
        if self.transferee not in peers:
            self.transferee = NO_NODE

    # --------------------------------------------------------------------------------------------------------- the log

    def append_to_log(self, entries: list[RaftEntry] | tuple[RaftEntry, ...]) -> None:
        """Append entries to the log, truncating conflicting entries, and adopt a changed membership."""
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
        check_invariant(
            index <= self.log.last_index, f"Raft: commit index {index} exceeds last index {self.log.last_index}"
        )
        self.commit = index
        while self.uncommitted and self.uncommitted[0][0] <= index:
            self.uncommitted_bytes -= self.uncommitted.popleft()[1]

    # ------------------------------------------------------------------------------------------------------ the outbox

    def send(self, kind: type[RaftMessage], target: int, **fields: Any) -> None:
        known = self.membership.get(target)
        self._enqueue_message(kind, target, known.directory_id if known else UNBOUND_DIRECTORY, fields)

    def reply(self, received: AnyRaftMessage, kind: type[RaftMessage], **fields: Any) -> None:
        """Reply to the data directory that sent a message, even if the membership contains another directory."""
        self._enqueue_message(kind, received.source, received.source_directory, fields)

    def _enqueue_message(
        self, kind: type[RaftMessage], target: int, target_directory: bytes, fields: dict[str, Any]
    ) -> None:
        message: Any = kind(
            source=self.node_id,
            source_directory=self.directory_id,
            target=target,
            target_directory=target_directory,
            term=self.term,
            **fields,
        )
        promise = REQUIRED_DURABILITY[kind]
        is_term_durable = self.writes.is_term_durable(self.term, self.vote)
        is_everything_durable = self.writes.is_all_durable(self.term, self.vote)
        if rules.must_wait_for_disk(promise, is_term_durable, is_everything_durable):
            self.writes.hold_until_durable(message, promise, self.term, self.vote)
        else:
            self.outbox.append(message)

    def reject_request(self, context: int, refusal: RejectionReason) -> None:
        self.outcomes.append(RequestRejected(context, refusal, self.leader))
