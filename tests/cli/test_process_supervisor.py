"""`chronik start --processes N`: several nodes in the machine's rack, restarted when they exit."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from chronik.cli.process_supervisor import (
    RESTART_SECONDS_MAX,
    RESTART_SECONDS_MIN,
    STABLE_SECONDS,
    NodeProcess,
    build_common_arguments,
    plan_node_processes,
)
from chronik.client.cluster import ClusterClient as Client
from chronik.client.errors import ClientError
from chronik.client.nodes import describe_cluster
from chronik.config import Address, NodeConfig, PeerConfig
from chronik.console.http_client import NodeRequestError, fetch_status
from chronik.errors import ConfigError
from chronik.testing.ports import HOST, ReservedPorts
from tests.cli.cluster.local_cluster import ConsecutivePorts
from tests.cli.command_line import COMMAND, TIMEOUT_S, environment
from tests.cli.pseudo_terminal import PseudoTerminal
from tests.packaging.node_process import run_node

NODES = 3
DEADLINE_SECONDS = 60


def peers(ports: list[int], first: int = 1) -> tuple[PeerConfig, ...]:
    pairs = zip(ports[:NODES], ports[NODES : 2 * NODES], strict=True)
    return tuple(
        PeerConfig(first + number, Address(HOST, kafka), Address(HOST, raft))
        for number, (kafka, raft) in enumerate(pairs)
    )


def test_node_processes_use_addresses_from_peers() -> None:
    config = NodeConfig(
        node_id=4, data_dir=Path("/data"), http=Address(HOST, 6092), peers=peers([*range(1, 7)], first=4)
    )
    planned = plan_node_processes(config, 2, ["--config", "x.toml"])
    assert [node.node_id for node in planned] == [4, 5]
    words = list(planned[1].command)
    assert words[words.index("start") :] == [
        "start",
        *("--config", "x.toml", "--node-id", "5", "--data", "/data/node5"),
        *("--kafka", f"{HOST}:2", "--http", f"{HOST}:6093"),
    ]
    assert planned[0].rack == os.uname().nodename
    assert plan_node_processes(NodeConfig(node_id=4, rack="cellar", peers=config.peers), 1, [])[0].rack == "cellar"


def test_each_node_has_registry_address_of_its_own() -> None:
    config = NodeConfig(node_id=1, peers=peers([*range(1, 7)]), registry=Address(HOST, 8081))
    first, second = (node.command for node in plan_node_processes(config, 2, []))
    assert first[-2:] == ["--registry", f"{HOST}:8081"]
    assert second[-2:] == ["--registry", f"{HOST}:8082"]


def test_only_first_node_has_default_http_address() -> None:
    config = NodeConfig(node_id=1, peers=peers([*range(1, 7)]), http=Address(HOST, 6092), http_is_default=True)
    first, second = (list(node.command) for node in plan_node_processes(config, 2, []))
    assert "--http" not in first, "the first node keeps the default address"
    assert second[-2:] == ["--http", "off"]


@pytest.mark.parametrize(
    ("config", "count", "expected"),
    [
        (NodeConfig(), 0, "--processes 0: expected an integer of at least 1"),
        (NodeConfig(), 2, "--processes 2: node 1 is missing in [[peers]]"),
        (NodeConfig(peers=peers([*range(1, 7)])), 4, "--processes 4: node 4 is missing in [[peers]]"),
        (
            NodeConfig(broker={"listeners": "A://:1"}),
            1,
            "listeners in [broker] cannot be used with --processes; set the addresses in [[peers]]",
        ),
        (
            NodeConfig(advertised=Address("h", 1)),
            1,
            "advertised cannot be used with --processes; set the addresses in [[peers]]",
        ),
    ],
)
def test_invalid_processes_option_is_rejected(config: NodeConfig, count: int, expected: str) -> None:
    with pytest.raises(ConfigError) as raised:
        plan_node_processes(config, count, [])
    assert str(raised.value) == expected


def test_common_arguments_are_passed_to_all_nodes() -> None:
    words = build_common_arguments(Path("x.toml"), flush=None, log_level="debug", log_format="json")
    assert words == ["--config", "x.toml", "--log-level", "debug", "--log-format", "json"]


class ExitedProcess:
    """A process that has exited with code 1."""

    def poll(self) -> int:
        return 1


def test_restart_delay_doubles_until_node_is_stable() -> None:
    node, now, waits = NodeProcess(1, [], ""), 0.0, []
    for run_seconds in [1.0] * 6 + [STABLE_SECONDS]:
        node.process, node.started_at = ExitedProcess(), now  # type: ignore[assignment]
        now += run_seconds
        assert node.poll_exit_code(now) == 1
        assert node.poll_exit_code(now) is None
        waits.append(node.restart_at - now)
    assert waits == [RESTART_SECONDS_MIN, 2.0, 4.0, 8.0, 16.0, RESTART_SECONDS_MAX, RESTART_SECONDS_MIN]


def wait_for(what: str, state: Callable[[], Any]) -> Any:
    """Poll until `state` returns a true value, and return it."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not (value := state()):
        assert time.monotonic() < deadline, f"not within {DEADLINE_SECONDS} s: {what}"
        time.sleep(0.05)
    return value


