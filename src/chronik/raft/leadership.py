"""Being the leader: the first entry of a term, heartbeats, giving up, handing over, and changing the membership."""

from __future__ import annotations

from chronik.raft import rules, snapshots
from chronik.raft.core import RaftCore
from chronik.raft.entries import Entry, EntryKind
from chronik.raft.events import Accepted, ChangeMembership, Refusal, TransferLeadership
from chronik.raft.membership import (
    NOBODY,
    UNBOUND,
    BindDirectory,
    Change,
    Membership,
    PromoteLearner,
    changed,
    encode_membership,
)
from chronik.raft.messages import AnyMessage, Heartbeat, TimeoutNow
from chronik.raft.roles import Role


def begin(core: RaftCore) -> None:
    core.take_step(Role.LEADER, "a majority voted for it")
    core.leader = core.node_id
    core.adopt_membership()
    core.heartbeat_elapsed_ticks = core.quorum_elapsed_ticks = 0
    founded = _founding_membership(core)
    if founded is None:
        _append(core, EntryKind.NOOP, b"")
    else:
        _append(core, EntryKind.MEMBERSHIP, encode_membership(founded))


def _founding_membership(core: RaftCore) -> Membership | None:
    """The very first leader binds those who elected it to their disks, with the first entry of the log.

    That only narrows down who counts, so it needs none of the care of a change: a majority of those bound is a
    majority of those configured.
    """
    if core.memberships.index != 0:
        return None
    founded = core.membership
    for node_id, directory_id in sorted(core.directories_seen.items()):
        founded = changed(founded, BindDirectory(node_id, directory_id)) or founded
    return founded if founded != core.membership else None


def _append(core: RaftCore, kind: EntryKind, data: bytes) -> int:
    index = core.log.last_index + 1
    core.append_to_log([Entry(index, core.term, kind, data)])
    return index


# -------------------------------------------------------------------------------------------------------------- time


def tick(core: RaftCore) -> None:
    if core.transferee != NOBODY:
        core.transfer_elapsed_ticks += 1
        if core.transfer_elapsed_ticks >= core.config.election_ticks:
            core.transferee = NOBODY  # it would have been elected by now: take proposals again
    core.quorum_elapsed_ticks += 1
    if core.quorum_elapsed_ticks >= core.config.election_ticks:
        core.quorum_elapsed_ticks = 0
        if not _hears_from_quorum(core):
            core.become_follower(NOBODY, "no contact with a majority")
            return
    core.heartbeat_elapsed_ticks += 1
    if core.heartbeat_elapsed_ticks >= core.config.heartbeat_ticks:
        broadcast_heartbeat(core)
    snapshots.tick(core)


def _hears_from_quorum(core: RaftCore) -> bool:
    """Check-quorum: a leader that reaches no majority must step down, for clients wait for it, and its followers'
    leases protect it."""
    active = [node_id for node_id, peer in core.peers.items() if peer.is_recently_active]
    for peer in core.peers.values():
        peer.is_recently_active = False
    return rules.has_quorum([core.node_id, *active], core.membership.voters)


def broadcast_heartbeat(core: RaftCore) -> None:
    """Sends a heartbeat to all, learners too, who must know who leads; it carries the current round of reads."""
    core.heartbeat_elapsed_ticks = 0
    for node_id in core.peers:
        _send_heartbeat(core, node_id)


def ask_voters(core: RaftCore) -> None:
    """Sends the heartbeats that begin a round of reads: to voters, since only their answers count. All brokers have
    their own heartbeats confirmed by such rounds: sent to every member, messages would grow by the members' square.
    Learners get a heartbeat when one is due, as if there were no reads."""
    voters = [node_id for node_id in core.peers if node_id in core.membership.voters]
    if len(voters) == len(core.peers):
        broadcast_heartbeat(core)
        return
    for node_id in voters:
        _send_heartbeat(core, node_id)


def _send_heartbeat(core: RaftCore, node_id: int) -> None:
    commit = rules.heartbeat_commit(core.commit, core.peers[node_id].match)
    core.send(Heartbeat, node_id, commit=commit, round=core.reads.round)


def heard_from(core: RaftCore, message: AnyMessage) -> None:
    """Any answer of this term shows that the peer is alive and follows."""
    peer = core.peers.get(message.source)
    if peer is None:
        return
    if peer.directory_id == UNBOUND:
        change = BindDirectory(message.source, message.source_directory)
        _change(core, change)  # if another change is under way, its next message will do
    elif peer.directory_id == message.source_directory:
        peer.is_recently_active = True


# -------------------------------------------------------------------------------------------------------- membership


def change_membership(core: RaftCore, event: ChangeMembership) -> None:
    if core.role is not Role.LEADER:
        core.refuse(event.context, Refusal.NOT_LEADER)
    elif core.transferee != NOBODY:
        core.refuse(event.context, Refusal.HANDING_OVER)
    elif isinstance(event.change, PromoteLearner) and not _has_caught_up(core, event.change.node_id):
        core.refuse(event.context, Refusal.NOT_CAUGHT_UP)
    elif changed(core.membership, event.change) is None:
        core.refuse(event.context, Refusal.BAD_CHANGE)
    elif not _change(core, event.change):
        core.refuse(event.context, Refusal.CHANGE_PENDING)
    else:
        core.outcomes.append(Accepted(event.context, core.term, core.log.last_index))


def _has_caught_up(core: RaftCore, node_id: int) -> bool:
    peer = core.peers.get(node_id)
    return peer is None or rules.has_caught_up(peer.match, core.commit, core.config.promotion_lag_max_entries)


def _change(core: RaftCore, change: Change) -> bool:
    """Appends the changed membership, which puts it in force. Returns False when the rules do not allow it now."""
    term_at_commit = core.log.term(core.commit)
    if not rules.may_change_membership(core.memberships.index, core.commit, term_at_commit, core.term):
        return False
    membership = changed(core.membership, change)
    if membership is None:
        return False
    _append(core, EntryKind.MEMBERSHIP, encode_membership(membership))
    return True


def step_down_if_removed(core: RaftCore) -> None:
    """Thesis §4.2.2: a removed leader leads until its removal is committed, without counting itself, for until then the
    cluster may have no other leader that could commit it. This is called after the others were sent the news."""
    is_seated = core.counts(core.node_id, core.directory_id)
    if not is_seated and core.memberships.index <= core.commit:
        core.become_follower(NOBODY, "removed")


# --------------------------------------------------------------------------------------------------------- hand-over


def transfer(core: RaftCore, event: TransferLeadership) -> None:
    """Thesis §3.10. Proposals pause, so that the target can catch up; it is told to stand as soon as it has."""
    member = core.membership.get(event.target)
    if core.role is not Role.LEADER:
        core.refuse(event.context, Refusal.NOT_LEADER)
    elif core.transferee != NOBODY:
        core.refuse(event.context, Refusal.HANDING_OVER)
    elif member is None or not member.is_voter or event.target == core.node_id:
        core.refuse(event.context, Refusal.BAD_CHANGE)
    else:
        core.transferee = event.target
        core.transfer_elapsed_ticks = 0
        core.outcomes.append(Accepted(event.context, core.term, core.log.last_index))
        hand_over_if_ready(core)


def hand_over_if_ready(core: RaftCore) -> None:
    peer = core.peers.get(core.transferee)
    if peer is not None and rules.may_take_over(peer.match, core.log.last_index):
        core.send(TimeoutNow, core.transferee)
