"""Leader election: pre-vote, candidacy, voting and vote counting.

A node whose election timeout expires first runs a pre-vote (thesis §9.6) and increments its term only if a majority
would vote for it. A partitioned, outdated or removed node can therefore not disrupt the cluster with a higher term.
"""

from __future__ import annotations

from chronik.errors import check_invariant
from chronik.raft import leadership, rules
from chronik.raft.core import RaftCore
from chronik.raft.events import PeerConnected, PeerDown
from chronik.raft.membership import NO_NODE
from chronik.raft.messages import TimeoutNow, VoteAck, VoteRequest
from chronik.raft.roles import Role


def tick(core: RaftCore) -> None:
    core.elapsed_ticks += 1
    if core.elapsed_ticks >= core.election_timeout_ticks:
        campaign(core, is_leadership_transfer=False)


def on_peer_down(core: RaftCore, event: PeerDown) -> None:
    """If the leader has stopped, shorten the election timeout to its random part.

    The node resets its leader, so that it grants votes. It still runs a pre-vote, which fails while a majority receives
    the leader's heartbeats. The random part of the timeout remains, so that the nodes do not campaign at the same time.
    """
    if core.leader == event.peer and core.role is Role.FOLLOWER:
        core.become_follower(NO_NODE, "the leader is down")
        core.election_timeout_ticks -= core.config.election_ticks


def on_peer_connected(core: RaftCore, event: PeerConnected) -> None:
    """If there is no leader, shorten the election timeout to its random part, because a partition may have healed."""
    if core.leader == NO_NODE and core.role in (Role.FOLLOWER, Role.PRE_CANDIDATE):
        core.elapsed_ticks = max(core.elapsed_ticks, core.config.election_ticks)


def campaign(core: RaftCore, is_leadership_transfer: bool) -> None:
    if core.role is Role.LEADER:
        return
    # A node that may not campaign must forget a silent leader too: otherwise it ignores candidates, and its vote may be
    # the one that completes a majority.
    core.become_follower(NO_NODE, "election timeout without a majority")
    if not core.can_campaign:
        return
    core.voter_directories = {core.node_id: core.directory_id}
    if is_leadership_transfer:
        # The leader requested the campaign, so a pre-vote would only prolong the time without a leader.
        start_election(core, is_leadership_transfer=True)
    else:
        start_pre_vote(core)


def start_pre_vote(core: RaftCore) -> None:
    """Start a pre-vote, by which the node finds out whether it could win an election, without increasing its term."""
    core.transition_to(Role.PRE_CANDIDATE, "election timeout")
    core.votes = {core.node_id: True}
    request_votes(core, is_pre_vote=True, is_leadership_transfer=False)
    count_votes(core)


def start_election(core: RaftCore, is_leadership_transfer: bool) -> None:
    """Start an election: increment the term, vote for this node, and request votes.

    The requests are sent, and the node's own vote counts, only when term and vote are durable: after a crash, the node
    must not vote for another candidate in this term.
    """
    core.enter_term(core.term + 1, vote=core.node_id)
    core.transition_to(Role.CANDIDATE, "leadership transfer" if is_leadership_transfer else "pre-vote won")
    core.votes = {}
    core.restart_election_timer()
    request_votes(core, is_pre_vote=False, is_leadership_transfer=is_leadership_transfer)


def request_votes(core: RaftCore, is_pre_vote: bool, is_leadership_transfer: bool) -> None:
    for voter in core.membership.voters:
        if voter != core.node_id:
            core.send(
                VoteRequest,
                voter,
                last_index=core.log.last_index,
                last_term=core.log.last_term,
                membership_index=core.memberships.index,
                is_pre_vote=is_pre_vote,
                is_leadership_transfer=is_leadership_transfer,
            )


def on_vote_request(core: RaftCore, message: VoteRequest) -> None:
    """Grant or deny a candidate's vote request or pre-vote request.

    The membership is not consulted about the sender or this node, because the entry that adds one of them may not have
    arrived yet (§6). The candidate counts votes by its own membership.
    """
    is_granted = (
        not core.has_replaced_directory
        and not _is_directory_mismatched(core, message)
        and rules.is_up_to_date(message.last_term, message.last_index, core.log.last_term, core.log.last_index)
        and (message.is_pre_vote or rules.can_vote_for(core.vote, message.source))
    )
    if is_granted and not message.is_pre_vote:
        core.vote = message.source
        core.restart_election_timer()
    core.reply(message, VoteAck, is_pre_vote=message.is_pre_vote, is_granted=is_granted)


def _is_directory_mismatched(core: RaftCore, message: VoteRequest) -> bool:
    durable_state = core.membership.get(message.source)
    return rules.is_candidate_directory_mismatched(
        durable_state, message.source_directory, message.membership_index, core.memberships.index
    )


def on_vote_ack(core: RaftCore, message: VoteAck) -> None:
    expected_role = Role.PRE_CANDIDATE if message.is_pre_vote else Role.CANDIDATE
    if core.role is not expected_role or not core.counts_towards_quorum(message.source, message.source_directory):
        return
    core.voter_directories[message.source] = message.source_directory
    core.votes[message.source] = message.is_granted
    count_votes(core)


def count_own_vote(core: RaftCore) -> None:
    """Count the candidate's vote for itself once this vote is durable."""
    durable_state = core.writes.durable_hard_state
    if core.role is Role.CANDIDATE and rules.is_own_vote_durable(
        durable_state.term, durable_state.vote, core.term, core.node_id
    ):
        core.votes[core.node_id] = True
        count_votes(core)


def count_votes(core: RaftCore) -> None:
    voters = core.membership.voters
    if rules.has_quorum((node for node, is_granted in core.votes.items() if is_granted), voters):
        if core.role is Role.PRE_CANDIDATE:
            start_election(core, is_leadership_transfer=False)
        else:
            leadership.become_leader(core)
        return
    denied = sum(not is_granted for is_granted in core.votes.values())
    if len(voters) - denied < rules.quorum_size(len(voters)):
        core.become_follower(NO_NODE, "election lost")


def on_timeout_now(core: RaftCore, message: TimeoutNow) -> None:
    if message.source == core.leader:
        check_invariant(core.role is Role.FOLLOWER, "Raft: a node that follows a leader must be in the follower role")
        campaign(core, is_leadership_transfer=True)
