"""Rolling upgrade to the next version (`next_version.py`) and back under load, then raising the feature level."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from chronik.config import Address
from chronik.protocol.errors import ErrorCode
from chronik.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from chronik.protocol.messages.incremental_alter_configs import (
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    IncrementalAlterConfigsResponse,
)
from chronik.testing.cluster import Cluster, ClusterNode
from chronik.testing.control import BrokerFailed
from tests.api import request_builders
from tests.api.test_configs import describe_configs
from tests.chaos.history import Place
from tests.cli.command_line import CommandResult, run_chronik
from tests.cluster import replication_helpers
from tests.feature_levels import later_version, next_version
from tests.feature_levels.next_version import GREETING
from tests.node.test_data_directory import read_files
from tests.raw import RawClient

pytestmark = pytest.mark.xdist_group("cluster")

PARTITIONS = 3
RATE = 100.0
SNAPSHOT_ENTRIES = 60
"""A low threshold, so that nodes restart from snapshots and lagging nodes are sent one."""


OLD, NEW = next_version.LEVEL - 1, next_version.LEVEL

LEVEL_LINE = f"Level: {OLD}; the queried nodes support {NEW}: use chronik cluster upgrade when all brokers support it"
"""The line of `chronik cluster status` when a node supports a higher level."""


class VersionedNode(ClusterNode):
    """A node that can be restarted with another version."""

    is_new = False
    new_version = next_version.__file__

    @property
    def command(self) -> list[str]:
        return [sys.executable, "-P", self.new_version] if self.is_new else super().command

    def restart_as(self, *, new: bool) -> None:
        self.stop()
        self.is_new = new
        self.start()


class VersionedCluster(Cluster):
    """A cluster whose nodes can run different versions."""

    def _new_node(self, folder: Path, kafka: Address, http: Address, **config: Any) -> ClusterNode:
        return VersionedNode(folder, kafka, http, **config)

    def __getitem__(self, node_id: int) -> VersionedNode:
        node = self.nodes[node_id]
        assert isinstance(node, VersionedNode)
        return node

    def levels(self) -> list[int]:
        return [node.status()["level"] for node in self.live_nodes]


@pytest.fixture
def cluster() -> Iterator[VersionedCluster]:
    cluster = VersionedCluster(3, metadata_snapshot_entries=SNAPSHOT_ENTRIES, metadata_kept_bytes=0)
    with cluster:
        yield cluster


def upgrade(node: ClusterNode, *arguments: str) -> CommandResult:
    return run_chronik("cluster", "upgrade", *arguments, bootstrap=node.bootstrap)


def greet(node: ClusterNode, text: str) -> tuple[ErrorCode, str | None]:
    """Send a request that makes new nodes propose the new command; old nodes see an unknown config."""
    change = IncrementalAlterableConfig(name=GREETING, config_operation=request_builders.SET, value=text)
    resource = IncrementalAlterConfigsResource(
        resource_type=request_builders.BROKER, resource_name="", configs=[change]
    )
    with RawClient(node.bootstrap) as client:
        request = IncrementalAlterConfigsRequest(resources=[resource])
        (answer,) = client.request(request, 1, IncrementalAlterConfigsResponse).responses
    return ErrorCode(answer.error_code), answer.error_message


def is_greeted(node: ClusterNode) -> bool:
    with RawClient(node.bootstrap) as client:
        return GREETING in describe_configs(client, request_builders.BROKER, "")


def make_and_delete_topic(node: ClusterNode, name: str) -> None:
    """Create and delete a topic; the delete command has an additional field in the newer version."""
    node.create_topic(name)
    with RawClient(node.bootstrap) as client:
        answer = client.request(DeleteTopicsRequest(topic_names=[name]), 5, DeleteTopicsResponse)
    assert [each.error_code for each in answer.responses] == [ErrorCode.NONE]


def settle(cluster: VersionedCluster, places: list[Place], load: replication_helpers.ProducerLoad) -> None:
    cluster.wait_until_ready()
    replication_helpers.wait_until_in_sync(cluster, places)
    load.wait_until_progress()
    cluster.wait_until_agreed()


def test_rolling_upgrade_then_raising_the_feature_level(cluster: VersionedCluster) -> None:
    places = replication_helpers.create_topic(cluster, "rolled", PARTITIONS)
    load = replication_helpers.ConfluentLoad(cluster.bootstrap, "rolled", PARTITIONS, rate=RATE)
    with replication_helpers.running_clients(load):
        load.wait_until_progress()
        assert upgrade(cluster[1]).out == f"chronik.version is already {OLD}; this node supports 1 to {OLD}\n"

        for node_id in (1, 2):
            cluster[node_id].restart_as(new=True)
            settle(cluster, places, load)
        assert cluster.levels() == [OLD] * 3

        # With one old node, the level cannot be raised and the new command is rejected, but everything else works.
        refused = upgrade(cluster[1])
        assert refused.code != 0
        assert f"Invalid update version {NEW} for feature chronik.version." in refused.err
        assert f"Not all brokers support it: 3 (1 to {OLD})." in refused.err
        assert refused.err.count("\n") == 1
        assert LEVEL_LINE in run_chronik("cluster", "status", bootstrap=cluster[1].bootstrap).lines
        code, message = greet(cluster[2], "too early")
        assert code is ErrorCode.UNSUPPORTED_VERSION
        assert message is not None
        assert f"Greet needs chronik.version {NEW}, and the cluster is at {OLD}" in message
        for node_id in (1, 2, 3):
            make_and_delete_topic(cluster[node_id], f"short-lived-{node_id}")
        settle(cluster, places, load)

        # Downgrade before the level is raised.
        for node_id in (2, 1):
            cluster[node_id].restart_as(new=False)
            settle(cluster, places, load)
        make_and_delete_topic(cluster[1], "short-lived-4")

        for node_id in (1, 2, 3):
            cluster[node_id].restart_as(new=True)
            settle(cluster, places, load)
        assert not any(map(is_greeted, cluster.live_nodes))
        assert LEVEL_LINE in run_chronik("cluster", "status", bootstrap=cluster[1].bootstrap).lines
        assert upgrade(cluster[2]).out == f"chronik.version raised from {OLD} to {NEW}\n"
        assert greet(cluster[3], "welcome") == (ErrorCode.NONE, None)
        make_and_delete_topic(cluster[2], "short-lived-5")
        settle(cluster, places, load)
        assert cluster.levels() == [NEW] * 3
        assert all(map(is_greeted, cluster.live_nodes))
        lowered = upgrade(cluster[1], "--level", "1")
        assert lowered.code != 0
        assert f"It is at {NEW} and is never lowered" in lowered.err

        check_older_version_is_rejected(cluster, cluster[3])
        settle(cluster, places, load)
    assert not load.problems, load.problems[:3]
    assert replication_helpers.check_records(cluster.bootstrap, places, [load]) > 0
    replication_helpers.check_replicas(cluster, places)


def check_older_version_is_rejected(cluster: VersionedCluster, node: VersionedNode) -> None:
    node.stop()
    node.is_new = False
    before = read_files(node.data_dir)
    with pytest.raises(
        BrokerFailed, match=rf"is at chronik\.version {NEW}, and this version of Chronik supports {OLD} at most"
    ):
        node.start()
    assert read_files(node.data_dir) == before

    # With an empty disk, the node learns the level from the others.
    kept = node.data_dir.with_name("kept")
    node.data_dir.rename(kept)
    node.start()
    replication_helpers.wait_for("the exit of the older node", lambda: not node.is_running)
    assert f"chronik.version {NEW}, and this version of Chronik supports {OLD} at most" in node.log.splitlines()[-1]
    assert "Traceback" not in node.log.splitlines()[-1]
    node.kill()
    shutil.rmtree(node.data_dir)
    kept.rename(node.data_dir)
    node.is_new = True
    node.start()


def recreate_cluster(cluster: VersionedCluster, new_version: str) -> None:
    cluster.stop()
    for node_id in (1, 2, 3):
        shutil.rmtree(cluster[node_id].data_dir)
        cluster[node_id].is_new, cluster[node_id].new_version = True, new_version
    cluster.start()
    cluster.wait_until_ready()


def test_new_cluster_starts_at_highest_feature_level(cluster: VersionedCluster) -> None:
    recreate_cluster(cluster, next_version.__file__)
    assert cluster.levels() == [NEW] * 3
    assert greet(cluster[1], "hello") == (ErrorCode.NONE, None)


def test_new_cluster_of_version_without_first_level_starts(cluster: VersionedCluster) -> None:
    recreate_cluster(cluster, later_version.__file__)
    assert cluster.levels() == [later_version.HIGHEST] * 3
    cluster.wait_until_agreed()
