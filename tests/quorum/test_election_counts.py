from __future__ import annotations

from chronik.quorum.election_counts import ElectionCounts
from chronik.raft.events import RaftStatus
from chronik.raft.membership import NO_NODE
from chronik.raft.roles import Role


def count_elections(*statuses: RaftStatus) -> tuple[int, int, int]:
    counts = ElectionCounts()
    for status in statuses:
        counts.record(status)
    return counts.candidacies, counts.elections_won, counts.leader_changes


def test_won_election_counts_one_candidacy_and_one_win() -> None:
    assert count_elections(
        RaftStatus(Role.FOLLOWER, 1, NO_NODE),
        RaftStatus(Role.PRE_CANDIDATE, 1, NO_NODE),
        RaftStatus(Role.CANDIDATE, 2, NO_NODE),
        RaftStatus(Role.LEADER, 2, 1),
    ) == (1, 1, 1)


def test_same_leader_in_later_term_is_no_leader_change() -> None:
    assert count_elections(
        RaftStatus(Role.FOLLOWER, 1, 2),
        RaftStatus(Role.FOLLOWER, 2, NO_NODE),
        RaftStatus(Role.FOLLOWER, 2, 2),
        RaftStatus(Role.FOLLOWER, 3, 3),
    ) == (0, 0, 2)


def test_candidacy_in_later_term_is_counted_again() -> None:
    assert count_elections(
        RaftStatus(Role.CANDIDATE, 2, NO_NODE),
        RaftStatus(Role.FOLLOWER, 2, NO_NODE),
        RaftStatus(Role.CANDIDATE, 3, NO_NODE),
    ) == (2, 0, 0)
