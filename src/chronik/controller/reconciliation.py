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

from chronik.metadata.records import NodeRecord
from chronik.raft.membership import DemoteVoter, Membership, PromoteLearner, RaftMember, RemoveMember

VOTERS_MIN: Final = 3
"""Minimum number of Raft voters that a demotion must leave, unless fewer are intended. Two tolerate no failure."""


class TransferLeader(NamedTuple):
    """A membership step that transfers the Raft leadership, because the leader is being removed or drained."""

    node_id: int


ReconciliationStep = PromoteLearner | DemoteVoter | RemoveMember | TransferLeader


class MembershipView(NamedTuple):
    """The Raft leader's view of the cluster, from which it derives the next membership change."""

    leader: int
    nodes: Mapping[int, NodeRecord]
    membership: Membership
    membership_index: int
    match_indexes: Mapping[int, int]
    """Raft match index of each other member: the last log entry known to be replicated to it."""
    active: Collection[int]
    """Nodes that were active recently, including the leader."""

    @property
    def voters(self) -> tuple[int, ...]:
        return self.membership.voters

    @property
    def intended_voters(self) -> list[int]:
        """Ids of the nodes that should be voters."""
        return [node.id for node in self.nodes.values() if node.voter]


def select_next_step(seen: MembershipView) -> ReconciliationStep | None:
    """Return the next Raft membership change, or None if none is needed or possible."""
    if not seen.intended_voters:
        return None  # the cluster has no node records yet
    return (
        _select_promotion(seen)
        or _select_demotion(seen)
        or _select_removal(seen)
        or _select_transfer_from_drained_leader(seen)
    )


def _select_promotion(seen: MembershipView) -> ReconciliationStep | None:
    for member in seen.membership.members:
        if can_promote_learner(seen, member) and has_active_majority([*seen.voters, member.node_id], seen.active):
            return PromoteLearner(member.node_id)
    return None


def _select_demotion(seen: MembershipView) -> ReconciliationStep | None:
    """Select a voter to demote or remove from the Raft membership: inactive voters first, the leader last."""
    leaving = [voter for voter in seen.voters if voter not in seen.intended_voters]
    if not leaving or is_promotion_pending(seen):
        return None
    for voter in sorted(leaving, key=lambda each: (each == seen.leader, each in seen.active, each)):
        remaining = [other for other in seen.voters if other != voter]
        if not (has_enough_voters(remaining, seen.intended_voters) and has_active_majority(remaining, seen.active)):
            continue
        if voter == seen.leader:
            return _select_successor(seen, to_drained=False) or _select_successor(seen, to_drained=True)
        return DemoteVoter(voter) if voter in seen.nodes else RemoveMember(voter)
    return None


def _select_removal(seen: MembershipView) -> ReconciliationStep | None:
    for member in seen.membership.members:
        if not member.is_voter and member.node_id not in seen.nodes:
            return RemoveMember(member.node_id)
    return None


def _select_transfer_from_drained_leader(seen: MembershipView) -> ReconciliationStep | None:
    own = seen.nodes.get(seen.leader)
    return _select_successor(seen, to_drained=False) if own is not None and own.draining else None


def _select_successor(seen: MembershipView, *, to_drained: bool) -> ReconciliationStep | None:
    """Return a leadership transfer to the voter with the most complete log, or None if no voter qualifies."""
    staying = [voter for voter in seen.voters if can_succeed_leader(seen, voter)]
    candidates = [
        (seen.match_indexes.get(voter, 0), voter) for voter in staying if seen.nodes[voter].draining == to_drained
    ]
    return TransferLeader(max(candidates)[1]) if candidates else None


# -- rules


def can_promote_learner(seen: MembershipView, member: RaftMember) -> bool:
    """Return whether a learner may become a voter: it is intended as one, active, and has the latest membership."""
    has_joined = seen.match_indexes.get(member.node_id, 0) >= seen.membership_index
    return (
        not member.is_voter and member.node_id in seen.intended_voters and member.node_id in seen.active and has_joined
    )


def is_promotion_pending(seen: MembershipView) -> bool:
    """Return whether an active node is still to be promoted to a voter."""
    return any(node_id in seen.active and node_id not in seen.voters for node_id in seen.intended_voters)


def has_active_majority(voters: Sequence[int], heard: Collection[int]) -> bool:
    """Return whether the active nodes form a majority of these Raft voters."""
    return 2 * sum(voter in heard for voter in voters) > len(voters)


def has_enough_voters(remaining: Sequence[int], meant: Sequence[int]) -> bool:
    """Return whether the remaining Raft voters are enough: VOTERS_MIN, or the intended number if that is smaller."""
    return len(remaining) >= min(VOTERS_MIN, len(meant))


def can_succeed_leader(seen: MembershipView, voter: int) -> bool:
    """Return whether a voter may become the next Raft leader: it is active and is intended to remain a voter."""
    return voter != seen.leader and voter in seen.active and voter in seen.intended_voters
