"""The safety rules of Raft as pure functions, each the only place where its decision is made.

Breaking a rule breaks a guarantee of the cluster. `tests/raft/mutants.py` breaks each rule, and the tests must detect
it. Callers must therefore call rules through this module (`rules.name(...)`) and not import them by name. Section
numbers refer to the Raft paper (extended version), or to Ongaro's thesis where noted.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from enum import Enum

from chronik.raft.entries import RaftEntry
from chronik.raft.membership import NO_NODE, UNBOUND_DIRECTORY, RaftMember


class Durability(Enum):
    """The Raft state that must be durable on this node before a message may be sent."""

    NOTHING = 0
    """The message may be sent immediately, like the messages of a leader.

    The leader's term and vote were durable when it was elected. It may send entries before they are durable locally,
    because it counts itself towards the quorum only for durable entries.
    """
    TERM = 1
    """The current term and vote must be durable."""
    LOG = 2
    """All state must be durable: term, vote, log entries and snapshot chunks."""


# ------------------------------------------------------------------------------------------------ terms and elections


def is_stale_term(message_term: int, current_term: int) -> bool:
    """Return whether a message is from an older term and must be ignored (§5.1)."""
    return message_term < current_term


def can_vote_for(vote: int, candidate: int) -> bool:
    """Return whether a node that voted for `vote` may vote for `candidate` in the same term (§5.2).

    A repeated vote for the same candidate is allowed, because the first response may be lost.
    """
    return vote in (NO_NODE, candidate)


def get_vote_after_term_change(vote: int, term: int, new_term: int) -> int:
    """Return this node's vote after a change from one term to another, which resets the vote (§5.2)."""
    return vote if new_term == term else NO_NODE


def is_up_to_date(last_term: int, last_index: int, own_last_term: int, own_last_index: int) -> bool:
    """Return whether a candidate's log is at least as up to date as this node's log (§5.4.1)."""
    return (last_term, last_index) >= (own_last_term, own_last_index)


def is_lease_valid(is_leader: bool, leader: int, elapsed_ticks: int, election_ticks: int) -> bool:
    """Return whether the leader lease is valid, during which a node ignores candidates (§6, thesis §4.2.3).

    The lease lasts for the minimum election timeout after a leader's message. It prevents a removed or partitioned node
    from deposing a working leader.
    """
    return is_leader or (leader != NO_NODE and elapsed_ticks < election_ticks)


def is_candidate_directory_mismatched(
    known: RaftMember | None, directory_id: bytes, candidate_membership_index: int, own_membership_index: int
) -> bool:
    """Return whether a candidate has another data directory than its member entry, and thus gets no vote.

    A node with a replaced disk may campaign under its old id. A candidate that knows a newer membership is accepted,
    because an entry that has not arrived yet added it again.
    """
    if known is None or known.directory_id in (UNBOUND_DIRECTORY, directory_id):
        return False
    return candidate_membership_index <= own_membership_index


def counts_towards_quorum(member: RaftMember | None, directory_id: bytes, membership_index: int) -> bool:
    """Return whether votes and acknowledgements from this data directory count towards a quorum.

    Only voters count, and only on the directory they are bound to. Before the first entry (membership index 0) no
    voter is bound, and all configured voters count, so that the first leader can be elected.
    """
    if member is None or not member.is_voter:
        return False
    if member.directory_id == UNBOUND_DIRECTORY:
        return membership_index == 0
    return member.directory_id == directory_id


def can_campaign(own: RaftMember | None, directory_id: bytes, membership_index: int) -> bool:
    """Return whether a node may start an election, as only voters in their bound data directory may (thesis §4.2.1).

    Learners, unknown nodes and nodes on another directory may not, because their votes for themselves do not count.
    """
    return counts_towards_quorum(own, directory_id, membership_index)


def is_addressed_to_directory(target_directory: bytes, directory_id: bytes) -> bool:
    """Return whether a message is addressed to this data directory, not to a previous one of the node."""
    return target_directory in (UNBOUND_DIRECTORY, directory_id)


# ------------------------------------------------------------------------------------------------ quorums and commit


def quorum_size(voter_count: int) -> int:
    """Return the number of voters that form a majority (§5.2)."""
    return voter_count // 2 + 1


def has_quorum(agreeing: Iterable[int], voters: Collection[int]) -> bool:
    return len(set(agreeing) & set(voters)) >= quorum_size(len(voters))


def compute_quorum_index(matches: Sequence[int]) -> int:
    """Return the highest index that is durable on a majority of voters (§5.3)."""
    return sorted(matches, reverse=True)[quorum_size(len(matches)) - 1]


