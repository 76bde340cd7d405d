"""Plans for adding, removing, replacing, draining, promoting and demoting nodes, and for rebalancing partitions.

Plans are idempotent: steps that are already done are not in the plan. If a command is interrupted, running it again
plans the remaining steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from chronik.planning import moving, voting
from chronik.planning.views import Move, NodeView, PartitionView, Refused


@dataclass(frozen=True, slots=True)
class Plan:
    """The steps of a cluster change, in the order of execution."""

    adds: int | None = None
    drains: int | None = None
    undrains: int | None = None
    promotes: tuple[int, ...] = ()
    moves: tuple[Move, ...] = ()
    demotes: tuple[int, ...] = ()
    removes: int | None = None

    @property
    def is_empty(self) -> bool:
        """Return whether there is nothing to do."""
        return self == Plan()


def plan_addition(nodes: Sequence[NodeView], node_id: int) -> Plan:
    """Plan the addition of a node: as an observer, unless it completes the usual three voters."""
    known = {node.id: node for node in nodes}
    after = nodes if node_id in known else [*nodes, NodeView(node_id)]
    promotes = voting.lacking_votes(after)
    return Plan(adds=None if node_id in known else node_id, promotes=promotes)


def plan_removal(nodes: Sequence[NodeView], partitions: Sequence[PartitionView], node_id: int) -> Plan:
    """Plan the removal of a node: drain it, replace its vote, move its replicas and remove it.

    Raises:
        PlanRejectedError: The node is the only one, or a quorum or replicas would be lost.
    """
    node = find(nodes, node_id)
    if len(nodes) == 1:
        raise Refused(f"node {node_id} is the only node of the cluster")
    others = [each for each in nodes if each.id != node_id]
    promotes: tuple[int, ...] = ()
    demotes: tuple[int, ...] = ()
    if node.meant_to_vote or node.is_voter:
        substitute = voting.successor(nodes, node_id) if node.meant_to_vote else None
        promotes = (substitute,) if substitute is not None else ()
        voting.check_quorum_without(nodes, node_id, promotes)
        after = [replace(each, meant_to_vote=each.meant_to_vote or each.id in promotes) for each in others]
        extra = voting.superfluous_voter(after)
        demotes = (extra,) if extra is not None else ()
    return Plan(
        drains=node_id if not node.is_draining else None,
        promotes=promotes,
        moves=moving.leave(nodes, partitions, node_id),
        demotes=demotes,
        removes=node_id,
    )


def plan_replacement(nodes: Sequence[NodeView], partitions: Sequence[PartitionView], old: int, new: NodeView) -> Plan:
    """Plan the replacement of a node: the new node takes over its replicas and its vote.

    Raises:
        PlanRejectedError: The nodes are the same, the new node is drained, or a quorum or replicas would be lost.
    """
    leaving = find(nodes, old)
    if new.id == old:
        raise Refused(f"node {old} cannot replace itself; started on an empty disk, it is refilled automatically")
    known = {node.id: node for node in nodes}
    substitute = known.get(new.id, new)
    if substitute.is_draining:
        raise Refused(f"node {new.id} is drained: run chronik cluster undrain {new.id} first")
    after = [*(node for node in nodes if node.id != new.id), replace(substitute, is_online=True)]
    promotes: tuple[int, ...] = ()
    if leaving.meant_to_vote:
        promotes = () if substitute.meant_to_vote else (new.id,)
        voting.check_quorum_without(after, old, promotes)
    return Plan(
        adds=None if new.id in known else new.id,
        drains=None if leaving.is_draining else old,
        promotes=promotes,
        moves=moving.take_over(after, partitions, old, new.id),
        removes=old,
    )


def plan_rebalancing(nodes: Sequence[NodeView], partitions: Sequence[PartitionView]) -> Plan:
    """Plan the moves that balance replicas and preferred leaders over the nodes."""
    return Plan(moves=moving.rebalance(nodes, partitions))


def plan_drain(nodes: Sequence[NodeView], node_id: int) -> Plan:
    """Plan the draining of a node.

    Raises:
        PlanRejectedError: No other node could lead its partitions.
    """
    node = find(nodes, node_id)
    if node.is_draining:
        return Plan()
    if not any(other.takes_replicas for other in nodes if other.id != node_id):
        raise Refused(f"node {node_id} cannot be drained: every other node is drained or offline and cannot lead")
    return Plan(drains=node_id)


def plan_undrain(nodes: Sequence[NodeView], node_id: int) -> Plan:
    """Plan the end of draining a node."""
    return Plan(undrains=node_id if find(nodes, node_id).is_draining else None)


def plan_promotion(nodes: Sequence[NodeView], node_id: int) -> Plan:
    """Plan the promotion of a node to a voter.

    Raises:
        PlanRejectedError: The node has not joined the metadata log, or is offline.
    """
    node = find(nodes, node_id)
    if node.meant_to_vote:
        return Plan()
    if not node.is_member:
        raise Refused(f"node {node_id} has not joined the cluster yet: start it before you promote it")
    if not node.is_online:
        raise Refused(f"node {node_id} is offline: an absent voter makes it harder to reach a majority")
    return Plan(promotes=(node_id,))


def plan_demotion(nodes: Sequence[NodeView], node_id: int) -> Plan:
    """Plan the demotion of a voter to an observer.

    Raises:
        PlanRejectedError: The remaining voters could not form a majority.
    """
    node = find(nodes, node_id)
    if not node.meant_to_vote:
        return Plan()
    voting.check_quorum_without(nodes, node_id)
    return Plan(demotes=(node_id,))


def find(nodes: Sequence[NodeView], node_id: int) -> NodeView:
    """Return the node with this id.

    Raises:
        PlanRejectedError: The node does not exist.
    """
    for node in nodes:
        if node.id == node_id:
            return node
    known = ", ".join(str(node.id) for node in nodes)
    raise Refused(f"there is no node {node_id} in this cluster; its nodes are {known}")
