"""Becoming a leader: asking beforehand, standing, voting, counting.

A node that hears nothing asks beforehand whether it would be elected (pre-vote, thesis §9.6), and raises the term only
if a majority says yes. So a node that was cut off, that is behind, or that has been removed cannot raise terms in
solitude and force an election on its return.
"""

from __future__ import annotations

from chronik.errors import invariant
from chronik.raft import leadership, rules
from chronik.raft.core import RaftCore
from chronik.raft.events import PeerGone, PeerReached
from chronik.raft.membership import NOBODY
from chronik.raft.messages import TimeoutNow, VoteAck, VoteRequest
from chronik.raft.roles import Role


def tick(core: RaftCore) -> None:
    core.elapsed_ticks += 1
    if core.elapsed_ticks >= core.election_timeout_ticks:
        campaign(core, is_hand_over=False)


def on_peer_gone(core: RaftCore, event: PeerGone) -> None:
    """If the peer led, there is no use in waiting out its silence. Only the waiting is cut short: the leader is
    forgotten, so that candidates are heard here, and this node asks beforehand as ever; those who still hear the leader
    say no. The random rest of the timeout stays, or all who notice at once would stand at once."""
    if core.leader == event.peer and core.role is Role.FOLLOWER:
        core.become_follower(NOBODY, "the leader is gone")
        core.election_timeout_ticks -= core.config.election_ticks


def on_peer_reached(core: RaftCore, event: PeerReached) -> None:
    """A network that heals leaves nodes that all wait for somebody else to stand. Again only the waiting is cut short,
    but for its random part."""
    if core.leader == NOBODY and core.role in (Role.FOLLOWER, Role.PRE_CANDIDATE):
        core.elapsed_ticks = max(core.elapsed_ticks, core.config.election_ticks)


def campaign(core: RaftCore, is_hand_over: bool) -> None:
    if core.role is Role.LEADER:
        return
    # Also forgets a leader that has gone silent. A node that may not stand must do so too: as long as it believes in a
    # leader it ignores candidates, and its vote may be the one that is missing.
    core.become_follower(NOBODY, "no majority in time")
    if not core.may_campaign:
        return
    core.directories_seen = {core.node_id: core.directory_id}
    if is_hand_over:
        stand(core, is_hand_over=True)  # the leader has asked already, in effect, and time without one is short
    else:
        ask_beforehand(core)


def ask_beforehand(core: RaftCore) -> None:
    """Asks who would vote for this node. That promises nothing and moves no term, so its own answer needs no disk."""
    core.take_step(Role.PRE_CANDIDATE, "no word from a leader")
    core.votes = {core.node_id: True}
    request_votes(core, is_pre_vote=True, is_hand_over=False)
    count_votes(core)


def stand(core: RaftCore, is_hand_over: bool) -> None:
    """Enters the next term with a vote for itself. The requests leave, and its own vote counts, once both are durable:
    after a crash it must not vote for somebody else in this term."""
    core.enter_term(core.term + 1, vote=core.node_id)
    core.take_step(Role.CANDIDATE, "the leader hands over" if is_hand_over else "a majority would vote for it")
    core.votes = {}
    core.restart_election_timer()
    request_votes(core, is_pre_vote=False, is_hand_over=is_hand_over)


def request_votes(core: RaftCore, is_pre_vote: bool, is_hand_over: bool) -> None:
    for voter in core.membership.voters:
        if voter != core.node_id:
            core.send(
                VoteRequest,
                voter,
                last_index=core.log.last_index,
                last_term=core.log.last_term,
                membership_index=core.memberships.index,
                is_pre_vote=is_pre_vote,
                is_hand_over=is_hand_over,
            )


def on_vote_request(core: RaftCore, message: VoteRequest) -> None:
    """Answers whether or not the membership knows the sender, and whether or not we are a voter in it: an entry that
    says so may not have reached us (§6). The candidate counts by its own membership."""
    is_granted = (
        not core.is_disowned
        and not _is_known_by_another_disk(core, message)
        and rules.is_up_to_date(message.last_term, message.last_index, core.log.last_term, core.log.last_index)
        and (message.is_pre_vote or rules.may_vote_for(core.vote, message.source))
    )
    if is_granted and not message.is_pre_vote:
        core.vote = message.source
        core.restart_election_timer()
    core.reply(message, VoteAck, is_pre_vote=message.is_pre_vote, is_granted=is_granted)


def _is_known_by_another_disk(core: RaftCore, message: VoteRequest) -> bool:
    known = core.membership.get(message.source)
    return rules.is_candidate_known_by_another_disk(
        known, message.source_directory, message.membership_index, core.memberships.index
    )


def on_vote_ack(core: RaftCore, message: VoteAck) -> None:
    asked_in = Role.PRE_CANDIDATE if message.is_pre_vote else Role.CANDIDATE
    if core.role is not asked_in or not core.counts(message.source, message.source_directory):
        return
    core.directories_seen[message.source] = message.source_directory
    core.votes[message.source] = message.is_granted
    count_votes(core)


def count_own_vote(core: RaftCore) -> None:
    """Is called when something has become durable."""
    known = core.writes.durable_hard_state
    if core.role is Role.CANDIDATE and rules.vote_counts_for_itself(known.term, known.vote, core.term, core.node_id):
        core.votes[core.node_id] = True
        count_votes(core)


def count_votes(core: RaftCore) -> None:
    voters = core.membership.voters
    if rules.has_quorum((node for node, is_granted in core.votes.items() if is_granted), voters):
        if core.role is Role.PRE_CANDIDATE:
            stand(core, is_hand_over=False)
        else:
            leadership.begin(core)
        return
    refused = sum(not is_granted for is_granted in core.votes.values())
    if len(voters) - refused < rules.quorum_size(len(voters)):
        core.become_follower(NOBODY, "a majority refused")


def on_timeout_now(core: RaftCore, message: TimeoutNow) -> None:
    if message.source == core.leader:
        invariant(core.role is Role.FOLLOWER, "only a follower knows a leader that is another node")
        campaign(core, is_hand_over=True)
