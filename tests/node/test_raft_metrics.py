from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from chronik.console.metrics.families import FAMILIES
from chronik.node.cluster_mode import ClusterMode
from chronik.quorum.election_counts import ElectionCounts
from chronik.quorum.settings import DriverStatus
from chronik.raft.membership import Membership
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
