"""Nodes of earlier versions, built from the repository's history."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from chronik.config import Address
from chronik.testing.cluster import Cluster, ClusterNode

COMMITS = {
    1: "5b5ad4aaf794e100b3cfdce8a7b9a59fa2570270",
    2: "1676693a353cc88ac61b8bbf2d3f84c926aa497c",
    4: "4e271a74079689e4351d9203ad29e9b7245d7fc9",
}
"""Commits of 0.2.0, 0.3.0 and 0.6 by the highest feature level that they support."""

ROOT = Path(__file__).parents[2]


def export_sources(level: int, folder: Path) -> Path:
    """Return the sources of the version with this highest level. Skip the test if there is no history."""
    commit = COMMITS[level]
    known = subprocess.run(["git", "cat-file", "-e", commit], cwd=ROOT, check=False, capture_output=True)
    if known.returncode:
        pytest.skip("the git history is not available (a shallow clone or an archive)")
    archive = subprocess.run(["git", "archive", commit, "src"], cwd=ROOT, check=True, capture_output=True)
    subprocess.run(["tar", "-x", "-C", str(folder)], input=archive.stdout, check=True)
    return folder / "src"


class UpgradableNode(ClusterNode):
    """A node that can be restarted with another version."""

    sources: Path | None = None
    """The sources of an older version, or None for this version."""

    @property
    def command(self) -> list[str]:
        return super().command if self.sources is None else ["env", f"PYTHONPATH={self.sources}", *super().command]

    def restart_with(self, sources: Path | None) -> None:
        self.stop()
        self.sources = sources
        self.start()


class UpgradableCluster(Cluster):
    """Three nodes that start with an older version. Frequent snapshots exercise their exchange between versions."""

    def __init__(self, sources: Path) -> None:
        self._first = sources
        super().__init__(3, metadata_snapshot_entries=60, metadata_kept_bytes=0)

    def _new_node(self, folder: Path, kafka: Address, http: Address, **config: Any) -> ClusterNode:
        node = UpgradableNode(folder, kafka, http, **config)
        node.sources = self._first
        return node

    def __getitem__(self, node_id: int) -> UpgradableNode:
        node = self.nodes[node_id]
        assert isinstance(node, UpgradableNode)
        return node

    @property
    def levels(self) -> list[int]:
        """Return the feature level of each live node."""
        return [node.status()["level"] for node in self.live_nodes]


def commit_transaction(bootstrap: str) -> None:
    """Commit a transaction in the topic `committed`. Raises KafkaException below the transactions level."""
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "after the upgrade"})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce("committed", b"together")
    producer.commit_transaction(30)
