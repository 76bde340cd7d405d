"""Nodes with one rule broken each. The tests must notice every one of them: a rule that can be broken unnoticed is
either not needed or not tested."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Any, Final, NamedTuple

import pytest

from chronik.raft import election, leadership, reads, rules
from chronik.raft.core import RaftCore
from chronik.raft.entries import Entry
from chronik.raft.membership import NOBODY, UNBOUND, Member, Membership
from chronik.raft.rules import Promise
from chronik.raft.writes import Writes

Patch = Callable[[pytest.MonkeyPatch], None]


class Mutant(NamedTuple):
    name: str
    apply: Patch


def rule(name: str, broken: Callable[..., Any]) -> Patch:
    """The rule is replaced by another function of the same arguments."""
    assert callable(getattr(rules, name))
    return lambda patch: patch.setattr(rules, name, broken)


def always(value: bool) -> Callable[..., bool]:
    return lambda *_: value


def _forget_vote(patch: pytest.MonkeyPatch) -> None:
    original = RaftCore.__init__

    def init(core: RaftCore, *args: Any) -> None:
        original(core, *args)
        core.vote = NOBODY

    patch.setattr(RaftCore, "__init__", init)


def _write_no_votes(patch: pytest.MonkeyPatch) -> None:
    def is_pending(writes: Writes, term: int, vote: int) -> bool:
        written = writes._outstanding.hard_state if writes._outstanding else None
        return (written or writes.durable_hard_state).term != term

    def is_durable(writes: Writes, term: int, vote: int) -> bool:
        return writes.durable_hard_state.term == term

    patch.setattr(Writes, "_is_term_pending", is_pending)
    patch.setattr(Writes, "is_term_durable", is_durable)
    patch.setattr(rules, "vote_counts_for_itself", lambda durable_term, _vote, term, _node: durable_term == term)


def _raise_term_beforehand(patch: pytest.MonkeyPatch) -> None:
    original = election.ask_beforehand

    def ask(core: RaftCore) -> None:
        core.enter_term(core.term + 1)
        original(core)

    patch.setattr(election, "ask_beforehand", ask)


def _stand_without_asking(patch: pytest.MonkeyPatch) -> None:
    def ask(core: RaftCore) -> None:
        election.stand(core, is_hand_over=False)

    patch.setattr(election, "ask_beforehand", ask)


def _learners_are_voters(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Membership, "voters", property(lambda self: tuple(member.node_id for member in self.members)))


def _count_whoever_agrees(agreeing: Iterable[int], voters: Collection[int]) -> bool:
    return len(set(agreeing)) >= rules.quorum_size(len(voters))


def _count_any_disk(member: Member | None, directory_id: bytes, membership_index: int) -> bool:
    return member is not None and member.is_voter


def _count_the_unbound(member: Member | None, directory_id: bytes, membership_index: int) -> bool:
    return member is not None and member.is_voter and member.directory_id in (directory_id, UNBOUND)


def _anybody_stands(own: Member | None, directory_id: bytes, membership_index: int) -> bool:
    return own is not None


def _keep_conflicts(own_terms: list[int | None], entries: tuple[Entry, ...]) -> int:
    held = [position for position, term in enumerate(own_terms) if term is not None]
    return held[-1] + 1 if held else 0


def _wait_for_the_term_only(promise: Promise, term_is_durable: bool, log_is_durable: bool) -> bool:
    return promise is not Promise.NOTHING and not term_is_durable


def _wait_for_the_log_only(promise: Promise, term_is_durable: bool, log_is_durable: bool) -> bool:
    return promise is Promise.LOG and not log_is_durable


MUTANTS: Final = (
    Mutant("votes twice in a term", rule("may_vote_for", always(True))),
    Mutant("forgets its vote in a restart", _forget_vote),
    Mutant("never writes its vote", _write_no_votes),
    Mutant("keeps its vote in the next term", rule("vote_in_new_term", lambda vote, term, new_term: vote)),
    Mutant("votes for an older log", rule("is_up_to_date", always(True))),
    Mutant("compares logs by length alone", rule("is_up_to_date", lambda term, index, own_term, own: index >= own)),
    Mutant("listens to older terms", rule("is_stale", always(False))),
    Mutant("listens to candidates beside a leader", rule("is_leased", always(False))),
    Mutant("raises the term by asking beforehand", _raise_term_beforehand),
    Mutant("stands without asking beforehand", _stand_without_asking),
    Mutant("stands as a learner", rule("may_campaign", _anybody_stands)),
    Mutant("counts learners", _learners_are_voters),
    Mutant("counts whoever agrees", rule("has_quorum", _count_whoever_agrees)),
    Mutant("counts half as a majority", rule("quorum_size", lambda count: max(1, count // 2))),
    Mutant("commits what one node holds", rule("quorum_index", max)),
    Mutant("commits entries of older terms by counting", rule("may_commit", always(True))),
    Mutant("counts itself before its disk has written", rule("own_match", lambda durable, last: last)),
    Mutant("counts its own vote before its disk has written", rule("vote_counts_for_itself", always(True))),
    Mutant("speaks before it has written", rule("waits_for", always(False))),
    Mutant("acknowledges entries before they are written", rule("waits_for", _wait_for_the_term_only)),
    Mutant("votes before the vote is written", rule("waits_for", _wait_for_the_log_only)),
    Mutant("keeps promises of an older term", rule("survives_term", always(True))),
    Mutant("applies what is not committed", rule("applicable_through", lambda commit, durable: durable)),
    Mutant("applies what is not on its own disk", rule("applicable_through", lambda commit, durable: commit)),
    Mutant("takes entries behind unknown ones", rule("holds_previous", lambda own, previous: own is not None)),
    Mutant("keeps its own entries in a conflict", rule("first_conflict", _keep_conflicts)),
    Mutant("cuts its log at every message", rule("first_conflict", lambda own_terms, entries: 0)),
    Mutant("commits what it has not compared", rule("follower_commit", lambda commit, matching: commit)),
    Mutant("commits by heartbeat what a peer lacks", rule("heartbeat_commit", lambda commit, match: commit)),
    Mutant("installs a snapshot over a newer log", rule("is_snapshot_needed", always(True))),
    Mutant("installs a damaged snapshot", rule("is_whole", always(True))),
    Mutant("serves reads without asking a majority", rule("is_read_confirmed", always(True))),
    Mutant("serves reads before its first commit", rule("may_serve_reads", always(True))),
    Mutant("waits for ever for the answer to a read", lambda patch: patch.setattr(reads, "tick", lambda core: None)),
    Mutant("hands over to a node that lags", rule("may_take_over", always(True))),
    Mutant("changes members twice at once", rule("may_change_membership", lambda i, c, at, term: at == term)),
    Mutant("changes members before its first commit", rule("may_change_membership", lambda i, c, at, term: i <= c)),
    Mutant("promotes a learner that lags", rule("has_caught_up", always(True))),
    Mutant("counts a node on another disk", rule("counts", _count_any_disk)),
    Mutant("counts a node that is bound to no disk", rule("counts", _count_the_unbound)),
    Mutant("answers for the disk it had before", rule("is_addressed_to", always(True))),
    Mutant("votes for a node on another disk", rule("is_candidate_known_by_another_disk", always(False))),
    Mutant(
        "goes on leading without a majority",
        lambda patch: patch.setattr(leadership, "_hears_from_quorum", always(True)),
    ),
    Mutant(
        "goes on leading after its removal",
        lambda patch: patch.setattr(leadership, "step_down_if_removed", lambda core: None),
    ),
)
