"""A Raft node: the `handle` method takes events, returns a `Ready`, and is the only way to change the node's state."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Any, Final

from chronik.errors import check_invariant
from chronik.raft import election, leadership, reads, replication, rules, snapshots
from chronik.raft.config import RaftConfig
from chronik.raft.core import RaftCore
from chronik.raft.entries import EntryStorage, RaftEntry, RecoveredRaftState, SnapshotMetadata
from chronik.raft.events import (
    Campaign,
    ChangeMembership,
    EntriesApplied,
    MessageReceived,
    PeerConnected,
    PeerDown,
    PeerUnreachable,
    Persisted,
    Propose,
    RaftEvent,
    RaftStatus,
    ReadIndex,
    Ready,
    SnapshotChunkRead,
    SnapshotTaken,
    Tick,
    TransferLeadership,
)
from chronik.raft.membership import NO_NODE, Membership
from chronik.raft.messages import (
    LEADER_MESSAGES,
    AnyRaftMessage,
    Append,
    AppendAck,
    Heartbeat,
    HeartbeatAck,
    RaftMessage,
    ReadAck,
    ReadRequest,
    SnapshotAck,
    SnapshotChunk,
    TimeoutNow,
    VoteAck,
    VoteRequest,
)
from chronik.raft.roles import Role


class RaftNode:
    """A Raft node as a deterministic state machine without I/O: events in, instructions out.

    `bootstrap` is the initial membership of a node with an empty disk: all configured peers when it bootstraps a
    cluster, or no members when it waits to be added to one.
    """

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
        self._core = RaftCore(node_id, directory_id, config, storage, recovered, bootstrap, randomness)

    def handle(self, *events: RaftEvent) -> Ready:
        """Process events in order, and return the instructions for the driver."""
        core = self._core
        for event in events:
            _EVENT_HANDLERS[type(event)](core, event)
        if core.role is Role.LEADER:
            replication.send_pending_appends(core)
        reads.send_pending_reads(core)
        if core.role is Role.LEADER:
            leadership.step_down_if_removed(core)
        return _build_ready(core)

    # -------------------------------------------------------------------------------------------------------- queries

    @property
    def status(self) -> RaftStatus:
        return self._core.status()

    @property
    def vote(self) -> int:
        return self._core.vote

    @property
    def commit(self) -> int:
        return self._core.commit

    @property
    def applied(self) -> int:
        return self._core.applied

    @property
    def first_index(self) -> int:
        return self._core.log.first_index

    @property
    def last_index(self) -> int:
        return self._core.log.last_index

    @property
    def durable_index(self) -> int:
        return self._core.log.durable_index

    @property
    def snapshot(self) -> SnapshotMetadata:
        return self._core.snapshot

    @property
    def membership(self) -> Membership:
        return self._core.membership

    @property
    def membership_index(self) -> int:
        return self._core.memberships.index

    def membership_at(self, index: int) -> Membership:
        """Return the cluster membership as of `index`, which must be applied and not precede the current snapshot."""
        return self._core.memberships.at(index)

    def term_at(self, index: int) -> int | None:
        return self._core.log.term_at(index)

    def match_indexes(self) -> Mapping[int, int]:
        """Return the match index of each peer if this node is the leader, else an empty dict."""
        return {node_id: peer.match_index for node_id, peer in self._core.peers.items()}


# ------------------------------------------------------------------------------------------------------------- events


def _on_tick(core: RaftCore, event: Tick) -> None:
    reads.tick(core)
    if core.role is Role.LEADER:
        leadership.tick(core)
    else:
        election.tick(core)


def _on_message(core: RaftCore, event: MessageReceived) -> None:
    message = event.message
    if not _is_addressed_to_node(core, message):
        return
    if isinstance(message, VoteRequest) and not message.is_leadership_transfer and core.is_lease_valid:
        return  # ignore the request and its term, because the sender may be a removed node
    if message.term > core.term:
        core.enter_term(message.term)
        is_from_leader = isinstance(message, LEADER_MESSAGES)
        core.become_follower(message.source if is_from_leader else NO_NODE, "higher term")
    elif rules.is_stale_term(message.term, core.term):
        _reply_to_stale_message(core, message)
        return
    if isinstance(message, LEADER_MESSAGES):
        _follow_leader(core, message)
    elif core.role is Role.LEADER:
        leadership.record_contact(core, message)
    _MESSAGE_HANDLERS[type(message)](core, message)


def _is_addressed_to_node(core: RaftCore, message: AnyRaftMessage) -> bool:
    if message.target != core.node_id or message.source == core.node_id:
        return False
    if rules.is_addressed_to_directory(message.target_directory, core.directory_id):
        return True
    own = core.membership.get(core.node_id)
    core.has_replaced_directory = own is None or own.directory_id != core.directory_id
    return False


def _reply_to_stale_message(core: RaftCore, message: AnyRaftMessage) -> None:
    """Reply with the current term to a leader or candidate of an older term, so that it steps down."""
    if isinstance(message, LEADER_MESSAGES):
        core.reply(message, HeartbeatAck, round=0)
    elif isinstance(message, VoteRequest):
        core.reply(message, VoteAck, is_pre_vote=message.is_pre_vote, is_granted=False)


def _follow_leader(core: RaftCore, message: AnyRaftMessage) -> None:
    check_invariant(
        core.role is not Role.LEADER, f"Raft: {message.source} and {core.node_id} both lead term {core.term}"
    )
    if core.role is not Role.FOLLOWER or core.leader != message.source:
        check_invariant(core.leader in (NO_NODE, message.source), f"Raft: two leaders in term {core.term}")
        core.become_follower(message.source, f"node {message.source} is the leader")
    core.elapsed_ticks = 0


def _on_append_ack(core: RaftCore, message: AppendAck) -> None:
    replication.on_append_ack(core, message)
    if message.source == core.transferee:
        leadership.send_timeout_now_if_ready(core)


def _on_campaign(core: RaftCore, event: Campaign) -> None:
    election.campaign(core, is_leadership_transfer=False)


def _on_persisted(core: RaftCore, event: Persisted) -> None:
    core.writes.complete_write(event.sequence)
    election.count_own_vote(core)
    if core.role is Role.LEADER:
        replication.advance_leader_commit(core)


def _on_applied(core: RaftCore, event: EntriesApplied) -> None:
    check_invariant(
        event.index <= core.applying_index, f"Raft: index {event.index} reported as applied but not handed out"
    )
    core.applied = max(core.applied, event.index)


def _on_peer_unreachable(core: RaftCore, event: PeerUnreachable) -> None:
    replication.on_peer_unreachable(core, event.peer)
    if core.leader == event.peer:
        reads.on_leader_unreachable(core)


Handler = Callable[[RaftCore, Any], None]

_EVENT_HANDLERS: Final[Mapping[type[Any], Handler]] = {
    Tick: _on_tick,
    MessageReceived: _on_message,
    Campaign: _on_campaign,
    Propose: replication.propose,
    ChangeMembership: leadership.change_membership,
    TransferLeadership: leadership.transfer_leadership,
    ReadIndex: reads.read_index,
    Persisted: _on_persisted,
    EntriesApplied: _on_applied,
    SnapshotTaken: snapshots.on_snapshot_taken,
    SnapshotChunkRead: snapshots.on_chunk_read,
    PeerUnreachable: _on_peer_unreachable,
    PeerDown: election.on_peer_down,
    PeerConnected: election.on_peer_connected,
}

_MESSAGE_HANDLERS: Final[Mapping[type[RaftMessage], Handler]] = {
    VoteRequest: election.on_vote_request,
    VoteAck: election.on_vote_ack,
    Append: replication.on_append,
    AppendAck: _on_append_ack,
    Heartbeat: replication.on_heartbeat,
    HeartbeatAck: replication.on_heartbeat_ack,
    SnapshotChunk: snapshots.on_snapshot_chunk,
    SnapshotAck: snapshots.on_snapshot_ack,
    TimeoutNow: election.on_timeout_now,
    ReadRequest: reads.on_read_request,
    ReadAck: reads.on_read_ack,
}

# -------------------------------------------------------------------------------------------------------------- ready


def _build_ready(core: RaftCore) -> Ready:
    ready = Ready(persist=core.writes.start_next_write(core.term, core.vote, core.commit))
    ready.messages, core.outbox = core.outbox + core.writes.release_durable_messages(), []
    ready.outcomes, core.outcomes = core.outcomes, []
    ready.chunk_requests, core.chunk_requests = core.chunk_requests, []
    ready.role_transitions, core.role_transitions = core.role_transitions, []
    ready.restore = _take_next_snapshot_to_restore(core)
    ready.committed = _take_next_committed_entries(core)
    status = core.status()
    if status != core.reported_status:
        ready.status = core.reported_status = status
    return ready


def _take_next_snapshot_to_restore(core: RaftCore) -> SnapshotMetadata | None:
    if core.restore_after_sequence is None or core.restore_after_sequence > core.writes.durable_sequence:
        return None
    core.restore_after_sequence = None
    core.applying_index = core.snapshot.index
    return core.snapshot


def _take_next_committed_entries(core: RaftCore) -> list[RaftEntry] | tuple[RaftEntry, ...]:
    """Return the next batch of committed entries to apply, or nothing until the previous batch is applied."""
    if core.restore_after_sequence is not None or core.applied < core.applying_index:
        return ()
    through = rules.compute_max_applicable_index(core.commit, core.log.durable_index)
    if through <= core.applied:
        return ()
    entries = tuple(core.log.entries(core.applied + 1, through + 1, core.config.apply_bytes_max))
    core.applying_index = entries[-1].index
    return entries
