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
from tests.cli.cluster.local import NODES, Local
from tests.cli.running import chronik

pytestmark = pytest.mark.slow


def test_a_cluster_goes_up_is_mended_and_goes_down(local: Local) -> None:
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
    victims_pid = pids[victim - 1]
    assert victims_pid
    os.kill(victims_pid, signal.SIGKILL)
    assert local.statuses()[victim - 1] == "down"

    again = local.up().lines
    assert [line.split(":")[0] for line in again if line.startswith("node ")] == [
        f"node {node_id} {'started' if node_id == victim else 'is running already'}" for node_id in (1, 2, 3)
    ]
    assert [local.brokers(node_id) for node_id in (1, 2, 3)] == ["Brokers: 1, 2, 3"] * 3
    assert [new == old for new, old in zip(local.pids(), pids, strict=True)] == [
        node_id != victim for node_id in (1, 2, 3)
    ]

    assert local.down().lines == ["node 1 stopped", "node 2 stopped", "node 3 stopped"]
    assert local.statuses() == ["down"] * 3
    assert local.down().lines == [f"node {node_id} was not running" for node_id in (1, 2, 3)]


def test_status_is_told_for_people_and_by_any_broker(local: Local) -> None:
    local.up()
    lines = chronik("cluster", "status", "--dir", str(local.folder)).lines
    assert lines[0] == "Members: 1, 2, 3"
    assert lines[1].startswith("Leader: node ")
    assert lines[2] == f"Level: {levels.HIGHEST}"
    assert lines[3].startswith("State: the same on 3 nodes")
    assert lines[5].split()[:4] == ["NODE", "STATUS", "ROLE", "PID"]

    told = chronik("cluster", "status", "--json", bootstrap=f"{HOST}:{local.kafka + 1}").json
    assert told["members"] == [1, 2, 3]
    assert told["leader"] == local.status()["leader"]
    assert [node["kafka"] for node in told["nodes"]] == [f"{HOST}:{local.kafka + number}" for number in range(3)]


def test_a_cluster_of_one_is_a_cluster(local: Local) -> None:
    assert local.up("--nodes", "1").lines[-2].startswith("every node lists brokers 1 ")
    assert local.status()["leader"] == 1


@pytest.mark.parametrize("has_user", [False, True])
def test_cluster_with_an_authorizer_and_without_a_token_goes_up(local: Local, has_user: bool) -> None:
    local.lay_out(1)
    file = local.folder / "node1.toml"
    broker = '\n[broker]\n"authorizer.class.name" = "standard"\n"super.users" = "User:admin;User:ANONYMOUS"\n'
    file.write_text(file.read_text() + broker)
    lines = local.up().lines
    assert lines[-2].startswith("every node lists brokers 1 ")
    assert lines[-3].startswith(
        "the HTTP ports of nodes 1 ask for a login: readiness was checked over Kafka's protocol"
    )
    if has_user:
        bootstrap = f"{HOST}:{local.kafka}"
        password = local.folder / "password"
        password.write_text("correct horse")
        assert chronik("users", "add", "admin", "--password-file", str(password), bootstrap=bootstrap).lines
        settings = local.folder / "client.properties"
        settings.write_text("security.protocol=PLAINTEXT\nsasl.username=admin\nsasl.password=correct horse\n")
        again = local.up("--client-config", str(settings)).lines
        assert not [line for line in again if "ask for a login" in line]


def test_configs_hold_a_secret_that_only_their_owner_can_read(local: Local) -> None:
    local.lay_out(3)
    files = sorted(local.folder.iterdir())
    assert [file.name for file in files] == ["node1.toml", "node2.toml", "node3.toml"]
    assert [stat.S_IMODE(file.stat().st_mode) for file in files] == [0o600] * 3
    configs = [load_config(file, {}) for file in files]
    (secret,) = {config.cluster_secret for config in configs}
    assert secret is not None
    assert len(secret) > 40
    assert [config.data_dir for config in configs] == [local.folder / f"node{number}" for number in (1, 2, 3)]
    assert {(config.replication_factor, config.min_insync_replicas) for config in configs} == {(3, 2)}


def test_a_port_that_is_taken_is_one_line_and_nothing_is_left(local: Local) -> None:
    with socket.create_server((HOST, local.raft + 1)):
        refused = local.up()
    assert refused.code == 1
    assert refused.err == (
        f"chronik: the raft port of node 2, {HOST}:{local.raft + 1}, is taken by another program: "
        "choose another with --raft-port\n"
    )
    assert not local.folder.exists()


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--nodes", "2"), "--nodes 2: the cluster in DIR was made with 1"),
        (("--kafka-port", "7000"), "--kafka-port 7000: the cluster in DIR was made with PORT"),
    ],
)
def test_a_cluster_stays_what_it_was_made_as(local: Local, arguments: tuple[str, str], told: str) -> None:
    local.lay_out(1)
    refused = chronik("cluster", "up", "--dir", str(local.folder), *arguments)
    expected = told.replace("DIR", str(local.folder)).replace("PORT", str(local.kafka))
    assert (refused.code, refused.err) == (1, f"chronik: {expected}\n")


def test_a_node_that_does_not_start_is_told_with_its_last_words(local: Local) -> None:
    local.lay_out(1)
    (local.folder / "node1").mkdir()
    (local.folder / "node1" / "node.json").write_text("{}")
    refused = local.up()
    assert refused.code == 1
    assert refused.err.startswith("chronik: node 1 ended with exit code 2: ")
    assert "node.json" in refused.err
    assert local.statuses() == ["down"]


def test_a_pid_that_belongs_to_another_program_is_left_alone(local: Local) -> None:
    local.lay_out(1)
    (local.folder / "node1.pid").write_text(f"{os.getpid()}\n")
    assert local.statuses() == ["down"]
    assert local.down().lines == ["node 1 was not running"]


@pytest.mark.parametrize("action", ["down", "status"])
def test_a_folder_without_a_cluster_is_told_so(tmp_path: Path, action: str) -> None:
    refused = chronik("cluster", action, "--dir", str(tmp_path))
    assert refused.code == 1
    assert refused.err == f"chronik: there is no cluster in {tmp_path}; chronik cluster up makes one\n"


def test_half_a_cluster_is_not_taken_for_a_whole_one(local: Local) -> None:
    local.lay_out(3)
    (local.folder / "node2.toml").unlink()
    refused = local.up()
    assert refused.err == f"chronik: {local.folder}: node2.toml missing; the other nodes need them\n"
