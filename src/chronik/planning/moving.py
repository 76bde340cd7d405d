"""Which partitions move when a node leaves, when one takes another's place, and when nodes are to be even again."""

from __future__ import annotations

from collections.abc import Sequence

from chronik.planning.evening import EveningOfLeaders, EveningOfReplicas
from chronik.planning.layout import Layout
from chronik.planning.views import NO_LEADER, Move, NodeView, PartitionView, Refused, named
from chronik.wording import counted


def leave(nodes: Sequence[NodeView], partitions: Sequence[PartitionView], leaving: int) -> tuple[Move, ...]:
    """Plans to move everything off a node. Whoever takes its place in a partition takes it in the order, too; racks are
    kept, and the others share evenly. Raises Refused."""
    layout = _layout_without(nodes, partitions, leaving)
    _fill(layout, leaving, None)
    EveningOfReplicas(layout, lambda place, node: node not in partitions[place].replicas).run()
    return layout.moves()


def take_over(
    nodes: Sequence[NodeView], partitions: Sequence[PartitionView], leaving: int, heir: int
) -> tuple[Move, ...]:
    """Plans to move everything from one node to another, but for partitions that the other holds already, or would hold
    in a rack beside another replica. Raises Refused."""
    layout = _layout_without(nodes, partitions, leaving)
    _fill(layout, leaving, heir)
    return layout.moves()


def rebalance(nodes: Sequence[NodeView], partitions: Sequence[PartitionView]) -> tuple[Move, ...]:
    """Plans the fewest moves after which no two replicas of a partition share a rack while there are enough racks, and
    nodes are even in replicas and preferred leaders. What is on nodes that are drained or away stays there, and so
    do partitions without a leader: nobody could copy them."""
    layout = Layout(nodes, partitions)
    takers = set(layout.takers)
    movable = [partition.leader != NO_LEADER for partition in partitions]
    for place in range(len(partitions)):
        if movable[place]:
            _spread_over_racks(layout, place)
    EveningOfReplicas(layout, lambda place, node: movable[place] and node in takers).run()
    EveningOfLeaders(layout, lambda place: movable[place]).run()
    return layout.moves()


def _layout_without(nodes: Sequence[NodeView], partitions: Sequence[PartitionView], leaving: int) -> Layout:
    """Raises Refused when not everything could be moved away from there."""
    layout = Layout([node for node in nodes if node.id != leaving], partitions)
    concerned = [partitions[place] for place in sorted(layout.held[leaving])]
    takers = set(layout.takers)
    homeless = [each for each in concerned if not takers - set(each.replicas)]
    if homeless:
        needed = counted(len(homeless[0].replicas), "replica")
        raise Refused(
            f"{named(homeless)}: no node is left that could take the replica of node {leaving}"
            f" ({homeless[0]} has {needed}, and {counted(len(takers), 'other node')} can take some)"
        )
    online = {node.id for node in nodes if node.is_online}
    lost = [each for each in concerned if not each.lives_in_metadata and not online & set(each.in_sync)]
    if lost:
        raise Refused(
            f"{named(lost)}: no replica that has everything is online, so nothing can be copied from there;"
            " start the nodes that hold it, or give up what is lost with chronik topics elect-leaders --unclean"
        )
    return layout


def _fill(layout: Layout, leaving: int, heir: int | None) -> None:
    """Gives the places of the node that leaves to others: to `heir`, if there is one and racks allow it."""
    for place in sorted(layout.held[leaving]):
        taker = layout.best_taker(place, leaving)
        if taker is None:
            continue
        if heir is not None and heir not in layout.replicas[place] and heir in layout.takers:
            crowding = layout.crowding(layout.exchanged(place, leaving, heir))
            if crowding <= layout.crowding(layout.exchanged(place, leaving, taker)):
                taker = heir
        layout.change(place, layout.exchanged(place, leaving, taker))


def _spread_over_racks(layout: Layout, place: int) -> None:
    """Moves replicas that share a rack to racks that have none, those of the fullest nodes first."""
    while layout.is_crowded(place):
        replicas = layout.replicas[place]
        for old in sorted(replicas, key=lambda node: (-len(layout.held[node]), node)):
            taker = layout.best_taker(place, old)
            if taker is None:
                return
            changed = layout.exchanged(place, old, taker)
            if old in layout.takers and layout.crowding(changed) < layout.crowding(replicas):
                layout.change(place, changed)
                break
        else:
            return
