"""From what nodes are meant to be to what they are: in which order, and what is never done on the way."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from itertools import product

import pytest

from chronik.controller.reconciling import VOTERS_KEPT, HandOver, Seen, Step, next_step
from chronik.raft.membership import DemoteVoter, PromoteLearner, RemoveNode

from .mutants import MUTANTS, Mutant
from .scene import INDEX, Scene

STORIES = [
    # what is meant, what is, and what is done about it; node 1 leads
    ("VVV", "VVV", []),
    ("VVVo", "VVVo", []),
    ("VVVV", "VVVo", ["PromoteLearner 4"]),
    ("VVVV", "VVV", []),  # it has to ask first: nobody else knows its disk
    ("VVVo", "VVVV", ["DemoteVoter 4"]),
    ("VVV", "VVVV", ["RemoveNode 4"]),
    ("VVV", "VVVo", ["RemoveNode 4"]),
    ("VoVV", "VVVo", ["PromoteLearner 4", "DemoteVoter 2"]),
    ("V-VV", "VVVo", ["PromoteLearner 4", "RemoveNode 2"]),
    ("V-oV", "VVVo", ["PromoteLearner 4", "RemoveNode 2", "DemoteVoter 3"]),
    ("V--VV", "VVVoo", ["PromoteLearner 4", "PromoteLearner 5", "RemoveNode 2", "RemoveNode 3"]),
    ("VVVVVoo", "VVVoooo", ["PromoteLearner 4", "PromoteLearner 5"]),
    ("VVV", "VVVVVoo", ["RemoveNode 4", "RemoveNode 5", "RemoveNode 6", "RemoveNode 7"]),
    ("oVVV", "VVVo", ["PromoteLearner 4", "HandOver 4", "DemoteVoter 1"]),
    ("-VVV", "VVVo", ["PromoteLearner 4", "HandOver 4", "RemoveNode 1"]),
    ("---VV", "VVVoo", ["PromoteLearner 4", "PromoteLearner 5", "RemoveNode 2", "RemoveNode 3",
     "HandOver 5", "RemoveNode 1"]),
    ("Voo", "VVV", ["DemoteVoter 2", "DemoteVoter 3"]),
    ("V", "VVV", ["RemoveNode 2", "RemoveNode 3"]),
    ("ooo", "VVV", []),  # nothing is known of who is meant to vote
]  # fmt: skip


@pytest.mark.parametrize(("meant", "fact", "steps"), STORIES)
def test_one_step_after_the_other(meant: str, fact: str, steps: list[str]) -> None:
    scene = Scene(meant, fact, leader=1)
    assert scene.run() == steps


def test_a_learner_is_promoted_when_it_is_heard_and_holds_the_membership_that_names_it() -> None:
    scene = Scene("VVVV", "VVVo", leader=1, heard=[1, 2, 3])
    assert scene.run() == []
    scene.heard.add(4)
    scene.behind.add(4)
    assert scene.run() == []
    scene.behind.clear()
    assert scene.run() == ["PromoteLearner 4"]


def test_a_voter_that_has_lost_its_disk_votes_again_and_until_then_nobody_loses_a_vote() -> None:
    scene = Scene("oVVV", "VoVV", leader=3)
    scene.behind.add(2)
    assert scene.run() == []
    scene.behind.clear()
    assert scene.run() == ["PromoteLearner 2", "DemoteVoter 1"]


def test_a_successor_that_is_meant_to_vote_but_is_not_there_costs_no_vote_below_three() -> None:
    scene = Scene("oVVV", "VVV", leader=2, heard=[1, 2, 3])
    assert scene.run() == [], "never down to two"
    assert Scene("oVVVVV", "VVVVV", leader=2, heard=[1, 2, 3, 4, 5]).run() == ["DemoteVoter 1"]


def test_one_that_is_on_its_way_in_is_waited_for() -> None:
    assert Scene("oVVVVV", "VVVVV", leader=2, heard=[1, 2, 3, 4, 5, 6]).run() == []


def test_a_vote_is_taken_only_while_the_rest_can_agree() -> None:
    assert Scene("VVVVo", "VVVVV", leader=1, heard=[1, 2, 5]).run() == []
    assert Scene("VVVVo", "VVVVV", leader=1, heard=[1, 2, 3]).run() == ["DemoteVoter 5"]
    assert Scene("VVo", "VVV", leader=1, heard=[1, 3]).run() == []


def test_the_silent_go_first() -> None:
    assert Scene("VVVoo", "VVVVV", leader=1, heard=[1, 2, 4]).run() == ["DemoteVoter 5", "DemoteVoter 4"]


def test_a_promotion_waits_until_the_voters_could_agree_with_it() -> None:
    assert Scene("VVVVVV", "VVVVoo", leader=1, heard=[1, 5, 6]).run() == []
    assert Scene("VVVVVV", "VVVVoo", leader=1, heard=[1, 2, 5, 6]).run() == ["PromoteLearner 5", "PromoteLearner 6"]


def test_a_leader_that_is_drained_hands_over_and_stays_a_voter() -> None:
    scene = Scene("VVV", "VVV", leader=1, drained=[1])
    assert scene.run() == ["HandOver 3"]
    assert Scene("VVV", "VVV", leader=1, drained=[2]).run() == []
    assert Scene("VVV", "VVV", leader=1, drained=[1, 3]).run() == ["HandOver 2"]
    assert Scene("VVV", "VVV", leader=1, drained=[1, 2, 3]).run() == [], "it has to be somebody"
    assert Scene("VVV", "VVV", leader=1, drained=[1], heard=[1]).run() == []


def test_who_holds_most_of_the_log_leads_next() -> None:
    scene = Scene("VVV", "VVV", leader=1, drained=[1])
    scene.behind.add(3)
    assert scene.run() == ["HandOver 2"]


def test_a_leader_that_is_to_go_is_succeeded_by_a_drained_node_if_there_is_no_other() -> None:
    assert Scene("-VV", "VVV", leader=1, drained=[2, 3]).run() == ["HandOver 3", "RemoveNode 1"]
    assert Scene("-VV", "VVV", leader=1, drained=[3]).run() == ["HandOver 2", "RemoveNode 1"]


def test_a_leader_that_is_to_go_and_has_no_heir_stays() -> None:
    assert Scene("-oVV", "VVVV", leader=1, heard=[1, 2]).run() == []


# All there is, of four nodes


def scenes() -> Iterator[Scene]:
    """What up to four nodes can be meant to be and be, whoever is heard and whoever leads."""
    for meant, fact in product(product("Vo-", repeat=4), repeat=2):
        voters = [node_id for node_id, letter in enumerate(fact, 1) if letter == "V"]
        for leader in voters[:2]:
            for rest in (
                [],
                *([each] for each in range(1, 5)),
                [1, 2, 3, 4],
                *([a, b] for a in (1, 2) for b in (3, 4)),
            ):
                yield Scene("".join(meant), "".join(fact), leader=leader, heard={leader, *rest}, drained=[2])


def fault_of(seen: Seen, step: Step | None) -> str | None:
    """What is wrong with a step, if anything."""
    voters, meant = set(seen.voters), set(seen.meant)
    match step:
        case PromoteLearner(node_id):
            after = voters | {node_id}
            if node_id in voters or node_id not in meant or node_id not in seen.heard:
                return "is given a vote and should not be"
            if seen.matches[node_id] < INDEX:
                return "is given a vote before it has caught up"
        case DemoteVoter(node_id) | RemoveNode(node_id):
            after = voters - {node_id}
            if isinstance(step, RemoveNode) == (node_id in seen.nodes):
                return "is removed instead of demoted, or the other way round"
            if node_id not in voters:
                return None if isinstance(step, RemoveNode) else "has no vote that could be taken"
            if node_id == seen.leader or node_id in meant:
                return "loses its vote and should not"
            if any(other in seen.heard and other not in voters for other in meant):
                return "loses its vote before its successor has one"
            if len(after) < min(VOTERS_KEPT, len(meant)):
                return "leaves too few"
        case HandOver(node_id):
            own = seen.nodes.get(seen.leader)
            if own is not None and own.voter and not own.draining:
                return "takes over from a leader that stays"
            if node_id not in meant & voters & set(seen.heard):
                return "takes over and cannot lead for long"
            if seen.nodes[node_id].draining and own is not None and own.draining and own.voter:
                return "takes over from one who is no more drained than itself"
            return "takes over from itself" if node_id == seen.leader else None
        case None:
            return None
    return None if 2 * len(after & set(seen.heard)) > len(after) else "leaves those who are there without a majority"


def wrong_steps() -> Iterator[str]:
    for scene in scenes():
        seen = scene.seen
        step = next_step(seen)
        fault = fault_of(seen, step)
        if fault is not None:
            yield f"{scene.nodes} {scene.fact} heard {scene.heard}: {step} {fault}"


def unfinished() -> Iterator[str]:
    """If all are there, and one who stays can lead, everybody who has joined becomes what it is meant to be."""
    for meant, fact in product(product("Vo-", repeat=4), product("Vo", repeat=4)):
        voters = [node_id for node_id, letter in enumerate(fact, 1) if letter == "V"]
        if "V" not in meant or not voters:
            continue
        scene = Scene("".join(meant), "".join(fact), leader=voters[0])
        scene.run()
        if scene.fact.ljust(4, "-") != "".join(meant):
            yield f"{''.join(meant)} ends as {scene.fact} after {scene.steps}"


@pytest.mark.slow
def test_no_step_is_wrong() -> None:
    assert next(wrong_steps(), None) is None


def test_all_is_done_in_the_end() -> None:
    assert next(unfinished(), None) is None


def is_noticed() -> bool:
    try:
        for meant, fact, steps in STORIES:
            test_one_step_after_the_other(meant, fact, steps)
        for name, test in inspect.getmembers(sys.modules[__name__], inspect.isfunction):
            if name.startswith("test_") and not inspect.signature(test).parameters:
                test()
    except AssertionError:
        return True
    return False


@pytest.mark.slow
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_every_broken_rule_is_noticed(mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    mutant.apply(monkeypatch)
    assert is_noticed(), f"a leader that {mutant.name} goes unnoticed"


def test_there_are_mutants_of_every_rule() -> None:
    assert len(MUTANTS) >= 8
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS)
