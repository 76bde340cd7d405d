"""Rolling upgrade and downgrade between real earlier versions and this one, under load."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaException

from chronik.admin.nodes import NodeAction
from chronik.metadata import levels
from tests.cli.command_line import run_chronik
from tests.cluster import membership_helpers, replication_helpers
from tests.feature_levels.earlier_versions import COMMITS, UpgradableCluster, commit_transaction, export_sources

pytestmark = pytest.mark.xdist_group("cluster")

PARTITIONS = 3
RATE = 100.0


@pytest.fixture(scope="module", params=COMMITS)
def level(request: pytest.FixtureRequest) -> int:
    return int(request.param)


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory, level: int) -> Path:
    """Return the sources of the earlier version."""
    return export_sources(level, tmp_path_factory.mktemp(f"level-{level}"))


@pytest.fixture
def cluster(sources: Path) -> Iterator[UpgradableCluster]:
    cluster = UpgradableCluster(sources)
    with cluster:
        yield cluster


def test_rolling_upgrade_from_earlier_version_loses_no_records(
    cluster: UpgradableCluster, sources: Path, level: int
) -> None:
    places = replication_helpers.create_topic(cluster, "rolled", PARTITIONS)
    cluster[1].create_topic("committed")
    load = replication_helpers.ConfluentLoad(cluster.bootstrap, "rolled", PARTITIONS, rate=RATE)

    def settle() -> None:
        cluster.wait_until_ready()
        replication_helpers.wait_until_in_sync(cluster, places)
        load.wait_until_progress()
        cluster.wait_until_agreed()

    with replication_helpers.running_clients(load):
        load.wait_until_progress()
        for node_id, version in ((1, None), (2, None), (1, sources), (3, None), (1, None)):
            cluster[node_id].restart_with(version)
            settle()
        assert cluster.levels == [level] * 3
        if level < levels.TRANSACTIONS_LEVEL:
            with pytest.raises(KafkaException, match="TRANSACTIONAL_ID_AUTHORIZATION_FAILED"):
                commit_transaction(cluster.bootstrap)
        raised = f"chronik.version raised from {level} to {levels.HIGHEST}\n"
        assert run_chronik("cluster", "upgrade", bootstrap=cluster[2].bootstrap).out == raised
        commit_transaction(cluster.bootstrap)
        assert membership_helpers.voter_letters(cluster[1]) == "VVV"
        for action, status in ((NodeAction.DRAIN, "maintenance"), (NodeAction.UNDRAIN, "online")):
            membership_helpers.change_node(cluster[3], 1, action)
            assert membership_helpers.described_nodes(cluster[2])[1].status == status
        settle()
    assert not load.problems, load.problems[:3]
    assert replication_helpers.check_records(cluster.bootstrap, places, [load]) > 0
    replication_helpers.check_replicas(cluster, places)