def can_commit_by_counting_replicas(entry_term: int | None, current_term: int) -> bool:
    """Return whether a leader may commit an entry by counting replicas: only entries of its own term (§5.4.2)."""
    return entry_term == current_term


def get_leader_match_index(durable_index: int, last_index: int) -> int:
    """Return the last index of the leader's log that is durable on its own disk (thesis §10.2.1)."""
    return min(durable_index, last_index)


def compute_follower_commit_index(leader_commit: int, last_matching_index: int) -> int:
    """Return a follower's new commit index: the leader's, limited to the entries known to match (§5.3)."""
    return min(leader_commit, last_matching_index)


def compute_heartbeat_commit_index(commit: int, match: int) -> int:
    """Return the commit index for a heartbeat, limited to the entries that the peer is known to have."""
    return min(commit, match)


def compute_max_applicable_index(commit: int, durable_index: int) -> int:
    """Return the highest index that may be applied: committed, and durable on the local disk.

    After a restart, the state machine must not be ahead of the local log that rebuilds it.
    """
    return min(commit, durable_index)


# ------------------------------------------------------------------------------------------------------------ the log


def matches_previous_entry(own_term: int | None, previous_term: int) -> bool:
    """Return whether the local log matches at the previous entry of an Append (§5.3).

    By induction, the logs then match in all earlier entries.
    """
    return own_term == previous_term


def count_matching_entries(own_terms: Sequence[int | None], entries: Sequence[RaftEntry]) -> int:
    """Return the number of leading entries in an Append that the local log already contains (§5.3).

    The rest replaces local entries. If the log has all of them, it must not be truncated, because the message may be a
    delayed one.
    """
    for position, (own_term, entry) in enumerate(zip(own_terms, entries, strict=True)):
        if own_term != entry.term:
            return position
    return len(entries)


def is_snapshot_needed(snapshot_index: int, commit: int, own_term: int | None, snapshot_term: int) -> bool:
    """Return whether a received snapshot must replace the log, because the log lacks its last entry (§7)."""
    return snapshot_index > commit and own_term != snapshot_term


def is_snapshot_complete(size_bytes: int, checksum: int, expected_size_bytes: int, expected_checksum: int) -> bool:
    return (size_bytes, checksum) == (expected_size_bytes, expected_checksum)


# -------------------------------------------------------------------------------------------- durability of messages


def must_wait_for_disk(promise: Durability, term_is_durable: bool, log_is_durable: bool) -> bool:
    """Return whether a message must wait until the state that it depends on is durable."""
    if promise is Durability.NOTHING:
        return False
    return not term_is_durable or (promise is Durability.LOG and not log_is_durable)


def is_message_valid_in_term(message_term: int, new_term: int) -> bool:
    """Return whether a held message of an older term may still be sent after the node has entered a new term.

    The acknowledged entries may have been replaced before they were written, but the old leader would count them.
    """
    return message_term >= new_term


def is_own_vote_durable(durable_term: int, durable_vote: int, term: int, node_id: int) -> bool:
    """Return whether a candidate's vote for itself is durable, without which it does not count."""
    return (durable_term, durable_vote) == (term, node_id)


# ------------------------------------------------------------------------------ reads, leadership transfer, membership


def can_serve_reads(term_at_commit: int | None, current_term: int) -> bool:
    """Return whether the leader may serve reads, because it has committed an entry of its own term (§8)."""
    return term_at_commit == current_term


def is_read_confirmed(confirming: Iterable[int], voters: Collection[int]) -> bool:
    """Return whether a majority has confirmed the leadership since the read was requested (§8, thesis §6.4)."""
    return has_quorum(confirming, voters)


def is_transfer_target_caught_up(match: int, last_index: int) -> bool:
    """Return whether the target of a leadership transfer has the leader's whole log (thesis §3.10)."""
    return match == last_index


def can_change_membership(membership_index: int, commit: int, term_at_commit: int | None, current_term: int) -> bool:
    """Return whether the leader may append a membership change (thesis §4.1 and its correction).

    Only one change may be uncommitted, and the leader must have committed an entry of its own term.
    """
    return membership_index <= commit and term_at_commit == current_term


def has_caught_up(match: int, commit: int, lag_max_entries: int) -> bool:
    """Return whether a learner lags little enough behind the leader to become a voter (thesis §4.2.1).

    A lagging voter would block all commits as soon as another voter fails.
    """
    return match + lag_max_entries >= commit
