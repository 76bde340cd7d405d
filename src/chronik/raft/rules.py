"""The safety rules of Raft, each a pure function of a few values: the only place where each is decided.

Breaking any one of them breaks a promise of the cluster. `tests/raft/mutants.py` does break each of them, and the
tests must notice; so a rule is always called through this module (`rules.name(...)`), never imported by name.
Sections are those of the Raft paper (extended version) unless they are marked as Ongaro's thesis.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from enum import Enum

from chronik.raft.entries import Entry
from chronik.raft.membership import NOBODY, UNBOUND, Member


class Promise(Enum):
    """What must be on disk before a message may leave."""

    NOTHING = 0
    """A leader's own messages: its term and vote were durable when it was elected, and entries may travel while its
    own disk still writes them, because it counts itself only once they are written."""
    TERM = 1
    """Term and vote as they are now."""
    LOG = 2
    """Everything: term, vote, entries, and the pieces of a snapshot."""


# ------------------------------------------------------------------------------------------------ terms and elections


def is_stale(message_term: int, current_term: int) -> bool:
    """§5.1: what an older term says is void."""
    return message_term < current_term


def may_vote_for(vote: int, candidate: int) -> bool:
    """§5.2: one vote per term. Saying it again to the same candidate is allowed: the first answer may be lost."""
    return vote in (NOBODY, candidate)


def vote_in_new_term(vote: int, term: int, new_term: int) -> int:
    """§5.2: a vote is forgotten only together with its term."""
    return vote if new_term == term else NOBODY


def is_up_to_date(last_term: int, last_index: int, own_last_term: int, own_last_index: int) -> bool:
    """§5.4.1: whoever lacks an entry that may be committed gets no vote from those who hold it."""
    return (last_term, last_index) >= (own_last_term, own_last_index)


def is_leased(is_leader: bool, leader: int, elapsed_ticks: int, election_ticks: int) -> bool:
    """§6, thesis §4.2.3: who heard from a leader within the shortest election timeout ignores candidates, so that a
    removed node, or one that was cut off, cannot depose a leader that works."""
    return is_leader or (leader != NOBODY and elapsed_ticks < election_ticks)


def is_candidate_known_by_another_disk(
    known: Member | None, directory_id: bytes, candidate_membership_index: int, own_membership_index: int
) -> bool:
    """A node that came back on an empty disk asks for votes under its old id. A candidate that knows a newer
    membership than ours is believed: it was let in again by an entry that has not reached us."""
    if known is None or known.directory_id in (UNBOUND, directory_id):
        return False
    return candidate_membership_index <= own_membership_index


def counts(member: Member | None, directory_id: bytes, membership_index: int) -> bool:
    """Whether what this directory says counts towards a quorum: voters only, on the disk they are bound to. Before
    the first entry of all (membership 0) nobody is bound yet, and the first leader must get its votes somehow."""
    if member is None or not member.is_voter:
        return False
    if member.directory_id == UNBOUND:
        return membership_index == 0
    return member.directory_id == directory_id


def may_campaign(own: Member | None, directory_id: bytes, membership_index: int) -> bool:
    """Thesis §4.2.1: learners and strangers never stand; nor does a node whose seat is bound to another disk, or to
    none: it would vote for itself, and that vote counts only from the disk of a voter."""
    return counts(own, directory_id, membership_index)


def is_addressed_to(target_directory: bytes, directory_id: bytes) -> bool:
    """What was meant for the disk that this node had before must not be answered by the one it has now."""
    return target_directory in (UNBOUND, directory_id)


# ------------------------------------------------------------------------------------------------ quorums and commit


def quorum_size(voter_count: int) -> int:
    """§5.2: any two majorities share a voter."""
    return voter_count // 2 + 1


def has_quorum(agreeing: Iterable[int], voters: Collection[int]) -> bool:
    return len(set(agreeing) & set(voters)) >= quorum_size(len(voters))


def quorum_index(matches: Sequence[int]) -> int:
    """§5.3: the highest index that a majority of the voters hold durably."""
    return sorted(matches, reverse=True)[quorum_size(len(matches)) - 1]


def may_commit(entry_term: int | None, current_term: int) -> bool:
    """§5.4.2: entries of earlier terms are committed only by the commit of one of the leader's own (figure 8)."""
    return entry_term == current_term


