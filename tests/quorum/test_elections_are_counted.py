from __future__ import annotations

from chronik.quorum.election_counts import ElectionCounts
from chronik.raft.events import Status
from chronik.raft.membership import NOBODY
from chronik.raft.roles import Role


def counted(*statuses: Status) -> tuple[int, int, int]:
    counts = ElectionCounts()
    for status in statuses:
        counts.note(status)
    return counts.stood, counts.won, counts.leader_changes


def test_a_node_that_stands_and_wins_has_stood_once_and_won_once() -> None:
    assert counted(
        Status(Role.FOLLOWER, 1, NOBODY),
        Status(Role.PRE_CANDIDATE, 1, NOBODY),
        Status(Role.CANDIDATE, 2, NOBODY),
        Status(Role.LEADER, 2, 1),
    ) == (1, 1, 1)


def test_the_same_leader_in_another_term_is_no_other_leader() -> None:
    assert counted(
        Status(Role.FOLLOWER, 1, 2),
        Status(Role.FOLLOWER, 2, NOBODY),
        Status(Role.FOLLOWER, 2, 2),
        Status(Role.FOLLOWER, 3, 3),
    ) == (0, 0, 2)


def test_who_stands_again_in_a_later_term_is_counted_again() -> None:
    assert counted(
        Status(Role.CANDIDATE, 2, NOBODY), Status(Role.FOLLOWER, 2, NOBODY), Status(Role.CANDIDATE, 3, NOBODY)
    ) == (2, 0, 0)
