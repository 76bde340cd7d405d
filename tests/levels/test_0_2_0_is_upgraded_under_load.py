"""Real nodes of 0.2.0 are replaced by this version one by one, under load, and back; then the level is raised, and
there are transactions."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException, Producer

from chronik.config import Address
from chronik.testing.cluster import Cluster, ClusterNode
from tests.cli.running import chronik
from tests.cluster import replicated

pytestmark = pytest.mark.xdist_group("cluster")

COMMIT = "5b5ad4aaf794e100b3cfdce8a7b9a59fa2570270"
ROOT = Path(__file__).parents[2]
PARTITIONS = 3
RATE = 100.0


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sources of 0.2.0."""
    known = subprocess.run(["git", "cat-file", "-e", COMMIT], cwd=ROOT, check=False, capture_output=True)
    if known.returncode:
        pytest.skip("the repository's history, in which 0.2.0 is, is not here (a shallow clone, or an archive)")
    folder = tmp_path_factory.mktemp("0.2.0")
    archive = subprocess.run(["git", "archive", COMMIT, "src"], cwd=ROOT, check=True, capture_output=True)
    subprocess.run(["tar", "-x", "-C", str(folder)], input=archive.stdout, check=True)
    return folder / "src"


class Upgraded(ClusterNode):
    sources: Path | None = None
    """Of an older version; None for this one."""

    @property
    def command(self) -> list[str]:
        return super().command if self.sources is None else ["env", f"PYTHONPATH={self.sources}", *super().command]

    def becomes(self, sources: Path | None) -> None:
        self.stop()
        self.sources = sources
        self.start()


class UpgradedCluster(Cluster):
    first: Path | None = None

    def _new_node(self, folder: Path, kafka: Address, http: Address, **config: Any) -> ClusterNode:
        node = Upgraded(folder, kafka, http, **config)
        node.sources = self.first
        return node

    def __getitem__(self, node_id: int) -> Upgraded:
        node = self.nodes[node_id]
        assert isinstance(node, Upgraded)
        return node


@pytest.fixture
def cluster(sources: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[UpgradedCluster]:
    monkeypatch.setattr(UpgradedCluster, "first", sources)
    cluster = UpgradedCluster(3, metadata_snapshot_entries=60, metadata_kept_bytes=0)
    with cluster:
        yield cluster


def commit_something(bootstrap: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "after the upgrade"})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce("committed", b"together")
    producer.commit_transaction(30)


def test_nodes_of_0_2_0_are_replaced_one_by_one(cluster: UpgradedCluster, sources: Path) -> None:
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
        assert [node.status()["level"] for node in cluster.live] == [1, 1, 1]
        with pytest.raises(KafkaException, match="TRANSACTIONAL_ID_AUTHORIZATION_FAILED"):
            commit_something(cluster.bootstrap)
        assert chronik("cluster", "upgrade", bootstrap=cluster[2].bootstrap).out == "chronik.version is 2; it was 1\n"
        commit_something(cluster.bootstrap)
        settle()
    assert not load.problems, load.problems[:3]
    assert replicated.check_records(cluster.bootstrap, places, [load]) > 0
    replicated.check_replicas(cluster, places)
