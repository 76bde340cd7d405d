"""A standalone data directory is imported into a cluster: clients see the same state there, and the directory does not
change. An import that is killed at any point can be continued.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from chronik.client.admin import NewTopic, create_topics, delete_topics, list_topics
from chronik.client.cluster import ClusterClient as Client
from chronik.client.groups import GroupOffset
from chronik.client.records import TopicPartition
from chronik.client.security import alter_quotas, describe_quotas, list_users, set_password
from chronik.migration import failpoints
from chronik.protocol.errors import ErrorCode, KafkaError
from chronik.testing.broker import Broker
from chronik.testing.cluster import Cluster
from tests.chaos.history import Place
from tests.cluster import replication_helpers
from tests.cluster.replication_helpers import wait_for
from tests.files.test_overlay import snapshot_directory
from tests.migration import sample_data
from tests.run_size import IS_LONG_RUN

pytestmark = pytest.mark.xdist_group("cluster")

POINTS = (
    ("begun", "topics", *(f"request:{number % 5 + 1}" for number in range(15)), "compared", "secured:2", "finished")
    if IS_LONG_RUN
    else ("begun", "topics", "request:1", "request:4", "compared", "secured:2", "finished")
)
"""The points at which an import is killed, in order."""


def chronik(*arguments: str, fail_at: str = "") -> subprocess.CompletedProcess[str]:
    environment = os.environ | {failpoints.ENVIRONMENT_VARIABLE: fail_at}
    command = [sys.executable, "-m", "chronik", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """A data directory of a node that was killed during a transaction, and the state that clients saw."""
    home = tmp_path_factory.mktemp("standalone")
    broker = Broker(home, broker=sample_data.EAGER)
    with broker:
        sample_data.create_sample_data(broker.bootstrap)
        with Client(broker.bootstrap) as client:
            set_password(client, "alice", "wonderland", ["SCRAM-SHA-256"], 4096)
            alter_quotas(client, {"user": "alice"}, {"producer_byte_rate": 1e9})
        wait_for("compaction", lambda: "keys-0: log compacted" in broker.log)
        hanging = sample_data.run_transaction(broker.bootstrap, "hangs", commit=None)
        view = sample_data.read_client_view(broker.bootstrap)
        view["ends"] = {name: sample_data.read_end_offsets(broker.bootstrap, name) for name in view if name != "groups"}
        broker.kill()
        del hanging
    return home / "data", view


def assert_imported(bootstrap: str, view: dict[str, Any]) -> None:
    with Client(bootstrap) as client:
        assert list(list_users(client)) == ["alice"]
        assert describe_quotas(client, {"user": "alice"}) == [({"user": "alice"}, {"producer_byte_rate": 1e9})]
    expected = {name: each for name, each in view.items() if name != "ends"}
    assert len(expected) == 8
    now = sample_data.read_client_view(bootstrap, set(expected))
    for name, each in expected.items():
        assert now[name] == each, name
    for name, ends in view["ends"].items():
        marker = 1 if name == "ended" else 0  # of the aborted open transaction, in each of its partitions
        assert sample_data.read_end_offsets(bootstrap, name) == {key: end + marker for key, end in ends.items()}, name


def test_import_leaves_source_directory_unchanged(folder: tuple[Path, dict[str, Any]]) -> None:
    path, view = folder
    before = snapshot_directory(path)
    with Cluster(3, broker=sample_data.EAGER) as cluster:
        imported = chronik("cluster", "import", str(path), "-b", cluster.bootstrap, "--yes")
        assert imported.returncode == 0, imported.stderr
        assert "imported and verified" in imported.stdout
        assert snapshot_directory(path) == before
        again = chronik("cluster", "import", str(path), "-b", cluster.bootstrap, "--yes")
        assert (again.returncode, again.stdout.splitlines()[-1]) == (0, "already imported")
        cluster.wait_until_agreed()
        cluster.restart()
        cluster.wait_until_ready()
        assert_imported(cluster.bootstrap, view)
        cluster.leader().kill()
        assert_imported(cluster.live_nodes[0].bootstrap, view)


def run_import(path: Path, cluster: Cluster, fail_at: str = "", *more: str) -> subprocess.CompletedProcess[str]:
    return chronik("cluster", "import", str(path), "-b", cluster.bootstrap, "--yes", *more, fail_at=fail_at)


def names(cluster: Cluster) -> set[str]:
    with Client(cluster.bootstrap) as client:
        return {topic.name or "" for topic in list_topics(client) if not topic.is_internal}


def test_killed_import_can_be_resumed(folder: tuple[Path, dict[str, Any]]) -> None:
    path, view = folder
    with Cluster(3, broker=sample_data.EAGER) as cluster:
        for point in POINTS:
            killed = run_import(path, cluster, point)
            assert killed.returncode == failpoints.EXIT_CODE, (point, killed.stdout, killed.stderr)
            assert names(cluster) == (set(view["ends"]) if point == "finished" else set()), point
            if point != "begun":
                with Client(cluster.bootstrap) as client, pytest.raises(KafkaError) as refused:
                    create_topics(client, [NewTopic("plain")])
                assert refused.value.code is ErrorCode.TOPIC_ALREADY_EXISTS
        again = run_import(path, cluster)
        assert again.stdout.splitlines()[-1] == "already imported"
        assert_imported(cluster.bootstrap, view)
        cluster.wait_until_agreed()
        # An emptied partition has no segments: only its log start can be compared.
        filled = [Place(*each) for name, ends in view["ends"].items() for each in ends if name != "emptied"]
        replication_helpers.check_replicas(cluster, filled)


def test_import_into_running_cluster_survives_node_loss(folder: tuple[Path, dict[str, Any]]) -> None:
    """The cluster's producers have ids that the directory contains, too: their batches must not be confused."""
    path, view = folder
    with Cluster(3, broker=sample_data.EAGER) as cluster:
        with Client(cluster.bootstrap) as client:
            create_topics(client, [NewTopic("own", 3)])
        producer = Producer({"bootstrap.servers": cluster.bootstrap, "enable.idempotence": True})
        producer.produce("own", b"first")
        assert producer.flush(30) == 0
        sample_data.commit(cluster.bootstrap, "readers", {("own", 0): 0})
        assert run_import(path, cluster, "request:2").returncode == failpoints.EXIT_CODE
        cluster.leader().kill()
        imported = run_import(path, cluster)
        assert imported.returncode == 0, imported.stderr
        for node in cluster.nodes.values():
            if not node.is_running:
                node.start()
        cluster.wait_until_ready()
        groups = view["groups"] | {
            "readers": view["groups"]["readers"] | {TopicPartition("own", 0): GroupOffset(0, "at 0\x00")}
        }
        assert_imported(cluster.bootstrap, view | {"groups": groups})
        before = sample_data.read_end_offsets(cluster.bootstrap, "plain")
        for index in range(3):
            for number in range(20):
                producer.produce("plain", f"new {number}", partition=index)
        assert producer.flush(30) == 0
        assert sample_data.read_end_offsets(cluster.bootstrap, "plain") == {
            key: end + 20 for key, end in before.items()
        }


