"""Replica moves for removing a node, for replacing a node, and for rebalancing."""

from __future__ import annotations

from collections.abc import Sequence

from chronik.planning.evening import EveningOfLeaders, EveningOfReplicas
from chronik.planning.layout import Layout
from chronik.planning.views import NO_LEADER, Move, NodeView, PartitionView, Refused, named
from chronik.wording import counted


def leave(nodes: Sequence[NodeView], partitions: Sequence[PartitionView], leaving: int) -> tuple[Move, ...]:
    """Plan to move all replicas off a node, preserving rack diversity and balancing the other nodes.

    The new replica takes the position of the old one in the replica list.

    Raises:
        PlanRejectedError: Some replica cannot be moved.
    """
    layout = _layout_without(nodes, partitions, leaving)
    _replace_node(layout, leaving, None)
    EveningOfReplicas(layout, lambda position, node: node not in partitions[position].replicas).run()
    return layout.moves()


def take_over(
    nodes: Sequence[NodeView], partitions: Sequence[PartitionView], leaving: int, substitute: int
) -> tuple[Move, ...]:
    """Plan to move all replicas of a node to another node.

    Partitions that the other node already hosts, or whose rack diversity would suffer, move elsewhere.

    Raises:
        PlanRejectedError: Some replica cannot be moved.
    """
    layout = _layout_without(nodes, partitions, leaving)
    _replace_node(layout, leaving, substitute)
    return layout.moves()


def rebalance(nodes: Sequence[NodeView], partitions: Sequence[PartitionView]) -> tuple[Move, ...]:
    """Plan the fewest moves that restore rack diversity and balance replicas and preferred leaders.

    Replicas on drained or offline nodes stay, and so do partitions without a leader, because they cannot be copied.
    """
    layout = Layout(nodes, partitions)
    takers = set(layout.takers)
    movable = [partition.leader != NO_LEADER for partition in partitions]
    for position in range(len(partitions)):
        if movable[position]:
            _spread_over_racks(layout, position)
    EveningOfReplicas(layout, lambda position, node: movable[position] and node in takers).run()
    EveningOfLeaders(layout, lambda position: movable[position]).run()
    return layout.moves()


def _layout_without(nodes: Sequence[NodeView], partitions: Sequence[PartitionView], leaving: int) -> Layout:
    """Return the layout without the leaving node.

    Raises:
        PlanRejectedError: No other node can host a replica, or no in-sync replica is online.
    """
    layout = Layout([node for node in nodes if node.id != leaving], partitions)
    affected = [partitions[position] for position in sorted(layout.held[leaving])]
    takers = set(layout.takers)
    unplaceable = [each for each in affected if not takers - set(each.replicas)]
    if unplaceable:
        needed = counted(len(unplaceable[0].replicas), "replica")
        raise Refused(
            f"{named(unplaceable)}: no other node can host the replica of node {leaving}"
            f" ({unplaceable[0]} has {needed}, and {counted(len(takers), 'other node')} can host replicas)"
        )
    online = {node.id for node in nodes if node.is_online}
    lost = [each for each in affected if not each.lives_in_metadata and not online & set(each.in_sync)]
    if lost:
        raise Refused(
            f"{named(lost)}: no in-sync replica is online, so the records cannot be copied;"
            " start the nodes that host them, or accept the loss of records with chronik topics elect-leaders --unclean"
        )
    return layout


def _replace_node(layout: Layout, leaving: int, substitute: int | None) -> None:
    """Replace the leaving node in all partitions, by `substitute` if it is given and racks allow it."""
    for position in sorted(layout.held[leaving]):
        recipient = layout.best_taker(position, leaving)
        if recipient is None:
            continue
        if substitute is not None and substitute not in layout.replicas[position] and substitute in layout.takers:
            crowding = layout.crowding(layout.exchanged(position, leaving, substitute))
            if crowding <= layout.crowding(layout.exchanged(position, leaving, recipient)):
                recipient = substitute
        layout.change(position, layout.exchanged(position, leaving, recipient))


def _spread_over_racks(layout: Layout, position: int) -> None:
    """Move replicas that share a rack to other racks, those on the fullest nodes first."""
    while layout.is_crowded(position):
        replicas = layout.replicas[position]
        for old in sorted(replicas, key=lambda node: (-len(layout.held[node]), node)):
            recipient = layout.best_taker(position, old)
            if recipient is None:
                return
            changed = layout.exchanged(position, old, recipient)
            if old in layout.takers and layout.crowding(changed) < layout.crowding(replicas):
                layout.change(position, changed)
                break
        else:
            return
