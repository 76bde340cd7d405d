"""Mutants: leaders that break one rule of `reconciliation` each. The tests must detect every one of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

import pytest
from msgspec.structs import replace

from chronik.controller import reconciliation
from chronik.controller.reconciliation import MembershipView
from chronik.raft.membership import DemoteVoter, RaftMember, RemoveMember


class Mutant(NamedTuple):
    """A named patch that breaks one rule."""

    name: str
    apply: Callable[[pytest.MonkeyPatch], None]


def rule(original: Callable[..., Any], broken: Callable[..., Any]) -> Callable[[pytest.MonkeyPatch], None]:
    """Return a patch that replaces a function of `reconciliation`."""
    name = original.__name__
    assert getattr(reconciliation, name) is original
    return lambda patch: patch.setattr(reconciliation, name, broken)


may_vote, may_succeed = reconciliation.can_promote_learner, reconciliation.can_succeed_leader


def _with_all_active(seen: MembershipView) -> MembershipView:
    active = {*seen.nodes, *(member.node_id for member in seen.membership.members)}
    return MembershipView(seen.leader, seen.nodes, seen.membership, seen.membership_index, seen.match_indexes, active)


def _promote_observers(seen: MembershipView, member: RaftMember) -> bool:
    return may_vote(seen._replace(nodes={key: replace(node, voter=True) for key, node in seen.nodes.items()}), member)


def _demote_by_id(seen: MembershipView) -> reconciliation.ReconciliationStep | None:
    for voter in seen.voters:
        if voter not in seen.intended_voters and voter != seen.leader:
            return DemoteVoter(voter) if voter in seen.nodes else RemoveMember(voter)
    return None


def _succeed_if_active(seen: MembershipView, voter: int) -> bool:
    return voter != seen.leader and voter in seen.active


def _wait_for_any_voter(seen: MembershipView) -> bool:
    return any(node_id not in seen.voters for node_id in seen.intended_voters)


MUTANTS: Final = (
    Mutant(
        "promotes an inactive learner",
        rule(reconciliation.can_promote_learner, lambda seen, member: may_vote(_with_all_active(seen), member)),
    ),
    Mutant(
        "promotes a lagging learner",
        rule(
            reconciliation.can_promote_learner, lambda seen, member: may_vote(seen._replace(membership_index=0), member)
        ),
    ),
    Mutant("promotes observers", rule(reconciliation.can_promote_learner, _promote_observers)),
    Mutant("never promotes", rule(reconciliation.can_promote_learner, lambda seen, member: False)),
    Mutant("demotes voters before it promotes others", rule(reconciliation.is_promotion_pending, lambda seen: False)),
    Mutant(
        "waits for an inactive voter",
        rule(reconciliation.is_promotion_pending, _wait_for_any_voter),
    ),
    Mutant("demotes without an active majority", rule(reconciliation.has_active_majority, lambda voters, heard: True)),
    Mutant(
        "counts half of the voters as a majority",
        rule(
            reconciliation.has_active_majority, lambda voters, heard: 2 * len(set(voters) & set(heard)) >= len(voters)
        ),
    ),
    Mutant("keeps only two voters", rule(reconciliation.has_enough_voters, lambda rest, meant: True)),
    Mutant("always keeps three voters", rule(reconciliation.has_enough_voters, lambda rest, meant: len(rest) >= 3)),
    Mutant(
        "transfers leadership to an inactive node",
        rule(reconciliation.can_succeed_leader, lambda seen, voter: may_succeed(_with_all_active(seen), voter)),
    ),
    Mutant(
        "transfers leadership to a leaving node",
        rule(reconciliation.can_succeed_leader, _succeed_if_active),
    ),
    Mutant(
        "transfers leadership to a drained node",
        rule(
            reconciliation._select_transfer_from_drained_leader,
            lambda seen: reconciliation._select_successor(seen, to_drained=True),
        ),
    ),
    Mutant("never transfers leadership", rule(reconciliation.can_succeed_leader, lambda seen, voter: False)),
    Mutant(
        "transfers leadership to itself",
        rule(reconciliation.can_succeed_leader, lambda seen, voter: voter == seen.leader),
    ),
    Mutant("demotes without any check", rule(reconciliation._select_demotion, _demote_by_id)),
    Mutant("never removes", rule(reconciliation._select_removal, lambda seen: None)),
    Mutant(
        "leads although it is drained", rule(reconciliation._select_transfer_from_drained_leader, lambda seen: None)
    ),
)
