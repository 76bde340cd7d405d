"""Nodes that start with the wrong data directory or mode are rejected; damage by older versions is repaired."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from chronik.broker.quarantine import DELETED_RETENTION_MS
from chronik.testing.cluster import Cluster, ClusterNode
from chronik.testing.control import BrokerFailed
from chronik.testing.plugin import ClusterFactory
from tests.chaos.history import Place
from tests.cli.command_line import run_chronik
from tests.cluster import replication_helpers
from tests.node.test_data_directory import downgrade_identity, read_files, start_error

pytestmark = pytest.mark.xdist_group("cluster")

RECORDS = 300
PLACE = Place("acct", 0)


def filled(cluster: Cluster) -> list[bytes]:
    replication_helpers.create_topic(cluster, PLACE.topic, 1)
    values = [b"record %d" % number for number in range(RECORDS)]
    lines = b"\n".join(values)
    command = [sys.executable, "-m", "chronik", "produce", PLACE.topic, "-b", cluster.bootstrap]
    subprocess.run(command, input=lines, check=True, timeout=60, env=os.environ, capture_output=True)
    replication_helpers.wait_until_in_sync(cluster, [PLACE])
    return values


def read(cluster: Cluster) -> list[bytes | None]:
    replication_helpers.wait_until_in_sync(cluster, [PLACE])
    return [record.value for record in replication_helpers.read_all(cluster.bootstrap, [PLACE])[PLACE]]


def start_standalone(node: ClusterNode) -> str:
    return start_error("--data", str(node.data_dir), "--node-id", str(node.node_id))


def test_standalone_start_in_cluster_directory_is_rejected(
    chronik_cluster_factory: ClusterFactory,
) -> None:
    cluster = chronik_cluster_factory()
    values = filled(cluster)
    cluster.stop()
    for node in cluster.nodes.values():
        before = read_files(node.data_dir)
        assert "is the data directory of a node of a cluster" in start_standalone(node)
        assert read_files(node.data_dir) == before
        downgrade_identity(node.data_dir)
        assert "is the data directory of a node of a cluster" in start_standalone(node)
    cluster.start()
    assert read(cluster) == values


def test_partitions_quarantined_by_older_version_are_restored(chronik_cluster_factory: ClusterFactory) -> None:
    """Older versions started such nodes standalone and served the topic as an empty one."""
    cluster = chronik_cluster_factory()
    values = filled(cluster)
    cluster.stop()
    for node in cluster.nodes.values():
        downgrade_identity(node.data_dir)
        shutil.copytree(node.data_dir / "__raft", node.data_dir / "__meta")
        (node.data_dir / "topics").rename(node.data_dir / "unknown")
    for log in cluster.nodes[2].data_dir.glob("unknown/*/0/*.log"):
        emptied = partition_directory(cluster.nodes[2], log)
        emptied.mkdir(parents=True)
        shutil.copy(log.parent / "leader-epochs", emptied / "leader-epochs")  # as the older version left it
    cluster.start()
    assert read(cluster) == values
    for node in cluster.nodes.values():
        assert not list((node.data_dir / "unknown").iterdir())


def partition_directory(node: ClusterNode, log: Path) -> Path:
    return node.data_dir / "topics" / log.parent.relative_to(node.data_dir / "unknown")


def test_missing_node_json_in_cluster_is_rejected_and_restorable(chronik_cluster_factory: ClusterFactory) -> None:
    cluster = chronik_cluster_factory()
    values = filled(cluster)
    cluster.stop()
    node = cluster.nodes[2]
    path = node.data_dir / "node.json"
    identity = json.loads(path.read_bytes())
    path.unlink()
    config = node.data_dir.parent / "node.toml"
    peers = "".join(
        f'[[peers]]\nid = {peer["id"]}\nkafka = "{peer["kafka"]}"\nraft = "{peer["raft"]}"\n'
        for peer in cluster._peers_of(2)
    )
    config.write_text(f'node_id = 2\ncluster_secret = "{"x" * 32}"\n{peers}')
    common = ("--config", str(config), "--data", str(node.data_dir))
    assert "has lost its node.json" in start_error(*common)
    assert "is the data directory of a node of a cluster" in start_error(
        "--data", str(node.data_dir), "--node-id", "2", "--restore-identity"
    )
    process = subprocess.Popen(
        [sys.executable, "-m", "chronik", "start", "--kafka", "127.0.0.1:0", *common, "--restore-identity"],
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    try:
        assert any("answers Kafka clients" in line for line in process.stderr)
    finally:
        process.kill()
        process.wait()
        process.stderr.close()
    assert json.loads(path.read_bytes())["directory_id"] == identity["directory_id"]
    cluster.start()
    assert read(cluster) == values


def test_missing_raft_log_with_topics_is_rejected(chronik_cluster_factory: ClusterFactory, tmp_path: Path) -> None:
    """The node has lost its vote, which the others would still count under the same directory id."""
    cluster = chronik_cluster_factory()
    values = filled(cluster)
    node = cluster.nodes[3]
    node.stop()
    shutil.move(node.data_dir / "__raft", tmp_path / "elsewhere")
    with pytest.raises(Exception, match=r"has lost its metadata \(__raft\)"):
        node.start()
    shutil.rmtree(node.data_dir)  # as the message says: an empty directory is refilled
    node.start()
    assert read(cluster) == values


def test_directory_of_other_cluster_is_rejected_unchanged(
    chronik_cluster_factory: ClusterFactory, tmp_path: Path
) -> None:
    secret = "a secret of both clusters"
    cluster = chronik_cluster_factory(cluster_secret=secret)
    other = chronik_cluster_factory(cluster_secret=secret)
    values, others_values = filled(cluster), filled(other)
    cluster.nodes[3].stop()
    other.stop()
    own = cluster.nodes[3].data_dir
    own.rename(tmp_path / "own")
    shutil.copytree(other.nodes[3].data_dir, own)
    topics = read_files(own / "topics")
    with suppress(BrokerFailed):  # the node may be rejected before it has started
        cluster.nodes[3].start()
    replication_helpers.wait_for("it stops", lambda: not cluster.nodes[3].is_running)
    assert "this data directory belongs to cluster" in cluster.nodes[3].log
    cluster.nodes[3].kill()
    assert read_files(own / "topics") == topics
    shutil.rmtree(own)
    (tmp_path / "own").rename(own)
    cluster.nodes[3].start()
    assert read(cluster) == values
    other.start()
    assert read(other) == others_values


def test_topic_deleted_while_node_was_offline_is_removed_after_a_week(chronik_cluster_factory: ClusterFactory) -> None:
    cluster = chronik_cluster_factory()
    filled(cluster)
    away = cluster.nodes[3]
    away.stop()
    deleted = run_chronik("topics", "delete", PLACE.topic, bootstrap=cluster.nodes[1].bootstrap)
    assert deleted.code == 0, deleted.err
    away.start()
    replication_helpers.wait_for("quarantine", lambda: list(away.data_dir.glob("unknown/*/set-aside.json")))
    assert "was deleted or moved while this node was down" in away.log
    [path] = away.data_dir.glob("unknown/*/set-aside.json")
    mark = json.loads(path.read_bytes())
    assert mark["cluster_id"] == away.status()["cluster_id"]
    away.stop()
    path.write_text(json.dumps(mark | {"time_ms": mark["time_ms"] - DELETED_RETENTION_MS}))
    away.start()
    replication_helpers.wait_for("removal", lambda: not list(away.data_dir.glob("unknown/*")))
