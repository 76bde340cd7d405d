from __future__ import annotations

import os
import signal
import socket
import stat
from pathlib import Path

import pytest

from chronik.cli.cluster.local_nodes import HOST
from chronik.config import load_config
from chronik.metadata import levels
from tests.cli.cluster.local_cluster import NODES, LocalCluster
from tests.cli.command_line import run_chronik

pytestmark = pytest.mark.slow


def test_up_starts_nodes_restarts_killed_node_and_down_stops_all(local: LocalCluster) -> None:
    up = local.up("--nodes", str(NODES))
    assert up.lines[-2].startswith("every node lists brokers 1, 2, 3")
    assert [local.brokers(node_id) for node_id in (1, 2, 3)] == ["Brokers: 1, 2, 3"] * 3

    report = local.status()
    assert report["members"] == [1, 2, 3]
    assert report["leader"] in (1, 2, 3)
    assert report["same_state"] is True
    assert [node["status"] for node in report["nodes"]] == ["online"] * 3
    assert len({node["pid"] for node in report["nodes"]}) == 3

    victim = report["leader"]
    pids = local.pids()
    victim_pid = pids[victim - 1]
    assert victim_pid
    os.kill(victim_pid, signal.SIGKILL)
    assert local.statuses()[victim - 1] == "down"

    again = local.up().lines
    assert [line.split(":")[0] for line in again if line.startswith("node ")] == [
        f"node {node_id} {'started' if node_id == victim else 'is already running'}" for node_id in (1, 2, 3)
    ]
    assert [local.brokers(node_id) for node_id in (1, 2, 3)] == ["Brokers: 1, 2, 3"] * 3
    assert [new == old for new, old in zip(local.pids(), pids, strict=True)] == [
        node_id != victim for node_id in (1, 2, 3)
    ]

    assert local.down().lines == ["node 1 stopped", "node 2 stopped", "node 3 stopped"]
    assert local.statuses() == ["down"] * 3
    assert local.down().lines == [f"node {node_id} was not running" for node_id in (1, 2, 3)]


def test_status_works_with_directory_and_with_any_broker(local: LocalCluster) -> None:
    local.up()
    lines = run_chronik("cluster", "status", "--dir", str(local.directory)).lines
    assert lines[0] == "Members: 1, 2, 3"
    assert lines[1].startswith("Leader: node ")
    assert lines[2] == f"Level: {levels.HIGHEST}"
    assert lines[3].startswith("State: the same on 3 nodes")
    assert lines[5].split()[:4] == ["NODE", "STATUS", "ROLE", "PID"]

    report_of_broker = run_chronik("cluster", "status", "--json", bootstrap=f"{HOST}:{local.kafka + 1}").json
    assert report_of_broker["members"] == [1, 2, 3]
    assert report_of_broker["leader"] == local.status()["leader"]
    assert [node["kafka"] for node in report_of_broker["nodes"]] == [
        f"{HOST}:{local.kafka + number}" for number in range(3)
    ]


def test_cluster_with_one_node_elects_leader(local: LocalCluster) -> None:
    assert local.up("--nodes", "1").lines[-2].startswith("every node lists brokers 1 ")
    assert local.status()["leader"] == 1


@pytest.mark.parametrize("has_user", [False, True])
def test_up_works_when_http_ports_require_login(local: LocalCluster, has_user: bool) -> None:
    local.write_config_files(1)
    file = local.directory / "node1.toml"
    broker = '\n[broker]\n"authorizer.class.name" = "standard"\n"super.users" = "User:admin;User:ANONYMOUS"\n'
    file.write_text(file.read_text() + broker)
    lines = local.up().lines
    assert lines[-2].startswith("every node lists brokers 1 ")
    assert lines[-3].startswith(
        "the HTTP ports of nodes 1 require a login: readiness was checked over Kafka's protocol"
    )
    if has_user:
        bootstrap = f"{HOST}:{local.kafka}"
        password = local.directory / "password"
        password.write_text("correct horse")
        assert run_chronik("users", "add", "admin", "--password-file", str(password), bootstrap=bootstrap).lines
        settings = local.directory / "client.properties"
        settings.write_text("security.protocol=PLAINTEXT\nsasl.username=admin\nsasl.password=correct horse\n")
        again = local.up("--client-config", str(settings)).lines
        assert not [line for line in again if "require a login" in line]


def test_config_files_with_cluster_secret_are_private(local: LocalCluster) -> None:
    local.write_config_files(3)
    files = sorted(local.directory.iterdir())
    assert [file.name for file in files] == ["node1.toml", "node2.toml", "node3.toml"]
    assert [stat.S_IMODE(file.stat().st_mode) for file in files] == [0o600] * 3
    configs = [load_config(file, {}) for file in files]
    (secret,) = {config.cluster_secret for config in configs}
    assert secret is not None
    assert len(secret) > 40
    assert [config.data_dir for config in configs] == [local.directory / f"node{number}" for number in (1, 2, 3)]
    assert {(config.replication_factor, config.min_insync_replicas) for config in configs} == {(3, 2)}


def test_up_rejects_port_in_use_without_writing_files(local: LocalCluster) -> None:
    with socket.create_server((HOST, local.raft + 1)):
        result = local.up()
    assert result.code == 1
    assert result.err == (
        f"chronik: the raft port of node 2, {HOST}:{local.raft + 1}, is in use by another program: "
        "choose another with --raft-port\n"
    )
    assert not local.directory.exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--nodes", "2"), "--nodes 2: the cluster in DIR was created with 1"),
        (("--kafka-port", "7000"), "--kafka-port 7000: the cluster in DIR was created with PORT"),
    ],
)
def test_up_rejects_options_that_differ_from_existing_cluster(
    local: LocalCluster, arguments: tuple[str, str], message: str
) -> None:
    local.write_config_files(1)
    result = run_chronik("cluster", "up", "--dir", str(local.directory), *arguments)
    expected = message.replace("DIR", str(local.directory)).replace("PORT", str(local.kafka))
    assert (result.code, result.err) == (1, f"chronik: {expected}\n")


def test_up_reports_last_log_line_of_node_that_exits(local: LocalCluster) -> None:
    local.write_config_files(1)
    (local.directory / "node1").mkdir()
    (local.directory / "node1" / "node.json").write_text("{}")
    result = local.up()
    assert result.code == 1
    assert result.err.startswith("chronik: node 1 exited with code 2: ")
    assert "node.json" in result.err
    assert local.statuses() == ["down"]


def test_down_ignores_pid_of_other_program(local: LocalCluster) -> None:
    local.write_config_files(1)
    (local.directory / "node1.pid").write_text(f"{os.getpid()}\n")
    assert local.statuses() == ["down"]
    assert local.down().lines == ["node 1 was not running"]


@pytest.mark.parametrize("action", ["down", "status"])
def test_directory_without_cluster_is_rejected(tmp_path: Path, action: str) -> None:
    result = run_chronik("cluster", action, "--dir", str(tmp_path))
    assert result.code == 1
    assert result.err == f"chronik: no cluster in {tmp_path}; use chronik cluster up to create one\n"


def test_up_rejects_directory_with_missing_config_file(local: LocalCluster) -> None:
    local.write_config_files(3)
    (local.directory / "node2.toml").unlink()
    result = local.up()
    assert result.err == f"chronik: {local.directory}: node2.toml missing; other nodes list these nodes as peers\n"
