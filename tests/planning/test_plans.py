"""Plans of node changes contain the remaining steps in a safe order, and are idempotent."""

from __future__ import annotations

from dataclasses import replace

import pytest

from chronik.planning.cluster_plans import (
    ClusterPlan,
    plan_addition,
    plan_demotion,
    plan_drain,
    plan_promotion,
    plan_removal,
    plan_replacement,
    plan_undrain,
)
from chronik.planning.views import PlannedNode, PlanRejectedError
from tests.planning.views import after, partition, some_nodes


def nodes_of(count: int, voters: int = 3) -> list[PlannedNode]:
    return [replace(node, is_voter=node.id <= voters, should_vote=node.id <= voters) for node in some_nodes(count)]


PARTITIONS = [partition(1, 2, 3), partition(2, 3, 1, index=1), partition(2, 3, 4, index=2)]


def test_plan_removal_of_voter_promotes_a_successor() -> None:
    plan = plan_removal(nodes_of(4), PARTITIONS, 1)
    assert (plan.drains, plan.promotes, plan.demotes, plan.removes) == (1, (4,), (), 1)
    assert [move.replicas for move in plan.moves] == [(4, 2, 3), (2, 3, 4)]


def test_plan_removal_resumes_after_interruption() -> None:
    nodes = nodes_of(4)
    plan = plan_removal(nodes, PARTITIONS, 1)
    nodes[0] = replace(nodes[0], is_draining=True)
    nodes[3] = replace(nodes[3], should_vote=True)
    partitions = after(PARTITIONS, plan.moves)
    assert plan_removal(nodes, partitions, 1) == ClusterPlan(removes=1)


def test_plan_removal_of_observer_changes_no_voters() -> None:
    nodes = [replace(node, is_online=node.id != 2) for node in nodes_of(5)]
    plan = plan_removal(nodes, [], 5)
    assert (plan.promotes, plan.demotes) == ((), ())


def test_plan_removal_of_one_of_five_voters_leaves_three() -> None:
    plan = plan_removal(nodes_of(5, voters=5), [], 1)
    assert (plan.promotes, plan.demotes) == ((), (5,))


def test_plan_removal_keeps_five_voters_if_an_observer_can_be_promoted() -> None:
    plan = plan_removal(nodes_of(7, voters=5), [], 1)
    assert (plan.promotes, plan.demotes) == ((6,), ())


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        (nodes_of(1, voters=1), "node 1 is the only node of the cluster"),
        (nodes_of(3), "without the vote of node 1 there would be two voters"),
        (nodes_of(3)[1:], "there is no node 1 in this cluster; its nodes are 2, 3"),
    ],
)
def test_plan_removal_is_rejected_with_a_reason(nodes: list[PlannedNode], message: str) -> None:
    with pytest.raises(PlanRejectedError, match=message):
        plan_removal(nodes, [], 1)


def test_plan_replacement_transfers_replicas_and_vote() -> None:
    plan = plan_replacement(nodes_of(4), PARTITIONS, 1, PlannedNode(5))
    assert (plan.adds, plan.drains, plan.promotes, plan.removes) == (5, 1, (5,), 1)
    assert [move.replicas for move in plan.moves] == [(5, 2, 3), (2, 3, 5)]


def test_plan_replacement_works_with_three_nodes() -> None:
    plan = plan_replacement(nodes_of(3), PARTITIONS[:2], 1, PlannedNode(4))
    assert (plan.promotes, [move.replicas for move in plan.moves]) == ((4,), [(4, 2, 3), (2, 3, 4)])


def test_plan_replacement_resumes_after_interruption() -> None:
    plan = plan_replacement(nodes_of(3), PARTITIONS[:2], 1, PlannedNode(4))
    nodes = [*nodes_of(3), PlannedNode(4, should_vote=True)]
    nodes[0] = replace(nodes[0], is_draining=True)
    assert plan_replacement(nodes, after(PARTITIONS[:2], plan.moves), 1, PlannedNode(4)) == ClusterPlan(removes=1)


def test_plan_replacement_rejects_same_or_drained_node() -> None:
    with pytest.raises(PlanRejectedError, match="cannot replace itself"):
        plan_replacement(nodes_of(3), [], 1, PlannedNode(1))
    nodes = [*nodes_of(3), PlannedNode(4, is_draining=True)]
    with pytest.raises(PlanRejectedError, match="undrain 4"):
        plan_replacement(nodes, [], 1, PlannedNode(4))


def test_plan_addition_adds_observer_unless_voters_are_missing() -> None:
    assert plan_addition(nodes_of(3), 4) == ClusterPlan(adds=4)
    assert plan_addition(nodes_of(4), 4) == ClusterPlan()
    assert plan_addition(nodes_of(1, voters=1), 2) == ClusterPlan(adds=2)
    assert plan_addition(nodes_of(2, voters=1), 3) == ClusterPlan(adds=3, promotes=(2, 3))
    assert plan_addition(nodes_of(3, voters=1), 3) == ClusterPlan(promotes=(2, 3))


def test_plan_drain_is_rejected_if_no_other_node_can_lead() -> None:
    nodes = nodes_of(3)
    assert plan_drain(nodes, 1) == ClusterPlan(drains=1)
    nodes[0] = replace(nodes[0], is_draining=True)
    assert plan_drain(nodes, 1) == ClusterPlan()
    assert plan_undrain(nodes, 1) == ClusterPlan(undrains=1)
    assert plan_undrain(nodes, 2) == ClusterPlan()
    nodes[1] = replace(nodes[1], is_online=False)
    with pytest.raises(PlanRejectedError, match="cannot lead"):
        plan_drain(nodes, 3)


def test_plan_promotion_and_demotion_check_voters() -> None:
    nodes = nodes_of(5)
    assert plan_promotion(nodes, 4) == ClusterPlan(promotes=(4,))
    assert plan_promotion(nodes, 3) == ClusterPlan()
    assert plan_demotion(nodes, 4) == ClusterPlan()
    with pytest.raises(PlanRejectedError, match="two voters"):
        plan_demotion(nodes, 3)
    assert plan_demotion(nodes_of(5, voters=4), 3) == ClusterPlan(demotes=(3,))
    for without in (replace(nodes[3], is_online=False), replace(nodes[3], is_member=False)):
        with pytest.raises(PlanRejectedError):
            plan_promotion([*nodes[:3], without], 4)
