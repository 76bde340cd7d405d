"""Replica moves for removing a node, for replacing a node, and for rebalancing."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from chronik.planning.balancer import LeaderBalancer, ReplicaBalancer, ReplicaLayout
from chronik.planning.views import (
    NO_LEADER,
    PlannedNode,
    PlannedPartition,
    PlanRejectedError,
    ReplicaMove,
    format_partitions,
)
from chronik.wording import pluralize


def plan_evacuation(
    nodes: Sequence[PlannedNode], partitions: Sequence[PlannedPartition], leaving: int
) -> tuple[ReplicaMove, ...]:
    """Plan the replica moves that free a node of all replicas and keep rack diversity and balance.

    The new replica takes the position of the old one in the replica list.

    Raises:
        PlanRejectedError: Some replica cannot be moved.
    """
    layout = _build_layout_without(nodes, partitions, leaving)
    _replace_leaving_node(layout, leaving, None)
    ReplicaBalancer(layout, lambda position, node: node not in partitions[position].replicas).balance()
    return layout.moves()


def plan_takeover(
    nodes: Sequence[PlannedNode], partitions: Sequence[PlannedPartition], leaving: int, substitute: int
) -> tuple[ReplicaMove, ...]:
    """Plan the replica moves by which a substitute node takes over the replicas of a leaving node.

    Partitions that the other node already hosts, or whose rack diversity would suffer, move elsewhere.

    Raises:
        PlanRejectedError: Some replica cannot be moved.
    """
    layout = _build_layout_without(nodes, partitions, leaving)
    _replace_leaving_node(layout, leaving, substitute)
    return layout.moves()


def plan_rebalance_moves(
    nodes: Sequence[PlannedNode], partitions: Sequence[PlannedPartition]
) -> tuple[ReplicaMove, ...]:
    """Plan the fewest replica moves that restore rack diversity and balance replicas and preferred leaders.

    Replicas on drained or offline nodes stay, and so do partitions without a leader, because they cannot be copied.
    """
    layout = ReplicaLayout(nodes, partitions)
    takers = set(layout.takers)
    movable = [partition.leader != NO_LEADER for partition in partitions]
    for position in range(len(partitions)):
        if movable[position]:
            _spread_replicas_over_racks(layout, position)
    ReplicaBalancer(layout, lambda position, node: movable[position] and node in takers).balance()
    LeaderBalancer(layout, lambda position: movable[position]).balance()
    return layout.moves()


def plan_placement(
    nodes: Sequence[PlannedNode], partitions: Sequence[PlannedPartition], chosen: Collection[int], factor: int
) -> tuple[ReplicaMove, ...]:
    """Plan the replica moves after which all partitions have `factor` replicas, on the chosen nodes only.

    Replicas that are on chosen nodes stay there unless balance requires a move.

    Raises:
        PlanRejectedError: A chosen node cannot receive replicas, there are too few of them, or a partition has no
            leader from which records could be copied.
    """
    known = {node.id: node for node in nodes}
    for each in sorted(chosen):
        if each not in known:
            raise PlanRejectedError(f"node {each} does not exist")
        if not known[each].can_receive_replicas:
            raise PlanRejectedError(f"node {each} cannot receive replicas: it is offline, fenced or draining")
    if factor < 1 or len(chosen) < factor:
        needed = pluralize(factor, "replica")
        raise PlanRejectedError(
            f"{needed} per partition on {pluralize(len(chosen), 'node')}: choose at least 1 replica and as many nodes"
        )
    offline = [partition for partition in partitions if partition.leader == NO_LEADER]
    if offline:
        raise PlanRejectedError(f"{format_partitions(offline)}: no leader, so the records cannot be copied")
    layout = ReplicaLayout([known[each] for each in sorted(chosen)], partitions)
    for position, partition in enumerate(partitions):
        layout.set_replicas(position, _choose_replicas(layout, partition, factor))
    ReplicaBalancer(layout, lambda position, node: True).balance()
    LeaderBalancer(layout, lambda position: True).balance()
    return layout.moves()


def _choose_replicas(layout: ReplicaLayout, partition: PlannedPartition, factor: int) -> tuple[int, ...]:
    """Return the replicas of a partition on the nodes of the layout: those that it has there, and the best others."""
    kept = [replica for replica in partition.replicas if replica in layout.takers]
    while len(kept) > factor:
        kept.remove(max(kept[1:], key=lambda node: (len(layout.held[node]), node)))
    while len(kept) < factor:
        others = [node for node in layout.takers if node not in kept]
        kept.append(
            min(others, key=lambda node: (layout.count_shared_racks([*kept, node]), len(layout.held[node]), node))
        )
    return tuple(kept)


def _build_layout_without(
    nodes: Sequence[PlannedNode], partitions: Sequence[PlannedPartition], leaving: int
) -> ReplicaLayout:
    """Return the current replica layout, in which the leaving node cannot receive replicas.

    Raises:
        PlanRejectedError: No other node can host a replica, or no in-sync replica is online.
    """
    layout = ReplicaLayout([node for node in nodes if node.id != leaving], partitions)
    affected = [partitions[position] for position in sorted(layout.held[leaving])]
    takers = set(layout.takers)
    unplaceable = [each for each in affected if not takers - set(each.replicas)]
    if unplaceable:
        needed = pluralize(len(unplaceable[0].replicas), "replica")
        raise PlanRejectedError(
            f"{format_partitions(unplaceable)}: no other node can host the replica of node {leaving}"
            f" ({unplaceable[0]} has {needed}, and {pluralize(len(takers), 'other node')} can host replicas)"
        )
    online = {node.id for node in nodes if node.is_online}
    lost = [each for each in affected if not each.is_system_partition and not online & set(each.in_sync)]
    if lost:
        raise PlanRejectedError(
            f"{format_partitions(lost)}: no in-sync replica is online, so the records cannot be copied;"
            " start the nodes that host them, or accept the loss of records with chronik topics elect-leaders --unclean"
        )
    return layout


def _replace_leaving_node(layout: ReplicaLayout, leaving: int, substitute: int | None) -> None:
    """Replace the leaving node in all partitions, preferably by `substitute` if that keeps rack diversity."""
    for position in sorted(layout.held[leaving]):
        recipient = layout.find_best_recipient(position, leaving)
        if recipient is None:
            continue
        if substitute is not None and substitute not in layout.replicas[position] and substitute in layout.takers:
            crowding = layout.count_shared_racks(layout.replace_replica(position, leaving, substitute))
            if crowding <= layout.count_shared_racks(layout.replace_replica(position, leaving, recipient)):
                recipient = substitute
        layout.set_replicas(position, layout.replace_replica(position, leaving, recipient))


def _spread_replicas_over_racks(layout: ReplicaLayout, position: int) -> None:
    """Move replicas of a partition that share a rack to unused racks."""
    while layout.has_avoidable_rack_sharing(position):
        replicas = layout.replicas[position]
        for old in sorted(replicas, key=lambda node: (-len(layout.held[node]), node)):
            recipient = layout.find_best_recipient(position, old)
            if recipient is None:
                return
            changed = layout.replace_replica(position, old, recipient)
            if old in layout.takers and layout.count_shared_racks(changed) < layout.count_shared_racks(replicas):
                layout.set_replicas(position, changed)
                break
        else:
            return
