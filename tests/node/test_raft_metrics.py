"""Metrics of Raft and counters of elections."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from chronik.console.metrics.families import FAMILIES
from chronik.node.cluster_mode import ClusterMode, ElectionCounts
from chronik.quorum.settings import DriverStatus
from chronik.raft.events import RaftStatus
from chronik.raft.membership import NO_NODE, Membership
from chronik.raft.roles import Role

PREFIX = "chronik_raft_"
STATUS = DriverStatus(
    role=Role.LEADER,
    term=7,
    leader=2,
    first_index=1,
    last_index=25,
    durable_index=24,
    commit_index=20,
    applied_index=17,
    snapshot_index=0,
    membership=Membership(()),
    membership_index=1,
    match_indexes={},
    peer_activity={},
    now=0.0,
    connected=(1, 3),
    pending_requests=0,
)


def test_cluster_mode_reports_all_declared_raft_metrics() -> None:
    elections = ElectionCounts(candidacies=3, elections_won=2, leader_changes=4)
    node: Any = SimpleNamespace(driver=SimpleNamespace(status=STATUS), _elections=elections)
    values = ClusterMode.raft_metrics(cast(ClusterMode, node))
    assert {PREFIX + name for name in values} == {name for name in FAMILIES if name.startswith(PREFIX)}
    assert (values["term"], values["is_leader"], values["apply_lag"], values["connected_peers"]) == (7, True, 3, 2)
    assert (values["elections_total"], values["elections_won_total"], values["leader_changes_total"]) == (3, 2, 4)


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
