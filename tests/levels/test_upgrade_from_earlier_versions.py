"""Rolling upgrade and downgrade between real earlier versions and this one, under load."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaException

from chronik.admin.nodes import Action
from chronik.metadata import levels
from tests.cli.running import chronik
from tests.cluster import growing, replicated
from tests.levels.earlier_versions import COMMITS, UpgradedCluster, commit_something, sources_of

pytestmark = pytest.mark.xdist_group("cluster")

PARTITIONS = 3
RATE = 100.0


@pytest.fixture(scope="module", params=COMMITS)
def level(request: pytest.FixtureRequest) -> int:
    return int(request.param)


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory, level: int) -> Path:
    """Return the sources of the earlier version."""
    return sources_of(level, tmp_path_factory.mktemp(f"level-{level}"))


@pytest.fixture
def cluster(sources: Path) -> Iterator[UpgradedCluster]:
    cluster = UpgradedCluster(sources)
    with cluster:
        yield cluster


def test_rolling_upgrade_from_earlier_version_loses_no_records(
    cluster: UpgradedCluster, sources: Path, level: int
) -> None:
    places = replicated.make_topic(cluster, "rolled", PARTITIONS)
    cluster[1].create_topic("committed")
    load = replicated.ConfluentLoad(cluster.bootstrap, "rolled", PARTITIONS, rate=RATE)

    def settle() -> None:
        cluster.wait_until_ready()
        replicated.wait_until_in_sync(cluster, places)
        load.wait_until_it_goes_on()
        cluster.wait_until_agreed()

    with replicated.running(load):
        load.wait_until_it_goes_on()
        for node_id, version in ((1, None), (2, None), (1, sources), (3, None), (1, None)):
            cluster[node_id].becomes(version)
            settle()
        assert cluster.levels == [level] * 3
        if level < levels.TRANSACTIONS:
            with pytest.raises(KafkaException, match="TRANSACTIONAL_ID_AUTHORIZATION_FAILED"):
                commit_something(cluster.bootstrap)
        raised = f"chronik.version is {levels.HIGHEST}; it was {level}\n"
        assert chronik("cluster", "upgrade", bootstrap=cluster[2].bootstrap).out == raised
        commit_something(cluster.bootstrap)
        assert growing.seats(cluster[1]) == "VVV"
        for action, status in ((Action.DRAIN, "maintenance"), (Action.UNDRAIN, "online")):
            growing.done(cluster[3], 1, action)
            assert growing.nodes_of(cluster[2])[1].status == status
        settle()
    assert not load.problems, load.problems[:3]
    assert replicated.check_records(cluster.bootstrap, places, [load]) > 0
    replicated.check_replicas(cluster, places)
