"""Plans for adding, removing, replacing, draining, promoting and demoting nodes, and for rebalancing partitions.

Plans are idempotent: steps that are already done are not in the plan. If a command is interrupted, running it again
plans the remaining steps.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from chronik.planning import replica_moves, voter_selection
from chronik.planning.views import PlannedNode, PlannedPartition, PlanRejectedError, ReplicaMove, join_words
from chronik.wording import pluralize


@dataclass(frozen=True, slots=True)
class ClusterPlan:
    """The steps of a change to the cluster's nodes, in the order of execution."""

    adds: int | None = None
    drains: int | None = None
    undrains: int | None = None
    promotes: tuple[int, ...] = ()
    moves: tuple[ReplicaMove, ...] = ()
    demotes: tuple[int, ...] = ()
    removes: int | None = None

    @property
    def is_empty(self) -> bool:
        """Return whether the plan has no steps."""
        return self == ClusterPlan()


def plan_addition(nodes: Sequence[PlannedNode], node_id: int) -> ClusterPlan:
    """Plan the addition of a node as an observer, and promotions to voters if the cluster has too few."""
    known = {node.id: node for node in nodes}
    after = nodes if node_id in known else [*nodes, PlannedNode(node_id)]
    promotes = voter_selection.find_missing_voters(after)
    return ClusterPlan(adds=None if node_id in known else node_id, promotes=promotes)


def plan_removal(nodes: Sequence[PlannedNode], partitions: Sequence[PlannedPartition], node_id: int) -> ClusterPlan:
    """Plan the removal of a node: drain it, replace it as a voter, move its replicas away and remove it.

    Raises:
        PlanRejectedError: The node is the only one, or a quorum or replicas would be lost.
    """
    node = find_node(nodes, node_id)
    if len(nodes) == 1:
        raise PlanRejectedError(f"node {node_id} is the only node of the cluster")
    others = [each for each in nodes if each.id != node_id]
    promotes: tuple[int, ...] = ()
    demotes: tuple[int, ...] = ()
    if node.should_vote or node.is_voter:
        substitute = voter_selection.find_voter_successor(nodes, node_id) if node.should_vote else None
        promotes = (substitute,) if substitute is not None else ()
        voter_selection.check_quorum_after_leaving(nodes, node_id, promotes)
        after = [replace(each, should_vote=each.should_vote or each.id in promotes) for each in others]
        extra = voter_selection.find_superfluous_voter(after)
        demotes = (extra,) if extra is not None else ()
    return ClusterPlan(
        drains=node_id if not node.is_draining else None,
        promotes=promotes,
        moves=replica_moves.plan_evacuation(nodes, partitions, node_id),
        demotes=demotes,
        removes=node_id,
    )


def plan_replacement(
    nodes: Sequence[PlannedNode], partitions: Sequence[PlannedPartition], old: int, new: PlannedNode
) -> ClusterPlan:
    """Plan the replacement of a node by a new node, which takes over its replicas and its vote.

    Raises:
        PlanRejectedError: The nodes are the same, the new node is drained, or a quorum or replicas would be lost.
    """
    leaving = find_node(nodes, old)
    if new.id == old:
        raise PlanRejectedError(
            f"node {old} cannot replace itself; started on an empty disk, it is refilled automatically"
        )
    known = {node.id: node for node in nodes}
    substitute = known.get(new.id, new)
    if substitute.is_draining:
        raise PlanRejectedError(f"node {new.id} is drained: run chronik cluster undrain {new.id} first")
    after = [*(node for node in nodes if node.id != new.id), replace(substitute, is_online=True)]
    promotes: tuple[int, ...] = ()
    if leaving.should_vote:
        promotes = () if substitute.should_vote else (new.id,)
        voter_selection.check_quorum_after_leaving(after, old, promotes)
    return ClusterPlan(
        adds=None if new.id in known else new.id,
        drains=None if leaving.is_draining else old,
        promotes=promotes,
        moves=replica_moves.plan_takeover(after, partitions, old, new.id),
        removes=old,
    )


def plan_rebalancing(nodes: Sequence[PlannedNode], partitions: Sequence[PlannedPartition]) -> ClusterPlan:
    """Plan replica moves that balance replicas and preferred leaders over the nodes."""
    return ClusterPlan(moves=replica_moves.plan_rebalance_moves(nodes, partitions))


