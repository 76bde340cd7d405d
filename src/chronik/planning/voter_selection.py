"""The choice of voters: three or five, spread over racks, so that a majority survives the failure of a rack."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

from chronik.planning.views import PlannedNode, PlanRejectedError, join_words
from chronik.wording import pluralize

USUAL_VOTER_COUNT: Final = 3
"""The usual number of voters, the smallest number that tolerates the failure of one voter."""


def is_majority(some: int, of: int) -> bool:
    """Return whether `some` voters out of `of` are a majority."""
    return 2 * some > of


def choose_voters(nodes: Iterable[PlannedNode], count: int) -> tuple[int, ...]:
    """Choose the best voters of the metadata log: spread over racks, current voters first."""
    left = [node for node in nodes if node.is_member and node.can_receive_replicas]
    chosen: list[PlannedNode] = []
    while left and len(chosen) < count:
        in_rack = Counter(node.rack for node in chosen)
        best = min(left, key=lambda node: (in_rack[node.rack], not node.should_vote, node.id))
        left.remove(best)
        chosen.append(best)
    return tuple(sorted(node.id for node in chosen))


def find_voter_successor(nodes: Sequence[PlannedNode], leaving: int) -> int | None:
    """Return the best observer to promote in place of a leaving voter, or None if there is none.

    Prefers the rack with the fewest voters. Returns None if there is no observer, or if the others are already three or
    five voters, which is the case once a successor has been promoted.
    """
    staying = [node for node in nodes if node.should_vote and node.id != leaving]
    if len(staying) >= USUAL_VOTER_COUNT and len(staying) % 2:
        return None
    in_rack = Counter(node.rack for node in staying)
    observers = [
        node
        for node in nodes
        if node.is_member and node.can_receive_replicas and not node.should_vote and node.id != leaving
    ]
    best = min(observers, key=lambda node: (in_rack[node.rack], node.id), default=None)
    return best.id if best is not None else None


def find_superfluous_voter(nodes: Sequence[PlannedNode]) -> int | None:
    """Return the voter to demote if there are four voters, which tolerate no more failures than three, or None.

    Prefers a voter that is offline, then one in the rack with the most voters.
    """
    voters = [node for node in nodes if node.should_vote]
    if len(voters) != USUAL_VOTER_COUNT + 1:
        return None
    in_rack = Counter(node.rack for node in voters)
    return max(voters, key=lambda node: (not node.can_receive_replicas, in_rack[node.rack], node.id)).id


def find_missing_voters(nodes: Sequence[PlannedNode]) -> tuple[int, ...]:
    """Return the nodes to promote to voters so that the cluster has three voters, if it has enough nodes."""
    voting = [node.id for node in nodes if node.should_vote]
    if len(voting) >= USUAL_VOTER_COUNT or sum(node.is_member for node in nodes) < USUAL_VOTER_COUNT:
        return ()
    new = [node for node in choose_voters(nodes, USUAL_VOTER_COUNT) if node not in voting]
    return tuple(new[: USUAL_VOTER_COUNT - len(voting)])


def check_quorum_after_leaving(nodes: Sequence[PlannedNode], leaving: int, joining: Iterable[int] = ()) -> None:
    """Check that the remaining voters, including `joining`, have a majority online after `leaving` has left.

    Raises:
        PlanRejectedError: They cannot, or only two of three voters would be left, which tolerate no failure.
    """
    joined = set(joining)
    voters = [node for node in nodes if node.id != leaving and (node.should_vote or node.id in joined)]
    voters_before = sum(node.should_vote for node in nodes)
    online = [node for node in voters if node.is_online]
    if not voters:
        raise PlanRejectedError(f"node {leaving} is the only voter")
    if not is_majority(len(online), len(voters)):
        offline = [node.id for node in voters if not node.is_online]
        raise PlanRejectedError(
            f"without the vote of node {leaving} there would be no majority:"
            f" of the {pluralize(len(voters), 'voter')} left, {_format_nodes(offline)} offline"
        )
    if voters_before >= USUAL_VOTER_COUNT > len(voters):
        raise PlanRejectedError(
            f"without the vote of node {leaving} there would be two voters, which tolerate no failure:"
            " add a node first, which can take over the vote"
        )


def _format_nodes(ids: Sequence[int]) -> str:
    return f"node {ids[0]} is" if len(ids) == 1 else f"nodes {join_words(ids)} are"
