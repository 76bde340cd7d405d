from __future__ import annotations

from chronik.quorum.election_counts import ElectionCounts
from chronik.raft.events import Status
from chronik.raft.membership import NOBODY
from chronik.raft.roles import Role


def count_elections(*statuses: Status) -> tuple[int, int, int]:
    counts = ElectionCounts()
    for status in statuses:
        counts.note(status)
    return counts.stood, counts.won, counts.leader_changes


def test_won_election_counts_one_candidacy_and_one_win() -> None:
    assert count_elections(
        Status(Role.FOLLOWER, 1, NOBODY),
        Status(Role.PRE_CANDIDATE, 1, NOBODY),
        Status(Role.CANDIDATE, 2, NOBODY),
        Status(Role.LEADER, 2, 1),
    ) == (1, 1, 1)


def test_same_leader_in_later_term_is_no_leader_change() -> None:
    assert count_elections(
        Status(Role.FOLLOWER, 1, 2),
        Status(Role.FOLLOWER, 2, NOBODY),
        Status(Role.FOLLOWER, 2, 2),
        Status(Role.FOLLOWER, 3, 3),
    ) == (0, 0, 2)


def test_candidacy_in_later_term_is_counted_again() -> None:
    assert count_elections(
        Status(Role.CANDIDATE, 2, NOBODY), Status(Role.FOLLOWER, 2, NOBODY), Status(Role.CANDIDATE, 3, NOBODY)
    ) == (2, 0, 0)
