"""Mutants: leaders that break one rule of `reconciliation` each. The tests must detect every one of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

import pytest
from msgspec.structs import replace

from chronik.controller import reconciling
from chronik.controller.reconciling import Seen
from chronik.raft.membership import DemoteVoter, Member, RemoveNode


class Mutant(NamedTuple):
    """A named patch that breaks one rule."""

    name: str
    apply: Callable[[pytest.MonkeyPatch], None]


def rule(original: Callable[..., Any], broken: Callable[..., Any]) -> Callable[[pytest.MonkeyPatch], None]:
    """Return a patch that replaces a function of `reconciliation`."""
    name = original.__name__
    assert getattr(reconciling, name) is original
    return lambda patch: patch.setattr(reconciling, name, broken)


may_vote, may_succeed = reconciling.may_vote, reconciling.may_succeed


def _with_all_active(seen: Seen) -> Seen:
    active = {*seen.nodes, *(member.node_id for member in seen.membership.members)}
    return Seen(seen.leader, seen.nodes, seen.membership, seen.membership_index, seen.matches, active)


def _promote_observers(seen: Seen, member: Member) -> bool:
    return may_vote(seen._replace(nodes={key: replace(node, voter=True) for key, node in seen.nodes.items()}), member)


def _demote_by_id(seen: Seen) -> reconciling.Step | None:
    for voter in seen.voters:
        if voter not in seen.meant and voter != seen.leader:
            return DemoteVoter(voter) if voter in seen.nodes else RemoveNode(voter)
    return None


def _succeed_if_active(seen: Seen, voter: int) -> bool:
    return voter != seen.leader and voter in seen.heard


def _wait_for_any_voter(seen: Seen) -> bool:
    return any(node_id not in seen.voters for node_id in seen.meant)


MUTANTS: Final = (
    Mutant(
        "promotes an inactive learner",
        rule(reconciling.may_vote, lambda seen, member: may_vote(_with_all_active(seen), member)),
    ),
    Mutant(
        "promotes a lagging learner",
        rule(reconciling.may_vote, lambda seen, member: may_vote(seen._replace(membership_index=0), member)),
    ),
    Mutant("promotes observers", rule(reconciling.may_vote, _promote_observers)),
    Mutant("never promotes", rule(reconciling.may_vote, lambda seen, member: False)),
    Mutant("demotes voters before it promotes others", rule(reconciling.is_vote_awaited, lambda seen: False)),
    Mutant(
        "waits for an inactive voter",
        rule(reconciling.is_vote_awaited, _wait_for_any_voter),
    ),
    Mutant("demotes without an active majority", rule(reconciling.keeps_majority, lambda voters, heard: True)),
    Mutant(
        "counts half of the voters as a majority",
        rule(reconciling.keeps_majority, lambda voters, heard: 2 * len(set(voters) & set(heard)) >= len(voters)),
    ),
    Mutant("keeps only two voters", rule(reconciling.keeps_enough, lambda rest, meant: True)),
    Mutant("always keeps three voters", rule(reconciling.keeps_enough, lambda rest, meant: len(rest) >= 3)),
    Mutant(
        "transfers leadership to an inactive node",
        rule(reconciling.may_succeed, lambda seen, voter: may_succeed(_with_all_active(seen), voter)),
    ),
    Mutant(
        "transfers leadership to a leaving node",
        rule(reconciling.may_succeed, _succeed_if_active),
    ),
    Mutant(
        "transfers leadership to a drained node",
        rule(reconciling._drained_leader, lambda seen: reconciling._handed_over(seen, to_drained=True)),
    ),
    Mutant("never transfers leadership", rule(reconciling.may_succeed, lambda seen, voter: False)),
    Mutant("transfers leadership to itself", rule(reconciling.may_succeed, lambda seen, voter: voter == seen.leader)),
    Mutant("demotes without any check", rule(reconciling._taken_vote, _demote_by_id)),
    Mutant("never removes", rule(reconciling._removed_learner, lambda seen: None)),
    Mutant("leads although it is drained", rule(reconciling._drained_leader, lambda seen: None)),
)
