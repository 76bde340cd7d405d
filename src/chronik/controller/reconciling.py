"""Selection of the next membership change that brings the Raft membership closer to the intended one in the image.

The image contains the nodes of the cluster and which of them should be voters; the Raft membership contains the actual
voters. They are reconciled one change at a time and without stored state, so that a new leader continues in the same
place. Voters are added before others are removed: while a voter of three is replaced, the cluster has four voters,
never two. Each rule is a function that is called through this module, because `tests/controller` breaks each rule and
must detect it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final, NamedTuple

from chronik.metadata.records import Node
from chronik.raft.membership import DemoteVoter, Member, Membership, PromoteLearner, RemoveNode

VOTERS_KEPT: Final = 3
"""Minimum number of voters to keep while more are intended: a cluster of two voters tolerates no failure."""


class HandOver(NamedTuple):
    """A leadership transfer, for a leader that leaves the cluster or is drained. The new leader does the rest."""

    node_id: int


Step = PromoteLearner | DemoteVoter | RemoveNode | HandOver


class Seen(NamedTuple):
    """The leader's view of the cluster."""

    leader: int
    nodes: Mapping[int, Node]
    membership: Membership
    membership_index: int
    matches: Mapping[int, int]
    """Match index of each other member."""
    heard: Collection[int]
    """Nodes that were active recently, including the leader."""

    @property
    def voters(self) -> tuple[int, ...]:
        return self.membership.voters

    @property
    def meant(self) -> list[int]:
        """Ids of the nodes that should be voters."""
        return [node.id for node in self.nodes.values() if node.voter]


def next_step(seen: Seen) -> Step | None:
    """Return the next membership change, or None if none is possible or needed."""
    if not seen.meant:
        return None  # the cluster has no node records yet
    return _next_promotion(seen) or _taken_vote(seen) or _removed_learner(seen) or _drained_leader(seen)


def _next_promotion(seen: Seen) -> Step | None:
    for member in seen.membership.members:
        if may_vote(seen, member) and keeps_majority([*seen.voters, member.node_id], seen.heard):
            return PromoteLearner(member.node_id)
    return None


def _taken_vote(seen: Seen) -> Step | None:
    """Select a voter to demote or remove: inactive ones first, which eases reaching a majority, and the leader last."""
    leaving = [voter for voter in seen.voters if voter not in seen.meant]
    if not leaving or is_vote_awaited(seen):
        return None
    for voter in sorted(leaving, key=lambda each: (each == seen.leader, each in seen.heard, each)):
        remaining = [other for other in seen.voters if other != voter]
        if not (keeps_enough(remaining, seen.meant) and keeps_majority(remaining, seen.heard)):
            continue
        if voter == seen.leader:
            return _handed_over(seen, to_drained=False) or _handed_over(seen, to_drained=True)
        return DemoteVoter(voter) if voter in seen.nodes else RemoveNode(voter)
    return None


def _removed_learner(seen: Seen) -> Step | None:
    for member in seen.membership.members:
        if not member.is_voter and member.node_id not in seen.nodes:
            return RemoveNode(member.node_id)
    return None


def _drained_leader(seen: Seen) -> Step | None:
    own = seen.nodes.get(seen.leader)
    return _handed_over(seen, to_drained=False) if own is not None and own.draining else None


def _handed_over(seen: Seen, *, to_drained: bool) -> Step | None:
    """Select the voter with the most complete log. A drained one succeeds only a leader that leaves the cluster."""
    staying = [voter for voter in seen.voters if may_succeed(seen, voter)]
    candidates = [(seen.matches.get(voter, 0), voter) for voter in staying if seen.nodes[voter].draining == to_drained]
    return HandOver(max(candidates)[1]) if candidates else None


# -- rules


def may_vote(seen: Seen, member: Member) -> bool:
    """Return whether a learner may become a voter: it is intended to be one, active, and has the latest membership."""
    has_joined = seen.matches.get(member.node_id, 0) >= seen.membership_index
    return not member.is_voter and member.node_id in seen.meant and member.node_id in seen.heard and has_joined


def is_vote_awaited(seen: Seen) -> bool:
    """Return whether an active node that should be a voter is not one yet; no voter is removed before it is."""
    return any(node_id in seen.heard and node_id not in seen.voters for node_id in seen.meant)


def keeps_majority(voters: Sequence[int], heard: Collection[int]) -> bool:
    """Return whether the active nodes are a majority of these voters."""
    return 2 * sum(voter in heard for voter in voters) > len(voters)


def keeps_enough(remaining: Sequence[int], meant: Sequence[int]) -> bool:
    """Return whether enough voters remain."""
    return len(remaining) >= min(VOTERS_KEPT, len(meant))


def may_succeed(seen: Seen, voter: int) -> bool:
    """Return whether a voter may become the next leader: it is active and remains a voter."""
    return voter != seen.leader and voter in seen.heard and voter in seen.meant
