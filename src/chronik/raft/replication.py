"""Log replication: proposals, pipelined Append messages, log matching, and advancing the commit index."""

from __future__ import annotations

from chronik.errors import check_invariant
from chronik.raft import rules, snapshots
from chronik.raft.core import RaftCore
from chronik.raft.entries import EntryKind, RaftEntry
from chronik.raft.events import Propose, RejectionReason, RequestAccepted
from chronik.raft.membership import NO_NODE
from chronik.raft.messages import Append, AppendAck, Heartbeat, HeartbeatAck
from chronik.raft.progress import PeerProgress, ProgressState
from chronik.raft.roles import Role

# ------------------------------------------------------------------------------------------------------- the leader


def propose(core: RaftCore, event: Propose) -> None:
    size = sum(len(command) for command in event.commands)
    pending = max(core.uncommitted_bytes, core.log.unstable_bytes)  # waiting for a majority, or for the local disk
    if core.role is not Role.LEADER:
        core.reject_request(event.context, RejectionReason.NOT_LEADER)
    elif core.transferee != NO_NODE:
        core.reject_request(event.context, RejectionReason.TRANSFER_IN_PROGRESS)
    elif not event.commands or size > core.config.uncommitted_bytes_max or _is_proposal_too_large(core, event):
        core.reject_request(
            event.context, RejectionReason.TOO_LARGE if event.commands else RejectionReason.INVALID_CHANGE
        )
    elif pending and pending + size > core.config.uncommitted_bytes_max:
        core.reject_request(event.context, RejectionReason.OVERLOADED)
    else:
        first = core.log.last_index + 1
        entries = [
            RaftEntry(index, core.term, EntryKind.COMMAND, command)
            for index, command in enumerate(event.commands, first)
        ]
        core.append_to_log(entries)
        size = sum(entry.size_bytes for entry in entries)
        core.uncommitted.append((core.log.last_index, size))
        core.uncommitted_bytes += size
        core.outcomes.append(RequestAccepted(event.context, core.term, first))


def _is_proposal_too_large(core: RaftCore, event: Propose) -> bool:
    return max(map(len, event.commands)) > core.config.entry_bytes_max


def send_pending_appends(core: RaftCore) -> None:
    """Send the Append messages that are due to all peers."""
    for node_id, peer in core.peers.items():
        while _send_append(core, node_id, peer):
            pass  # limited by the peer's window


def _send_append(core: RaftCore, node_id: int, peer: PeerProgress) -> bool:
    """Send an Append to a peer if one is due and the replication window allows it. Return whether one was sent."""
    if peer.is_paused:
        return False
    if peer.next_index > core.log.last_index and peer.commit_sent >= core.commit and not peer.is_append_due:
        return False
    previous_index = peer.next_index - 1
    previous_term = core.log.term_at(previous_index)
    if previous_term is None:
        snapshots.start_snapshot_transfer(core, node_id, peer)
        return False
    entries = tuple(core.log.entries(peer.next_index, core.log.last_index + 1, core.config.append_bytes_max))
    core.send(
        Append,
        node_id,
        previous_index=previous_index,
        previous_term=previous_term,
        entries=entries,
        commit=core.commit,
    )
    peer.commit_sent = core.commit
    peer.on_append_sent(previous_index + len(entries), len(entries), sum(entry.size_bytes for entry in entries))
    return True


def on_append_ack(core: RaftCore, message: AppendAck) -> None:
    peer = core.peers.get(message.source)
    if peer is None or not peer.matches_directory(message.source_directory):
        return
    if message.is_rejected:
        # Skip all entries whose term is higher than the hint's: the peer has none of them.
        last_common = core.log.last_index_with_term_up_to(message.hint_index, message.hint_term)
        peer.on_append_rejected(message.rejected_index, last_common + 1)
        return
    check_invariant(
        message.match_index <= core.log.last_index, f"Raft: {message.source} acknowledges entries never sent"
    )
    if peer.on_append_accepted(message.match_index):
        advance_leader_commit(core)


def advance_leader_commit(core: RaftCore) -> None:
    """Advance the commit index to the highest index that is durable on a majority of voters.

    Called after a peer's acknowledgement, after a local write, and after a membership change.
    """
    check_invariant(core.role is Role.LEADER, "Raft: only a leader advances the commit index by counting replicas")
    index = rules.compute_quorum_index([_get_match_index(core, voter) for voter in core.membership.voters])
    if index > core.commit and rules.can_commit_by_counting_replicas(core.log.term_at(index), core.term):
        core.commit_through(index)


def _get_match_index(core: RaftCore, voter: int) -> int:
    if voter == core.node_id:
        return rules.get_leader_match_index(core.log.durable_index, core.log.last_index)
    peer = core.peers[voter]
    return peer.match_index if core.counts_towards_quorum(voter, peer.directory_id) else 0


def on_heartbeat_ack(core: RaftCore, message: HeartbeatAck) -> None:
    peer = core.peers.get(message.source)
    if peer is not None and peer.matches_directory(message.source_directory):
        peer.acked_round = max(peer.acked_round, message.round)
        peer.on_heartbeat_ack(core.log.last_index)


def on_peer_unreachable(core: RaftCore, node_id: int) -> None:
    """Stop sending entries to an unreachable peer until it responds to a probe."""
    peer = core.peers.get(node_id)
    if peer is not None and peer.state is ProgressState.REPLICATE:
        peer.probe()


# ------------------------------------------------------------------------------------------------------- a follower


def on_append(core: RaftCore, message: Append) -> None:
    if message.previous_index < core.commit:
        # An outdated message: committed entries match the leader's log by definition.
        core.reply(message, AppendAck, match_index=core.commit)
        return
    if not rules.matches_previous_entry(core.log.term_at(message.previous_index), message.previous_term):
        _reject_append(core, message)
        return
    entries = message.entries
    matching_count = rules.count_matching_entries([core.log.term_at(entry.index) for entry in entries], entries)
    if matching_count < len(entries):
        first = entries[matching_count].index
        check_invariant(
            first > core.commit, f"Raft: entry {first} conflicts with committed entries up to {core.commit}"
        )
        core.append_to_log(entries[matching_count:])
    last_matching = message.previous_index + len(entries)
    core.commit_through(rules.compute_follower_commit_index(message.commit, last_matching))
    core.reply(message, AppendAck, match_index=last_matching)


def _reject_append(core: RaftCore, message: Append) -> None:
    """Reject an Append whose previous entry is missing, with the last entry that may match as a hint.

    Entries with a term higher than the leader's previous term cannot match, because terms never decrease in a log.
    """
    hint_index = core.log.last_index_with_term_up_to(message.previous_index, message.previous_term)
    core.reply(
        message,
        AppendAck,
        match_index=0,
        is_rejected=True,
        rejected_index=message.previous_index,
        hint_index=hint_index,
        hint_term=core.log.term_at(hint_index) or 0,
    )


def on_heartbeat(core: RaftCore, message: Heartbeat) -> None:
    # At most the index that this node has acknowledged: a log without it has lost data.
    core.commit_through(message.commit)
    core.reply(message, HeartbeatAck, round=message.round)
