"""From what the nodes are meant to be to what they are: the next step, as the leader of the metadata log sees it. Pure.

The image says who belongs to the cluster and who is meant to vote; the membership in the log says who does. They are
brought together one change at a time, and nothing is remembered in between: a new leader sees the same, and goes on.
Votes are given before others are taken, so that a voter that is replaced is one of four for a moment, and the cluster
never stands on two. Each rule is a function of its own, and called through this module: `tests/controller` breaks each
of them, and must notice.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final, NamedTuple

from chronik.metadata.records import Node
from chronik.raft.membership import DemoteVoter, Member, Membership, PromoteLearner, RemoveNode

VOTERS_KEPT: Final = 3
"""Votes are not taken below this many while more are meant to vote: two voters outlive nothing."""


class HandOver(NamedTuple):
    """The leader has to go, or is drained: another leads first, and does the rest."""

    node_id: int


Step = PromoteLearner | DemoteVoter | RemoveNode | HandOver


class Seen(NamedTuple):
    """What a leader sees."""

    leader: int
    nodes: Mapping[int, Node]
    membership: Membership
    membership_index: int
    matches: Mapping[int, int]
    """How far each other member is known to hold the log."""
    heard: Collection[int]
    """The nodes that were heard a moment ago, the leader itself among them."""

    @property
    def voters(self) -> tuple[int, ...]:
        return self.membership.voters

    @property
    def meant(self) -> list[int]:
        """Who is meant to vote."""
        return [node.id for node in self.nodes.values() if node.voter]


def next_step(seen: Seen) -> Step | None:
    """Returns what is to be done now, or None when nothing can be, or all is as it is meant to be."""
    if not seen.meant:
        return None  # the nodes are not written down yet, or the cluster is older than that
    return _promotion(seen) or _taken_vote(seen) or _removed_learner(seen) or _drained_leader(seen)


def _promotion(seen: Seen) -> Step | None:
    for member in seen.membership.members:
        if may_vote(seen, member) and keeps_majority([*seen.voters, member.node_id], seen.heard):
            return PromoteLearner(member.node_id)
    return None


def _taken_vote(seen: Seen) -> Step | None:
    """Those who are silent go first: without them a majority is reached sooner. The leader goes last."""
    leaving = [voter for voter in seen.voters if voter not in seen.meant]
    if not leaving or is_vote_awaited(seen):
        return None
    for voter in sorted(leaving, key=lambda each: (each == seen.leader, each in seen.heard, each)):
        rest = [other for other in seen.voters if other != voter]
        if not (keeps_enough(rest, seen.meant) and keeps_majority(rest, seen.heard)):
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
    """Chooses who holds most of the log. One who is drained leads only in place of one who goes for good."""
    staying = [voter for voter in seen.voters if may_succeed(seen, voter)]
    heirs = [(seen.matches.get(voter, 0), voter) for voter in staying if seen.nodes[voter].draining == to_drained]
    return HandOver(max(heirs)[1]) if heirs else None


# The rules


def may_vote(seen: Seen, member: Member) -> bool:
    """A learner that is meant to vote does so once it holds the membership that names it: it is alive, on that disk,
    and has what came before."""
    has_joined = seen.matches.get(member.node_id, 0) >= seen.membership_index
    return not member.is_voter and member.node_id in seen.meant and member.node_id in seen.heard and has_joined


def is_vote_awaited(seen: Seen) -> bool:
    """Whether somebody who is there is meant to vote and does not yet: until then nobody's vote is taken."""
    return any(node_id in seen.heard and node_id not in seen.voters for node_id in seen.meant)


def keeps_majority(voters: Sequence[int], heard: Collection[int]) -> bool:
    """Whether those who are there could agree on anything, were these the voters."""
    return 2 * sum(voter in heard for voter in voters) > len(voters)


def keeps_enough(rest: Sequence[int], meant: Sequence[int]) -> bool:
    return len(rest) >= min(VOTERS_KEPT, len(meant))


def may_succeed(seen: Seen, voter: int) -> bool:
    """Who leads next is there, and keeps its vote: otherwise it would hand over in its turn."""
    return voter != seen.leader and voter in seen.heard and voter in seen.meant
