"""Mutants: Raft nodes with one broken rule each. The tests must detect every one of them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Any, Final, NamedTuple

import pytest

from chronik.raft import election, rules
from chronik.raft.core import RaftCore
from chronik.raft.entries import RaftEntry
from chronik.raft.membership import NO_NODE, UNBOUND_DIRECTORY, RaftMember
from chronik.raft.pending_writes import PendingWrites
from chronik.raft.rules import Durability

Patch = Callable[[pytest.MonkeyPatch], None]


class Mutant(NamedTuple):
    """A named patch that breaks one rule."""

    name: str
    apply: Patch


def rule(original: Callable[..., Any], broken: Callable[..., Any]) -> Patch:
    """Return a patch that replaces a function of `rules`."""
    name = original.__name__
    assert getattr(rules, name) is original
    return lambda patch: patch.setattr(rules, name, broken)


def always(value: bool) -> Callable[..., bool]:
    return lambda *_: value


def _lose_vote(patch: pytest.MonkeyPatch) -> None:
    original = RaftCore.__init__

    def init(core: RaftCore, *args: Any) -> None:
        original(core, *args)
        core.vote = NO_NODE

    patch.setattr(RaftCore, "__init__", init)


def _never_write_vote(patch: pytest.MonkeyPatch) -> None:
    def is_pending(writes: PendingWrites, term: int, vote: int) -> bool:
        written = writes._outstanding.hard_state if writes._outstanding else None
        return (written or writes.durable_hard_state).term != term

    def is_durable(writes: PendingWrites, term: int, vote: int) -> bool:
        return writes.durable_hard_state.term == term

    patch.setattr("chronik.raft.pending_writes.PendingWrites._is_term_pending", is_pending)
    patch.setattr("chronik.raft.pending_writes.PendingWrites.is_term_durable", is_durable)
    patch.setattr(
        "chronik.raft.rules.is_own_vote_durable", lambda durable_term, _vote, term, _node: durable_term == term
    )


def _increment_term_for_pre_vote(patch: pytest.MonkeyPatch) -> None:
    original = election.start_pre_vote

    def start(core: RaftCore) -> None:
        core.enter_term(core.term + 1)
        original(core)

    patch.setattr("chronik.raft.election.start_pre_vote", start)


def _campaign_without_pre_vote(patch: pytest.MonkeyPatch) -> None:
    def start(core: RaftCore) -> None:
        election.start_election(core, is_leadership_transfer=False)

    patch.setattr("chronik.raft.election.start_pre_vote", start)


def _learners_are_voters(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        "chronik.raft.membership.Membership.voters",
        property(lambda self: tuple(member.node_id for member in self.members)),
    )


def _count_non_voters(agreeing: Iterable[int], voters: Collection[int]) -> bool:
    return len(set(agreeing)) >= rules.quorum_size(len(voters))


def _count_any_directory(member: RaftMember | None, directory_id: bytes, membership_index: int) -> bool:
    return member is not None and member.is_voter


def _count_unbound(member: RaftMember | None, directory_id: bytes, membership_index: int) -> bool:
    return member is not None and member.is_voter and member.directory_id in (directory_id, UNBOUND_DIRECTORY)


def _campaign_always(own: RaftMember | None, directory_id: bytes, membership_index: int) -> bool:
    return own is not None


def _keep_conflicts(own_terms: list[int | None], entries: tuple[RaftEntry, ...]) -> int:
    held = [position for position, term in enumerate(own_terms) if term is not None]
    return held[-1] + 1 if held else 0


def _wait_for_term_only(promise: Durability, term_is_durable: bool, log_is_durable: bool) -> bool:
    return promise is not Durability.NOTHING and not term_is_durable


def _wait_for_log_only(promise: Durability, term_is_durable: bool, log_is_durable: bool) -> bool:
    return promise is Durability.LOG and not log_is_durable


MUTANTS: Final = (
    Mutant("votes twice in a term", rule(rules.can_vote_for, always(True))),
    Mutant("loses its vote on restart", _lose_vote),
    Mutant("never writes its vote", _never_write_vote),
    Mutant(
        "keeps its vote in the next term", rule(rules.get_vote_after_term_change, lambda vote, term, new_term: vote)
    ),
    Mutant("votes for an older log", rule(rules.is_up_to_date, always(True))),
    Mutant("compares logs by length alone", rule(rules.is_up_to_date, lambda term, index, own_term, own: index >= own)),
    Mutant("accepts messages of older terms", rule(rules.is_stale_term, always(False))),
    Mutant("ignores the leader lease", rule(rules.is_lease_valid, always(False))),
    Mutant("increments the term for a pre-vote", _increment_term_for_pre_vote),
    Mutant("campaigns without a pre-vote", _campaign_without_pre_vote),
    Mutant("campaigns as a learner", rule(rules.can_campaign, _campaign_always)),
    Mutant("counts learners", _learners_are_voters),
    Mutant("counts non-voters", rule(rules.has_quorum, _count_non_voters)),
    Mutant("counts half as a majority", rule(rules.quorum_size, lambda count: max(1, count // 2))),
    Mutant("commits entries on a single node", rule(rules.compute_quorum_index, max)),
    Mutant(
        "commits entries of older terms by counting replicas", rule(rules.can_commit_by_counting_replicas, always(True))
    ),
    Mutant("counts its own unsynced entries", rule(rules.get_leader_match_index, lambda durable, last: last)),
    Mutant("counts its own unsynced vote", rule(rules.is_own_vote_durable, always(True))),
    Mutant("sends messages before the write is durable", rule(rules.must_wait_for_disk, always(False))),
    Mutant("acknowledges entries before they are durable", rule(rules.must_wait_for_disk, _wait_for_term_only)),
    Mutant("sends a vote before it is durable", rule(rules.must_wait_for_disk, _wait_for_log_only)),
    Mutant("sends held-back messages of an older term", rule(rules.is_message_valid_in_term, always(True))),
    Mutant("applies uncommitted entries", rule(rules.compute_max_applicable_index, lambda commit, durable: durable)),
    Mutant(
        "applies entries that are not on its disk",
        rule(rules.compute_max_applicable_index, lambda commit, durable: commit),
    ),
    Mutant("appends entries after a gap", rule(rules.matches_previous_entry, lambda own, previous: own is not None)),
    Mutant("keeps its own entries in a conflict", rule(rules.count_matching_entries, _keep_conflicts)),
    Mutant("truncates its log at every Append", rule(rules.count_matching_entries, lambda own_terms, entries: 0)),
    Mutant(
        "commits entries that it has not compared",
        rule(rules.compute_follower_commit_index, lambda commit, matching: commit),
    ),
    Mutant(
        "commits entries that a peer lacks by heartbeat",
        rule(rules.compute_heartbeat_commit_index, lambda commit, match: commit),
    ),
    Mutant("installs a snapshot over a newer log", rule(rules.is_snapshot_needed, always(True))),
    Mutant("installs a damaged snapshot", rule(rules.is_snapshot_complete, always(True))),
    Mutant("serves reads without a majority", rule(rules.is_read_confirmed, always(True))),
    Mutant("serves reads before its first commit", rule(rules.can_serve_reads, always(True))),
    Mutant(
        "never times out a forwarded read", lambda patch: patch.setattr("chronik.raft.reads.tick", lambda core: None)
    ),
    Mutant("transfers leadership to a lagging node", rule(rules.is_transfer_target_caught_up, always(True))),
    Mutant(
        "makes two membership changes concurrently",
        rule(rules.can_change_membership, lambda i, c, at, term: at == term),
    ),
    Mutant(
        "changes the membership before its first commit",
        rule(rules.can_change_membership, lambda i, c, at, term: i <= c),
    ),
    Mutant("promotes a lagging learner", rule(rules.has_caught_up, always(True))),
    Mutant("counts a node on another directory", rule(rules.counts_towards_quorum, _count_any_directory)),
    Mutant("counts an unbound voter", rule(rules.counts_towards_quorum, _count_unbound)),
    Mutant("accepts messages for its previous directory", rule(rules.is_addressed_to_directory, always(True))),
    Mutant(
        "votes for a candidate on a replaced directory", rule(rules.is_candidate_directory_mismatched, always(False))
    ),
    Mutant(
        "keeps leading without a majority",
        lambda patch: patch.setattr("chronik.raft.leadership._has_active_quorum", always(True)),
    ),
    Mutant(
        "keeps leading after its removal",
        lambda patch: patch.setattr("chronik.raft.leadership.step_down_if_removed", lambda core: None),
    ),
)
