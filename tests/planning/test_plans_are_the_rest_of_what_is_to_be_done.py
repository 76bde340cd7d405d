"""A plan has what is not done yet, in an order in which nothing is lost on the way; run again, it is the rest."""

from __future__ import annotations

from dataclasses import replace

import pytest

from chronik.planning.changes import (
    Plan,
    plan_addition,
    plan_demotion,
    plan_drain,
    plan_promotion,
    plan_removal,
    plan_replacement,
    plan_undrain,
)
from chronik.planning.views import NodeView, Refused
from tests.planning.views import after, partition, some_nodes


def nodes_of(count: int, voters: int = 3) -> list[NodeView]:
    return [replace(node, is_voter=node.id <= voters, meant_to_vote=node.id <= voters) for node in some_nodes(count)]


PARTITIONS = [partition(1, 2, 3), partition(2, 3, 1, index=1), partition(2, 3, 4, index=2)]


def test_a_voter_that_is_removed_has_a_successor() -> None:
    plan = plan_removal(nodes_of(4), PARTITIONS, 1)
    assert (plan.drains, plan.promotes, plan.demotes, plan.removes) == (1, (4,), (), 1)
    assert [move.replicas for move in plan.moves] == [(4, 2, 3), (2, 3, 4)]


def test_a_removal_that_was_stopped_goes_on_where_it_was() -> None:
    nodes = nodes_of(4)
    plan = plan_removal(nodes, PARTITIONS, 1)
    nodes[0] = replace(nodes[0], is_draining=True)
    nodes[3] = replace(nodes[3], meant_to_vote=True)
    partitions = after(PARTITIONS, plan.moves)
    assert plan_removal(nodes, partitions, 1) == Plan(removes=1)


def test_an_observer_is_removed_without_a_word_about_votes() -> None:
    nodes = [replace(node, is_online=node.id != 2) for node in nodes_of(5)]
    plan = plan_removal(nodes, [], 5)
    assert (plan.promotes, plan.demotes) == ((), ())


def test_of_five_voters_without_an_observer_three_are_left() -> None:
    plan = plan_removal(nodes_of(5, voters=5), [], 1)
    assert (plan.promotes, plan.demotes) == ((), (5,))


def test_of_seven_nodes_five_vote_before_and_after() -> None:
    plan = plan_removal(nodes_of(7, voters=5), [], 1)
    assert (plan.promotes, plan.demotes) == ((6,), ())


@pytest.mark.parametrize(
    ("nodes", "told"),
    [
        (nodes_of(1, voters=1), "node 1 is the only one"),
        (nodes_of(3), "without the vote of node 1 two would vote"),
        (nodes_of(3)[1:], "there is no node 1 in this cluster; its nodes are 2, 3"),
    ],
)
def test_a_removal_is_refused_with_a_sentence(nodes: list[NodeView], told: str) -> None:
    with pytest.raises(Refused, match=told):
        plan_removal(nodes, [], 1)


def test_a_node_takes_the_place_and_the_vote_of_another() -> None:
    plan = plan_replacement(nodes_of(4), PARTITIONS, 1, NodeView(5))
    assert (plan.adds, plan.drains, plan.promotes, plan.removes) == (5, 1, (5,), 1)
    assert [move.replicas for move in plan.moves] == [(5, 2, 3), (2, 3, 5)]


def test_three_nodes_are_enough_to_replace_one() -> None:
    plan = plan_replacement(nodes_of(3), PARTITIONS[:2], 1, NodeView(4))
    assert (plan.promotes, [move.replicas for move in plan.moves]) == ((4,), [(4, 2, 3), (2, 3, 4)])


def test_a_replacement_that_was_stopped_goes_on_where_it_was() -> None:
    plan = plan_replacement(nodes_of(3), PARTITIONS[:2], 1, NodeView(4))
    nodes = [*nodes_of(3), NodeView(4, meant_to_vote=True)]
    nodes[0] = replace(nodes[0], is_draining=True)
    assert plan_replacement(nodes, after(PARTITIONS[:2], plan.moves), 1, NodeView(4)) == Plan(removes=1)


def test_a_node_does_not_replace_itself_nor_does_a_drained_one_another() -> None:
    with pytest.raises(Refused, match="cannot replace itself"):
        plan_replacement(nodes_of(3), [], 1, NodeView(1))
    nodes = [*nodes_of(3), NodeView(4, is_draining=True)]
    with pytest.raises(Refused, match="undrain 4"):
        plan_replacement(nodes, [], 1, NodeView(4))


def test_a_new_node_observes_unless_votes_are_lacking() -> None:
    assert plan_addition(nodes_of(3), 4) == Plan(adds=4)
    assert plan_addition(nodes_of(4), 4) == Plan()
    assert plan_addition(nodes_of(1, voters=1), 2) == Plan(adds=2)
    assert plan_addition(nodes_of(2, voters=1), 3) == Plan(adds=3, promotes=(2, 3))
    assert plan_addition(nodes_of(3, voters=1), 3) == Plan(promotes=(2, 3))


def test_somebody_is_left_to_lead() -> None:
    nodes = nodes_of(3)
    assert plan_drain(nodes, 1) == Plan(drains=1)
    nodes[0] = replace(nodes[0], is_draining=True)
    assert plan_drain(nodes, 1) == Plan()
    assert plan_undrain(nodes, 1) == Plan(undrains=1)
    assert plan_undrain(nodes, 2) == Plan()
    nodes[1] = replace(nodes[1], is_online=False)
    with pytest.raises(Refused, match="nobody could lead"):
        plan_drain(nodes, 3)


def test_votes_are_given_and_taken() -> None:
    nodes = nodes_of(5)
    assert plan_promotion(nodes, 4) == Plan(promotes=(4,))
    assert plan_promotion(nodes, 3) == Plan()
    assert plan_demotion(nodes, 4) == Plan()
    with pytest.raises(Refused, match="two would vote"):
        plan_demotion(nodes, 3)
    assert plan_demotion(nodes_of(5, voters=4), 3) == Plan(demotes=(3,))
    for without in (replace(nodes[3], is_online=False), replace(nodes[3], is_member=False)):
        with pytest.raises(Refused):
            plan_promotion([*nodes[:3], without], 4)