def own_match(durable_index: int, last_index: int) -> int:
    """Thesis §10.2.1: a leader counts itself for what it has synced, not for what it has in memory."""
    return min(durable_index, last_index)


def follower_commit(leader_commit: int, last_matching_index: int) -> int:
    """§5.3: what lies behind the entries just compared may still be in conflict with the leader's log."""
    return min(leader_commit, last_matching_index)


def heartbeat_commit(commit: int, match: int) -> int:
    """A heartbeat compares nothing, so it may commit only what the peer is known to hold."""
    return min(commit, match)


def applicable_through(commit: int, durable_index: int) -> int:
    """Only what is committed, and only once it is on our own disk too: after a restart the state machine must never
    be ahead of the log that rebuilds it."""
    return min(commit, durable_index)


# ------------------------------------------------------------------------------------------------------------ the log


def holds_previous(own_term: int | None, previous_term: int) -> bool:
    """§5.3: entries are taken only behind an entry that both logs hold; by induction they then agree on all before."""
    return own_term == previous_term


def first_conflict(own_terms: Sequence[int | None], entries: Sequence[Entry]) -> int:
    """§5.3: how many of the entries we hold already. What follows replaces our own; if all are held, nothing may be
    cut off, for the message may be an old one that arrives late."""
    for position, (own_term, entry) in enumerate(zip(own_terms, entries, strict=True)):
        if own_term != entry.term:
            return position
    return len(entries)


def is_snapshot_needed(snapshot_index: int, commit: int, own_term: int | None, snapshot_term: int) -> bool:
    """§7: a snapshot replaces the log only where the log does not hold the same history already."""
    return snapshot_index > commit and own_term != snapshot_term


def is_whole(size_bytes: int, checksum: int, expected_size_bytes: int, expected_checksum: int) -> bool:
    return (size_bytes, checksum) == (expected_size_bytes, expected_checksum)


# ---------------------------------------------------------------------------------------------------------- promises


def waits_for(promise: Promise, term_is_durable: bool, log_is_durable: bool) -> bool:
    """Persist before you speak."""
    if promise is Promise.NOTHING:
        return False
    return not term_is_durable or (promise is Promise.LOG and not log_is_durable)


def survives_term(message_term: int, new_term: int) -> bool:
    """A promise that is still held back when the term moves is void: the entries it speaks of may have been replaced
    in memory before they were ever written, and the old leader would count them."""
    return message_term >= new_term


def vote_counts_for_itself(durable_term: int, durable_vote: int, term: int, node_id: int) -> bool:
    """A candidate's own vote is a vote like any other: durable first."""
    return (durable_term, durable_vote) == (term, node_id)


# ---------------------------------------------------------------------------------------- reads, hand-over, membership


def may_serve_reads(term_at_commit: int | None, current_term: int) -> bool:
    """§8: until an entry of its own term is committed a leader does not know how far the log is committed."""
    return term_at_commit == current_term


def is_read_confirmed(confirming: Iterable[int], voters: Collection[int]) -> bool:
    """§8, thesis §6.4: a majority still followed us after the read was asked for, so no other leader had committed."""
    return has_quorum(confirming, voters)


def may_take_over(match: int, last_index: int) -> bool:
    """Thesis §3.10: the target must hold the whole log, or it could not be elected and nobody would lead."""
    return match == last_index


def may_change_membership(membership_index: int, commit: int, term_at_commit: int | None, current_term: int) -> bool:
    """Thesis §4.1 and its correction: one change at a time, and none before the leader's first commit."""
    return membership_index <= commit and term_at_commit == current_term


def has_caught_up(match: int, commit: int, lag_max_entries: int) -> bool:
    """Thesis §4.2.1: a voter that lags far behind would stop all commits as soon as another voter fails."""
    return match + lag_max_entries >= commit