def start_command(folder: Path, ports: list[int]) -> list[str]:
    lines = [f'data_dir = "{folder / "data"}"', f'http = "{HOST}:{ports[2 * NODES]}"']
    for peer in peers(ports):
        lines += ["[[peers]]", f"id = {peer.id}", f'kafka = "{peer.kafka}"', f'raft = "{peer.raft}"']
    file = folder / "nodes.toml"
    file.write_text("\n".join(lines))
    return [*COMMAND, "start", "--config", str(file), "--processes", str(NODES)]


def free_ports() -> list[int]:
    """Return free Kafka and Raft ports, and the first of consecutive HTTP ports."""
    reserved, http = ReservedPorts(2 * NODES), ConsecutivePorts()
    ports = [*reserved.ports, http.first]
    reserved.release()
    http.release()
    return ports


@contextmanager
def running_nodes(folder: Path, ports: list[int]) -> Iterator[subprocess.Popen[bytes]]:
    words = start_command(folder, ports)
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(words, env=environment(None), stderr=log)
    try:
        yield process
    finally:
        if process.poll() is None:
            process.terminate()
        process.wait(60)


@pytest.mark.slow
def test_killed_node_is_restarted_and_sigterm_stops_all(tmp_path: Path) -> None:
    ports = free_ports()

    def pids() -> list[int]:
        try:
            found = [fetch_status(Address(HOST, ports[2 * NODES] + number), 5.0) for number in range(NODES)]
        except NodeRequestError:
            return []
        return [status["pid"] for status in found] if all(status["leader"] for status in found) else []

    def racks() -> list[str | None]:
        try:
            with Client(f"{HOST}:{ports[0]}") as client:
                return [broker.rack for broker in describe_cluster(client.any_broker()).brokers if not broker.is_fenced]
        except ClientError:
            return []

    with running_nodes(tmp_path, ports) as process:
        before = wait_for("all nodes have a leader", pids)
        wait_for("all brokers are there, in one rack", lambda: racks() == [os.uname().nodename] * NODES)
        os.kill(before[1], signal.SIGKILL)
        wait_for("another process of node 2", lambda: (now := pids()) and now[1] != before[1])
        assert (pids()[0], pids()[2]) == (before[0], before[2])
        process.terminate()
        assert process.wait(60) == 0
    assert pids() == []
    assert "node 2: process exited with code -9; restarting it" in (tmp_path / "log").read_text()
    assert sorted(path.name for path in (tmp_path / "data").iterdir()) == ["node1", "node2", "node3"]


@pytest.mark.slow
def test_ctrl_c_stops_nodes_one_by_one(tmp_path: Path) -> None:
    """A terminal sends SIGINT to all processes; nodes must stop one by one to transfer their leadership."""
    ports = free_ports()
    with PseudoTerminal(start_command(tmp_path, ports), environment(None)) as terminal:
        for _ in range(NODES):
            terminal.wait_for_output("registered broker")
        terminal.type("\x03")
        for node in range(NODES, 0, -1):
            before = terminal.wait_for_output(f"chronik: node {node}: stopping\r\n")
            assert before.count("chronik.node: node stopping\r\n") == (node < NODES), before
        assert terminal.wait_for_exit() == 0


@pytest.mark.slow
def test_supervisor_notifies_service_manager_and_logs_json(tmp_path: Path) -> None:
    """The service manager is notified by the supervisor only, which also logs in JSON."""
    reserved = ReservedPorts(2)
    kafka, raft = reserved.ports
    file, socket_path, log = tmp_path / "nodes.toml", tmp_path / "notify", tmp_path / "log"
    file.write_text(f'[[peers]]\nid = 1\nkafka = "{HOST}:{kafka}"\nraft = "{HOST}:{raft}"\n')
    words = ["start", "--config", str(file), "--processes", "1", "--log-format", "json"]

    def lines(part: str) -> list[dict[str, Any]]:
        found = [json.loads(line) for line in log.read_text().splitlines(keepends=True) if line.endswith("\n")]
        return [line for line in found if part in line["message"]]

    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(socket_path))
        manager.settimeout(TIMEOUT_S)
        with run_node(words, tmp_path, NOTIFY_SOCKET=str(socket_path)) as process:
            assert manager.recv(100) == b"READY=1"
            wait_for("the node is ready", lambda: lines("answers Kafka clients on"))
            [child] = children_of(process.pid)
            os.kill(child, signal.SIGKILL)
            wait_for("the exit is logged", lambda: lines("node 1: process exited with code -9; restarting it"))
            wait_for("the node is ready again", lambda: len(lines("answers Kafka clients on")) == 2)
            process.terminate()
            assert manager.recv(100) == b"STOPPING=1"
            assert process.wait(TIMEOUT_S) == 0
            manager.setblocking(False)
            with pytest.raises(BlockingIOError):
                manager.recv(100)


def children_of(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
