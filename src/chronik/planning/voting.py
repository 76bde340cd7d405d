"""The choice of voters: three or five, spread over racks, so that a majority survives the failure of a rack."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

from chronik.planning.views import NodeView, Refused, enumerated
from chronik.wording import counted

VOTERS_USUAL: Final = 3
"""The usual number of voters: the smallest that tolerates one failure."""


def has_majority(some: int, of: int) -> bool:
    """Return whether `some` of `of` voters are a majority."""
    return 2 * some > of


def choose_voters(nodes: Iterable[NodeView], count: int) -> tuple[int, ...]:
    """Return the best voters: spread over as many racks as possible, current voters first."""
    left = [node for node in nodes if node.is_member and node.takes_replicas]
    chosen: list[NodeView] = []
    while left and len(chosen) < count:
        in_rack = Counter(node.rack for node in chosen)
        best = min(left, key=lambda node: (in_rack[node.rack], not node.meant_to_vote, node.id))
        left.remove(best)
        chosen.append(best)
    return tuple(sorted(node.id for node in chosen))


def successor(nodes: Sequence[NodeView], leaving: int) -> int | None:
    """Return the observer that should become a voter instead of the leaving node, or None.

    Prefers the rack with the fewest voters. Returns None if there is no observer, or if the others are already three or
    five voters, which is the case once a successor has been promoted.
    """
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
    """Return the voter to demote if there are four, or None: four tolerate no more failures than three.

    Prefers a voter that is offline, then one in the rack with the most voters.
    """
    voters = [node for node in nodes if node.meant_to_vote]
    if len(voters) != VOTERS_USUAL + 1:
        return None
    in_rack = Counter(node.rack for node in voters)
    return max(voters, key=lambda node: (not node.takes_replicas, in_rack[node.rack], node.id)).id


def lacking_votes(nodes: Sequence[NodeView]) -> tuple[int, ...]:
    """Return the nodes to promote if there are fewer than three voters although there are three nodes."""
    voting = [node.id for node in nodes if node.meant_to_vote]
    if len(voting) >= VOTERS_USUAL or sum(node.is_member for node in nodes) < VOTERS_USUAL:
        return ()
    new = [node for node in choose_voters(nodes, VOTERS_USUAL) if node not in voting]
    return tuple(new[: VOTERS_USUAL - len(voting)])


def check_quorum_without(nodes: Sequence[NodeView], leaving: int, joining: Iterable[int] = ()) -> None:
    """Check that the voters can form a majority without `leaving` and with `joining`.

    Raises:
        PlanRejectedError: They cannot, or only two of three voters would be left, which tolerate no failure.
    """
    joined = set(joining)
    voters = [node for node in nodes if node.id != leaving and (node.meant_to_vote or node.id in joined)]
    voters_before = sum(node.meant_to_vote for node in nodes)
    online = [node for node in voters if node.is_online]
    if not voters:
        raise Refused(f"node {leaving} is the only voter")
    if not has_majority(len(online), len(voters)):
        offline = [node.id for node in voters if not node.is_online]
        raise Refused(
            f"without the vote of node {leaving} there would be no majority:"
            f" of the {counted(len(voters), 'voter')} left, {_nodes(offline)} offline"
        )
    if voters_before >= VOTERS_USUAL > len(voters):
        raise Refused(
            f"without the vote of node {leaving} there would be two voters, which tolerate no failure:"
            " add a node first, which can take over the vote"
        )


def _nodes(ids: Sequence[int]) -> str:
    return f"node {ids[0]} is" if len(ids) == 1 else f"nodes {enumerated(ids)} are"
