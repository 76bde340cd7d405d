"""The duties of a Raft leader: heartbeats, check-quorum, leadership transfer and membership changes."""

from __future__ import annotations

from chronik.raft import rules, snapshots
from chronik.raft.core import RaftCore
from chronik.raft.entries import EntryKind, RaftEntry
from chronik.raft.events import ChangeMembership, RejectionReason, RequestAccepted, TransferLeadership
from chronik.raft.membership import (
    NO_NODE,
    UNBOUND_DIRECTORY,
    BindDirectory,
    Membership,
    MembershipChange,
    PromoteLearner,
    apply_change,
    encode_membership,
)
from chronik.raft.messages import AnyRaftMessage, Heartbeat, TimeoutNow
from chronik.raft.roles import Role


def become_leader(core: RaftCore) -> None:
    core.transition_to(Role.LEADER, "election won")
    core.leader = core.node_id
    core.adopt_membership()
    core.heartbeat_elapsed_ticks = core.quorum_elapsed_ticks = 0
    initial = _build_initial_membership(core)
    if initial is None:
        _append_entry(core, EntryKind.NOOP, b"")
    else:
        _append_entry(core, EntryKind.MEMBERSHIP, encode_membership(initial))


def _build_initial_membership(core: RaftCore) -> Membership | None:
    """Return the first membership of a new cluster, bound to the data directories of the nodes that voted.

    The change only narrows the set of nodes that count, so the rules for membership changes do not apply: a majority of
    the bound voters is a majority of the configured ones.
    """
    if core.memberships.index != 0:
        return None
    initial = core.membership
    for node_id, directory_id in sorted(core.voter_directories.items()):
        initial = apply_change(initial, BindDirectory(node_id, directory_id)) or initial
    return initial if initial != core.membership else None


def _append_entry(core: RaftCore, kind: EntryKind, data: bytes) -> int:
    index = core.log.last_index + 1
    core.append_to_log([RaftEntry(index, core.term, kind, data)])
    return index


# -------------------------------------------------------------------------------------------------------------- time


def tick(core: RaftCore) -> None:
    if core.transferee != NO_NODE:
        core.transfer_elapsed_ticks += 1
        if core.transfer_elapsed_ticks >= core.config.election_ticks:
            core.transferee = NO_NODE  # the transfer has timed out: accept proposals again
    core.quorum_elapsed_ticks += 1
    if core.quorum_elapsed_ticks >= core.config.election_ticks:
        core.quorum_elapsed_ticks = 0
        if not _has_active_quorum(core):
            core.become_follower(NO_NODE, "no contact with a majority")
            return
    core.heartbeat_elapsed_ticks += 1
    if core.heartbeat_elapsed_ticks >= core.config.heartbeat_ticks:
        broadcast_heartbeat(core)
    snapshots.tick(core)


def _has_active_quorum(core: RaftCore) -> bool:
    """Return whether a majority of voters has sent messages since the last check (Raft's CheckQuorum).

    A leader without a majority must step down, because clients wait for it and its followers' leases protect it.
    """
    active = [node_id for node_id, peer in core.peers.items() if peer.is_recently_active]
    for peer in core.peers.values():
        peer.is_recently_active = False
    return rules.has_quorum([core.node_id, *active], core.membership.voters)


def broadcast_heartbeat(core: RaftCore) -> None:
    """Send a heartbeat to all peers, including learners."""
    core.heartbeat_elapsed_ticks = 0
    for node_id in core.peers:
        _send_heartbeat(core, node_id)


def send_heartbeat_to_voters(core: RaftCore) -> None:
    """Send a heartbeat to the voters, who confirm the leadership for a round of reads.

    All brokers confirm their own heartbeats by read rounds. Rounds that included all members would cause a number of
    messages quadratic in the cluster size. Learners receive the regular heartbeats only.
    """
    voters = [node_id for node_id in core.peers if node_id in core.membership.voters]
    if len(voters) == len(core.peers):
        broadcast_heartbeat(core)
        return
    for node_id in voters:
        _send_heartbeat(core, node_id)


