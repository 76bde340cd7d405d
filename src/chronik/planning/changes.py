"""Plans for operators: what is done, in which order, when a node comes, leaves, is drained, or gets or loses a vote.

Steps can be taken again: what is done already is not in the plan. So a command that was stopped is run again, and the
plan that it makes then is the rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from chronik.planning import moving, voting
from chronik.planning.views import Move, NodeView, PartitionView, Refused


@dataclass(frozen=True, slots=True)
class Plan:
    """Steps, in the order in which they are taken."""

    adds: int | None = None
    drains: int | None = None
    undrains: int | None = None
    promotes: tuple[int, ...] = ()
    moves: tuple[Move, ...] = ()
    demotes: tuple[int, ...] = ()
    removes: int | None = None

    @property
    def is_empty(self) -> bool:
        return self == Plan()


def plan_addition(nodes: Sequence[NodeView], node_id: int) -> Plan:
    """The new node is an observer, unless fewer than three vote and it makes three nodes."""
    known = {node.id: node for node in nodes}
    after = nodes if node_id in known else [*nodes, NodeView(node_id)]
    promotes = voting.lacking_votes(after)
    return Plan(adds=None if node_id in known else node_id, promotes=promotes)


def plan_removal(nodes: Sequence[NodeView], partitions: Sequence[PartitionView], node_id: int) -> Plan:
    """Raises Refused."""
    node = find(nodes, node_id)
    if len(nodes) == 1:
        raise Refused(f"node {node_id} is the only one")
    others = [each for each in nodes if each.id != node_id]
    promotes: tuple[int, ...] = ()
    demotes: tuple[int, ...] = ()
    if node.meant_to_vote or node.is_voter:
        heir = voting.successor(nodes, node_id) if node.meant_to_vote else None
        promotes = (heir,) if heir is not None else ()
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
    """The new node gets the place of the old one in partitions, and its vote. Raises Refused."""
    leaving = find(nodes, old)
    if new.id == old:
        raise Refused(f"node {old} cannot replace itself; on a new disk it refills by itself")
    known = {node.id: node for node in nodes}
    heir = known.get(new.id, new)
    if heir.is_draining:
        raise Refused(f"node {new.id} is drained: chronik cluster undrain {new.id}")
    after = [*(node for node in nodes if node.id != new.id), replace(heir, is_online=True)]
    promotes: tuple[int, ...] = ()
    if leaving.meant_to_vote:
        promotes = () if heir.meant_to_vote else (new.id,)
        voting.check_quorum_without(after, old, promotes)
    return Plan(
        adds=None if new.id in known else new.id,
        drains=None if leaving.is_draining else old,
        promotes=promotes,
        moves=moving.take_over(after, partitions, old, new.id),
        removes=old,
    )


def plan_rebalancing(nodes: Sequence[NodeView], partitions: Sequence[PartitionView]) -> Plan:
    return Plan(moves=moving.rebalance(nodes, partitions))


def plan_drain(nodes: Sequence[NodeView], node_id: int) -> Plan:
    """Raises Refused when nobody would be left to lead."""
    node = find(nodes, node_id)
    if node.is_draining:
        return Plan()
    if not any(other.takes_replicas for other in nodes if other.id != node_id):
        raise Refused(f"node {node_id} cannot be drained: every other node is drained or away, and nobody could lead")
    return Plan(drains=node_id)


def plan_undrain(nodes: Sequence[NodeView], node_id: int) -> Plan:
    """Raises Refused."""
    return Plan(undrains=node_id if find(nodes, node_id).is_draining else None)


def plan_promotion(nodes: Sequence[NodeView], node_id: int) -> Plan:
    """Raises Refused."""
    node = find(nodes, node_id)
    if node.meant_to_vote:
        return Plan()
    if not node.is_member:
        raise Refused(f"node {node_id} is no member yet: it has to be let in before it can vote")
    if not node.is_online:
        raise Refused(f"node {node_id} is away: a vote that nobody casts makes a majority harder to find")
    return Plan(promotes=(node_id,))


def plan_demotion(nodes: Sequence[NodeView], node_id: int) -> Plan:
    """Raises Refused."""
    node = find(nodes, node_id)
    if not node.meant_to_vote:
        return Plan()
    voting.check_quorum_without(nodes, node_id)
    return Plan(demotes=(node_id,))


def find(nodes: Sequence[NodeView], node_id: int) -> NodeView:
    """Raises Refused."""
    for node in nodes:
        if node.id == node_id:
            return node
    known = ", ".join(str(node.id) for node in nodes)
    raise Refused(f"there is no node {node_id} in this cluster; its nodes are {known}")
