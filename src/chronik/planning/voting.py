"""Who should vote: three or five, spread over racks, so that a rack may fail and a majority is left."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

from chronik.planning.views import NodeView, Refused, enumerated
from chronik.wording import counted

VOTERS_USUAL: Final = 3
"""The fewest of which one may fail."""


def has_majority(some: int, of: int) -> bool:
    return 2 * some > of


def choose_voters(nodes: Iterable[NodeView], count: int) -> tuple[int, ...]:
    """Returns who should vote if so many do: as many racks as possible, and those that vote already before others."""
    left = [node for node in nodes if node.is_member and node.takes_replicas]
    chosen: list[NodeView] = []
    while left and len(chosen) < count:
        in_rack = Counter(node.rack for node in chosen)
        best = min(left, key=lambda node: (in_rack[node.rack], not node.meant_to_vote, node.id))
        left.remove(best)
        chosen.append(best)
    return tuple(sorted(node.id for node in chosen))


def successor(nodes: Sequence[NodeView], leaving: int) -> int | None:
    """Returns who should vote instead of a node: an observer in the rack with the fewest other voters. None when there
    is none, or when the others are three or five already, as they are once the successor was promoted."""
    staying = [node for node in nodes if node.meant_to_vote and node.id != leaving]
    if len(staying) >= VOTERS_USUAL and len(staying) % 2:
        return None
    in_rack = Counter(node.rack for node in staying)
    observers = [
        node
        for node in nodes
        if node.is_member and node.takes_replicas and not node.meant_to_vote and node.id != leaving
    ]
    best = min(observers, key=lambda node: (in_rack[node.rack], node.id), default=None)
    return best.id if best is not None else None


def superfluous_voter(nodes: Sequence[NodeView]) -> int | None:
    """Returns who should stop to vote when four do: four can lose no more nodes than three. It is one that is away, or
    in the rack with the most voters."""
    voters = [node for node in nodes if node.meant_to_vote]
    if len(voters) != VOTERS_USUAL + 1:
        return None
    in_rack = Counter(node.rack for node in voters)
    return max(voters, key=lambda node: (not node.takes_replicas, in_rack[node.rack], node.id)).id


def lacking_votes(nodes: Sequence[NodeView]) -> tuple[int, ...]:
    """Returns who should get a vote because fewer than three vote although there are three nodes."""
    voting = [node.id for node in nodes if node.meant_to_vote]
    if len(voting) >= VOTERS_USUAL or sum(node.is_member for node in nodes) < VOTERS_USUAL:
        return ()
    new = [node for node in choose_voters(nodes, VOTERS_USUAL) if node not in voting]
    return tuple(new[: VOTERS_USUAL - len(voting)])


def check_quorum_without(nodes: Sequence[NodeView], leaving: int, joining: Iterable[int] = ()) -> None:
    """Raises Refused when without the vote of `leaving`, and with those of `joining`, there would be no majority, or
    when two would be left of three: of two none may fail."""
    joined = set(joining)
    voters = [node for node in nodes if node.id != leaving and (node.meant_to_vote or node.id in joined)]
    had = sum(node.meant_to_vote for node in nodes)
    online = [node for node in voters if node.is_online]
    if not voters:
        raise Refused(f"node {leaving} is the only one that votes")
    if not has_majority(len(online), len(voters)):
        away = [node.id for node in voters if not node.is_online]
        raise Refused(
            f"without the vote of node {leaving} there would be no majority:"
            f" of the {counted(len(voters), 'voter')} left, {_nodes(away)} away"
        )
    if had >= VOTERS_USUAL > len(voters):
        raise Refused(
            f"without the vote of node {leaving} two would vote, and none of them could fail:"
            " add a node first, which can take its vote"
        )


def _nodes(ids: Sequence[int]) -> str:
    return f"node {ids[0]} is" if len(ids) == 1 else f"nodes {enumerated(ids)} are"
