"""Reconciliation of the membership with the intended one: the order of the steps and the steps that are never taken."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from itertools import product

import pytest

from chronik.controller.reconciliation import (
    VOTERS_MIN,
    MembershipView,
    ReconciliationStep,
    TransferLeader,
    select_next_step,
)
from chronik.raft.membership import DemoteVoter, PromoteLearner, RemoveMember
from tests.controller.mutants import MUTANTS, Mutant
from tests.controller.scene import INDEX, MembershipScene

SCENARIOS = [
    # intended membership, actual membership, expected steps; node 1 is the leader
    ("VVV", "VVV", []),
    ("VVVo", "VVVo", []),
    ("VVVV", "VVVo", ["promote 4"]),
    ("VVVV", "VVV", []),  # the node must request admission first, because only it knows its directory
    ("VVVo", "VVVV", ["demote 4"]),
    ("VVV", "VVVV", ["remove 4"]),
    ("VVV", "VVVo", ["remove 4"]),
    ("VoVV", "VVVo", ["promote 4", "demote 2"]),
    ("V-VV", "VVVo", ["promote 4", "remove 2"]),
    ("V-oV", "VVVo", ["promote 4", "remove 2", "demote 3"]),
    ("V--VV", "VVVoo", ["promote 4", "promote 5", "remove 2", "remove 3"]),
    ("VVVVVoo", "VVVoooo", ["promote 4", "promote 5"]),
    ("VVV", "VVVVVoo", ["remove 4", "remove 5", "remove 6", "remove 7"]),
    ("oVVV", "VVVo", ["promote 4", "transfer 4", "demote 1"]),
    ("-VVV", "VVVo", ["promote 4", "transfer 4", "remove 1"]),
    ("---VV", "VVVoo", ["promote 4", "promote 5", "remove 2", "remove 3",
     "transfer 5", "remove 1"]),
    ("Voo", "VVV", ["demote 2", "demote 3"]),
    ("V", "VVV", ["remove 2", "remove 3"]),
    ("ooo", "VVV", []),  # the intended voters are unknown
]  # fmt: skip


@pytest.mark.parametrize(("meant", "fact", "steps"), SCENARIOS)
def test_steps_lead_to_intended_membership(meant: str, fact: str, steps: list[str]) -> None:
    scene = MembershipScene(meant, fact, leader=1)
    assert scene.run() == steps


def test_learner_is_promoted_when_active_and_caught_up() -> None:
    scene = MembershipScene("VVVV", "VVVo", leader=1, active=[1, 2, 3])
    assert scene.run() == []
    scene.active.add(4)
    scene.behind.add(4)
    assert scene.run() == []
    scene.behind.clear()
    assert scene.run() == ["promote 4"]


def test_no_voter_is_demoted_before_replaced_voter_returns() -> None:
    scene = MembershipScene("oVVV", "VoVV", leader=3)
    scene.behind.add(2)
    assert scene.run() == []
    scene.behind.clear()
    assert scene.run() == ["promote 2", "demote 1"]


def test_inactive_replacement_keeps_at_least_three_voters() -> None:
    scene = MembershipScene("oVVV", "VVV", leader=2, active=[1, 2, 3])
    assert scene.run() == [], "never down to two voters"
    assert MembershipScene("oVVVVV", "VVVVV", leader=2, active=[1, 2, 3, 4, 5]).run() == ["demote 1"]


def test_demotion_waits_for_joining_voter() -> None:
    assert MembershipScene("oVVVVV", "VVVVV", leader=2, active=[1, 2, 3, 4, 5, 6]).run() == []


def test_voter_is_demoted_only_with_active_majority() -> None:
    assert MembershipScene("VVVVo", "VVVVV", leader=1, active=[1, 2, 5]).run() == []
    assert MembershipScene("VVVVo", "VVVVV", leader=1, active=[1, 2, 3]).run() == ["demote 5"]
    assert MembershipScene("VVo", "VVV", leader=1, active=[1, 3]).run() == []


def test_inactive_voters_are_demoted_first() -> None:
    assert MembershipScene("VVVoo", "VVVVV", leader=1, active=[1, 2, 4]).run() == ["demote 5", "demote 4"]


def test_promotion_requires_active_majority() -> None:
    assert MembershipScene("VVVVVV", "VVVVoo", leader=1, active=[1, 5, 6]).run() == []
    assert MembershipScene("VVVVVV", "VVVVoo", leader=1, active=[1, 2, 5, 6]).run() == ["promote 5", "promote 6"]


def test_drained_leader_transfers_leadership_and_stays_voter() -> None:
    scene = MembershipScene("VVV", "VVV", leader=1, drained=[1])
    assert scene.run() == ["transfer 3"]
    assert MembershipScene("VVV", "VVV", leader=1, drained=[2]).run() == []
    assert MembershipScene("VVV", "VVV", leader=1, drained=[1, 3]).run() == ["transfer 2"]
    assert MembershipScene("VVV", "VVV", leader=1, drained=[1, 2, 3]).run() == [], "no other leader is available"
    assert MembershipScene("VVV", "VVV", leader=1, drained=[1], active=[1]).run() == []


def test_leadership_is_transferred_to_most_up_to_date_voter() -> None:
    scene = MembershipScene("VVV", "VVV", leader=1, drained=[1])
    scene.behind.add(3)
    assert scene.run() == ["transfer 2"]


def test_leaving_leader_is_succeeded_by_drained_node_if_necessary() -> None:
    assert MembershipScene("-VV", "VVV", leader=1, drained=[2, 3]).run() == ["transfer 3", "remove 1"]
    assert MembershipScene("-VV", "VVV", leader=1, drained=[3]).run() == ["transfer 2", "remove 1"]


def test_leaving_leader_without_successor_stays() -> None:
    assert MembershipScene("-oVV", "VVVV", leader=1, active=[1, 2]).run() == []


# Exhaustive tests with four nodes


def scenes() -> Iterator[MembershipScene]:
    """Yield all intended and actual memberships of up to four nodes, with all active nodes and leaders."""
    for meant, fact in product(product("Vo-", repeat=4), repeat=2):
        voters = [node_id for node_id, letter in enumerate(fact, 1) if letter == "V"]
        for leader in voters[:2]:
            for rest in (
                [],
                *([each] for each in range(1, 5)),
                [1, 2, 3, 4],
                *([a, b] for a in (1, 2) for b in (3, 4)),
            ):
                yield MembershipScene("".join(meant), "".join(fact), leader=leader, active={leader, *rest}, drained=[2])


def find_fault(seen: MembershipView, step: ReconciliationStep | None) -> str | None:
    """Return why a step is wrong, or None."""
    voters, meant = set(seen.voters), set(seen.intended_voters)
    match step:
        case PromoteLearner(node_id):
            after = voters | {node_id}
            if node_id in voters or node_id not in meant or node_id not in seen.active:
                return "is promoted without being an intended voter"
            if seen.match_indexes[node_id] < INDEX:
                return "is promoted before it has caught up"
        case DemoteVoter(node_id) | RemoveMember(node_id):
            after = voters - {node_id}
            if isinstance(step, RemoveMember) == (node_id in seen.nodes):
                return "is removed instead of demoted, or vice versa"
            if node_id not in voters:
                return None if isinstance(step, RemoveMember) else "is not a voter that could be demoted"
            if node_id == seen.leader or node_id in meant:
                return "is demoted or removed although it is an intended voter"
            if any(other in seen.active and other not in voters for other in meant):
                return "is demoted or removed before its replacement is promoted"
            if len(after) < min(VOTERS_MIN, len(meant)):
                return "leaves too few voters"
        case TransferLeader(node_id):
            own = seen.nodes.get(seen.leader)
            if own is not None and own.voter and not own.draining:
                return "succeeds a leader that stays"
            if node_id not in meant & voters & set(seen.active):
                return "succeeds but cannot remain the leader"
            if seen.nodes[node_id].draining and own is not None and own.draining and own.voter:
                return "succeeds a leader that is no more drained than itself"
            return "succeeds itself" if node_id == seen.leader else None
        case None:
            return None
    return None if 2 * len(after & set(seen.active)) > len(after) else "leaves no active majority"


def wrong_steps() -> Iterator[str]:
    for scene in scenes():
        seen = scene.seen
        step = select_next_step(seen)
        fault = find_fault(seen, step)
        if fault is not None:
            yield f"{scene.nodes} {scene.actual} active {scene.active}: {step} {fault}"


def unfinished() -> Iterator[str]:
    """Yield scenes that do not converge although all nodes are active and a remaining voter can lead."""
    for meant, fact in product(product("Vo-", repeat=4), product("Vo", repeat=4)):
        voters = [node_id for node_id, letter in enumerate(fact, 1) if letter == "V"]
        if "V" not in meant or not voters:
            continue
        scene = MembershipScene("".join(meant), "".join(fact), leader=voters[0])
        scene.run()
        if scene.actual.ljust(4, "-") != "".join(meant):
            yield f"{''.join(meant)} ends as {scene.actual} after {scene.steps}"


@pytest.mark.slow
def test_no_step_violates_rules_for_any_scene() -> None:
    assert next(wrong_steps(), None) is None


def test_every_scene_converges() -> None:
    assert next(unfinished(), None) is None


def is_detected() -> bool:
    try:
        for meant, fact, steps in SCENARIOS:
            test_steps_lead_to_intended_membership(meant, fact, steps)
        for name, test in inspect.getmembers(sys.modules[__name__], inspect.isfunction):
            if name.startswith("test_") and not inspect.signature(test).parameters:
                test()
    except AssertionError:
        return True
    return False


@pytest.mark.slow
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_every_mutant_is_detected(mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    mutant.apply(monkeypatch)
    assert is_detected(), f"mutant is not detected: {mutant.name}"


def test_mutants_are_numerous_and_unique() -> None:
    assert len(MUTANTS) >= 8
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS)