def plan_drain(nodes: Sequence[PlannedNode], node_id: int) -> ClusterPlan:
    """Plan to drain a node, that is, to move the leadership of its partitions to other nodes.

    Raises:
        PlanRejectedError: No other node could lead its partitions.
    """
    node = find_node(nodes, node_id)
    if node.is_draining:
        return ClusterPlan()
    if not any(other.can_receive_replicas for other in nodes if other.id != node_id):
        raise PlanRejectedError(
            f"node {node_id} cannot be drained: every other node is drained or offline and cannot lead"
        )
    return ClusterPlan(drains=node_id)


def plan_undrain(nodes: Sequence[PlannedNode], node_id: int) -> ClusterPlan:
    """Plan to end the draining of a node."""
    return ClusterPlan(undrains=node_id if find_node(nodes, node_id).is_draining else None)


def plan_promotion(nodes: Sequence[PlannedNode], node_id: int) -> ClusterPlan:
    """Plan the promotion of a node to a voter of the metadata log.

    Raises:
        PlanRejectedError: The node has not joined the metadata log, or is offline.
    """
    node = find_node(nodes, node_id)
    if node.should_vote:
        return ClusterPlan()
    if not node.is_member:
        raise PlanRejectedError(f"node {node_id} has not joined the cluster yet: start it before you promote it")
    if not node.is_online:
        raise PlanRejectedError(f"node {node_id} is offline: an absent voter makes it harder to reach a majority")
    return ClusterPlan(promotes=(node_id,))


def plan_demotion(nodes: Sequence[PlannedNode], node_id: int) -> ClusterPlan:
    """Plan the demotion of a voter of the metadata log to an observer.

    Raises:
        PlanRejectedError: The remaining voters could not form a majority.
    """
    node = find_node(nodes, node_id)
    if not node.should_vote:
        return ClusterPlan()
    voter_selection.check_quorum_after_leaving(nodes, node_id)
    return ClusterPlan(demotes=(node_id,))


def find_node(nodes: Sequence[PlannedNode], node_id: int) -> PlannedNode:
    """Return the node with this id.

    Raises:
        PlanRejectedError: The node does not exist.
    """
    for node in nodes:
        if node.id == node_id:
            return node
    known = ", ".join(str(node.id) for node in nodes)
    raise PlanRejectedError(f"there is no node {node_id} in this cluster; its nodes are {known}")


def describe_plan(plan: ClusterPlan) -> list[str]:
    """Return one sentence for each step of the plan, for display."""
    return list(_format_steps(plan))


def _format_steps(plan: ClusterPlan) -> Iterator[str]:
    if plan.adds is not None:
        yield f"add node {plan.adds}: it joins as an observer of the metadata log and can host replicas"
    if plan.drains is not None:
        yield f"drain node {plan.drains}: it gives up leadership where possible and gets no new replicas"
    if plan.undrains is not None:
        yield f"undrain node {plan.undrains}: it can lead partitions and get new replicas again"
    for node in plan.promotes:
        yield f"promote node {node} to a voter"
    if plan.moves:
        yield from _format_moves(plan.moves)
    for node in plan.demotes:
        yield f"demote node {node} to an observer"
    if plan.removes is not None:
        yield f"remove node {plan.removes} from the cluster"


def _format_moves(moves: tuple[ReplicaMove, ...]) -> Iterator[str]:
    copied = [move for move in moves if move.added_replicas]
    if copied:
        targets = sorted(Counter(node for move in copied for node in move.added_replicas).items())
        to = join_words(f"{count} to node {node}" for node, count in targets)
        yield f"copy replicas of {pluralize(len(copied), 'partition')}: {to}{_format_system_topics(copied)}"
    reordered = len(moves) - len(copied)
    if reordered:
        yield f"change the preferred leader of {pluralize(reordered, 'partition')} (copies nothing)"


def _format_system_topics(moves: list[ReplicaMove]) -> str:
    count = sum(move.partition.is_system_partition for move in moves)
    return f" ({count} of them of system topics, which have no records)" if count else ""


def plan_to_json(plan: ClusterPlan) -> dict[str, Any]:
    """Return the plan as a JSON-compatible dict."""
    return {
        "adds": plan.adds,
        "drains": plan.drains,
        "undrains": plan.undrains,
        "promotes": plan.promotes,
        "moves": [
            {
                "topic": move.partition.topic,
                "partition": move.partition.index,
                "replicas": move.partition.replicas,
                "new_replicas": move.replicas,
            }
            for move in plan.moves
        ],
        "demotes": plan.demotes,
        "removes": plan.removes,
    }