def _send_heartbeat(core: RaftCore, node_id: int) -> None:
    commit = rules.compute_heartbeat_commit_index(core.commit, core.peers[node_id].match_index)
    core.send(Heartbeat, node_id, commit=commit, round=core.reads.round)


def record_contact(core: RaftCore, message: AnyRaftMessage) -> None:
    """Record that a peer is active, and bind it to its data directory on its first message."""
    peer = core.peers.get(message.source)
    if peer is None:
        return
    if peer.directory_id == UNBOUND_DIRECTORY:
        change = BindDirectory(message.source, message.source_directory)
        # If another change is uncommitted, the next message from this peer binds it.
        _append_membership_change(core, change)
    elif peer.directory_id == message.source_directory:
        peer.is_recently_active = True


# -------------------------------------------------------------------------------------------------------- membership


def change_membership(core: RaftCore, event: ChangeMembership) -> None:
    if core.role is not Role.LEADER:
        core.reject_request(event.context, RejectionReason.NOT_LEADER)
    elif core.transferee != NO_NODE:
        core.reject_request(event.context, RejectionReason.TRANSFER_IN_PROGRESS)
    elif isinstance(event.change, PromoteLearner) and not _has_caught_up(core, event.change.node_id):
        core.reject_request(event.context, RejectionReason.NOT_CAUGHT_UP)
    elif apply_change(core.membership, event.change) is None:
        core.reject_request(event.context, RejectionReason.INVALID_CHANGE)
    elif not _append_membership_change(core, event.change):
        core.reject_request(event.context, RejectionReason.CHANGE_PENDING)
    else:
        core.outcomes.append(RequestAccepted(event.context, core.term, core.log.last_index))


def _has_caught_up(core: RaftCore, node_id: int) -> bool:
    peer = core.peers.get(node_id)
    return peer is None or rules.has_caught_up(peer.match_index, core.commit, core.config.promotion_lag_max_entries)


def _append_membership_change(core: RaftCore, change: MembershipChange) -> bool:
    """Append a membership change to the log. Return False if the change is not allowed at present."""
    term_at_commit = core.log.term_at(core.commit)
    if not rules.can_change_membership(core.memberships.index, core.commit, term_at_commit, core.term):
        return False
    membership = apply_change(core.membership, change)
    if membership is None:
        return False
    _append_entry(core, EntryKind.MEMBERSHIP, encode_membership(membership))
    return True


def step_down_if_removed(core: RaftCore) -> None:
    """Step down as leader after the commit of a membership without this node (thesis §4.2.2).

    Until then it leads without counting itself, because the cluster may have no other leader to commit the removal.
    Called after the commit index was sent to the peers.
    """
    is_seated = core.counts_towards_quorum(core.node_id, core.directory_id)
    if not is_seated and core.memberships.index <= core.commit:
        core.become_follower(NO_NODE, "removed from the cluster")


# ------------------------------------------------------------------------------------------------ leadership transfer


def transfer_leadership(core: RaftCore, event: TransferLeadership) -> None:
    """Start a leadership transfer (thesis §3.10), during which the leader rejects proposals."""
    member = core.membership.get(event.target)
    if core.role is not Role.LEADER:
        core.reject_request(event.context, RejectionReason.NOT_LEADER)
    elif core.transferee != NO_NODE:
        core.reject_request(event.context, RejectionReason.TRANSFER_IN_PROGRESS)
    elif member is None or not member.is_voter or event.target == core.node_id:
        core.reject_request(event.context, RejectionReason.INVALID_CHANGE)
    else:
        core.transferee = event.target
        core.transfer_elapsed_ticks = 0
        core.outcomes.append(RequestAccepted(event.context, core.term, core.log.last_index))
        send_timeout_now_if_ready(core)


def send_timeout_now_if_ready(core: RaftCore) -> None:
    peer = core.peers.get(core.transferee)
    if peer is not None and rules.is_transfer_target_caught_up(peer.match_index, core.log.last_index):
        core.send(TimeoutNow, core.transferee)