def test_impossible_import_is_rejected_before_any_change(folder: tuple[Path, dict[str, Any]], tmp_path: Path) -> None:
    path = tmp_path / "node" / "data"  # a copy, because the test starts its node
    shutil.copytree(folder[0], path)
    with Cluster(1) as cluster:
        with Client(cluster.bootstrap) as client:
            create_topics(client, [NewTopic("plain"), NewTopic("old.old")])
        refused = run_import(path, cluster)
        assert refused.returncode == 1
        assert refused.stderr == "import rejected: topics with these names already exist: plain\n"
        assert names(cluster) == {"plain", "old.old"}
        with Client(cluster.bootstrap) as client:
            delete_topics(client, ["plain"])
        planned = run_import(path, cluster, "", "--dry-run")
        assert planned.returncode == 0
        assert "7 topics, 11 partitions" in planned.stdout
        assert run_import(path, cluster, "request").returncode == failpoints.EXIT_CODE
        given_up = chronik("cluster", "import", "--give-up", "--yes", "-b", cluster.bootstrap)
        assert given_up.stdout.startswith(f"import {path} (")
        nothing = chronik("cluster", "import", "--give-up", "-b", cluster.bootstrap, "--yes")
        assert nothing.stdout == "there is no unfinished import\n"
        assert run_import(path, cluster).returncode == 0, "topic ids of deleted topics can be imported again"
        assert names(cluster) == {"old.old", *folder[1]["ends"]}
        with Broker(path.parent) as running:
            refused = run_import(path, cluster)
            assert (refused.returncode, refused.stderr) == (1, f"chronik: {path} is in use: stop the node first\n")
            del running
