"""`chronik start --processes N` runs several nodes with the machine as their rack, and starts those again that die."""

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

from chronik.cli.processes import (
    RESTART_SECONDS_MAX,
    RESTART_SECONDS_MIN,
    STEADY_SECONDS,
    Child,
    children,
    common_words,
)
from chronik.client.cluster import Cluster as Client
from chronik.client.errors import ClientError
from chronik.client.quorum import cluster_told_by
from chronik.config import Address, NodeConfig, Peer
from chronik.console.ask import NodeSilent, ask_status
from chronik.errors import ConfigError
from chronik.testing.ports import HOST, ReservedPorts
from tests.cli.cluster.local import Neighbours
from tests.cli.running import COMMAND, TIMEOUT_S, environment
from tests.cli.typing import Typing
from tests.packaging.starting import running

NODES = 3
DEADLINE_SECONDS = 60


def peers(ports: list[int], first: int = 1) -> tuple[Peer, ...]:
    pairs = zip(ports[:NODES], ports[NODES : 2 * NODES], strict=True)
    return tuple(
        Peer(first + number, Address(HOST, kafka), Address(HOST, raft)) for number, (kafka, raft) in enumerate(pairs)
    )


def test_each_node_is_where_the_peers_have_it() -> None:
    config = NodeConfig(
        node_id=4, data_dir=Path("/data"), http=Address(HOST, 6092), peers=peers([*range(1, 7)], first=4)
    )
    planned = children(config, 2, ["--config", "x.toml"])
    assert [node.node_id for node in planned] == [4, 5]
    words = list(planned[1].command)
    assert words[words.index("start") :] == [
        "start",
        *("--config", "x.toml", "--node-id", "5", "--data", "/data/node5"),
        *("--kafka", f"{HOST}:2", "--http", f"{HOST}:6093"),
    ]
    assert planned[0].rack == os.uname().nodename
    assert children(NodeConfig(node_id=4, rack="cellar", peers=config.peers), 1, [])[0].rack == "cellar"


def test_one_console_shows_all_of_them() -> None:
    config = NodeConfig(node_id=1, peers=peers([*range(1, 7)]), http=Address(HOST, 6092), http_is_default=True)
    first, second = (list(node.command) for node in children(config, 2, []))
    assert "--http" not in first, "it is where it usually is, if that is free"
    assert second[-2:] == ["--http", "off"]


@pytest.mark.parametrize(
    ("config", "count", "told"),
    [
        (NodeConfig(), 0, "--processes 0: expected a whole number, 1 or more"),
        (NodeConfig(), 2, "--processes 2: expected node 1 in [[peers]]"),
        (NodeConfig(peers=peers([*range(1, 7)])), 4, "--processes 4: expected node 4 in [[peers]]"),
        (
            NodeConfig(broker={"listeners": "A://:1"}),
            1,
            "listeners in [broker]: expected none with --processes; each node is where [[peers]] has it",
        ),
        (
            NodeConfig(advertised=Address("h", 1)),
            1,
            "advertised: expected none with --processes; each node is where [[peers]] has it",
        ),
    ],
)
def test_what_cannot_be_started_is_told(config: NodeConfig, count: int, told: str) -> None:
    with pytest.raises(ConfigError) as refused:
        children(config, count, [])
    assert str(refused.value) == told


def test_all_are_started_with_what_was_given() -> None:
    words = common_words(Path("x.toml"), flush=None, log_level="debug", log_format="json")
    assert words == ["--config", "x.toml", "--log-level", "debug", "--log-format", "json"]


class Ended:
    """A process that has."""

    def poll(self) -> int:
        return 1


def test_a_node_that_ends_again_and_again_is_started_ever_more_slowly() -> None:
    node, now, waits = Child(1, [], ""), 0.0, []
    for lasted in [1.0] * 6 + [STEADY_SECONDS]:
        node.process, node.started_at = Ended(), now  # type: ignore[assignment]
        now += lasted
        assert node.ended(now) == 1
        assert node.ended(now) is None
        waits.append(node.start_at - now)
    assert waits == [RESTART_SECONDS_MIN, 2.0, 4.0, 8.0, 16.0, RESTART_SECONDS_MAX, RESTART_SECONDS_MIN]


def wait_for(what: str, state: Callable[[], Any]) -> Any:
    """Returns the first true value of `state`."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not (value := state()):
        assert time.monotonic() < deadline, f"not within {DEADLINE_SECONDS} s: {what}"
        time.sleep(0.05)
    return value


def words_of(folder: Path, ports: list[int]) -> list[str]:
    lines = [f'data_dir = "{folder / "data"}"', f'http = "{HOST}:{ports[2 * NODES]}"']
    for peer in peers(ports):
        lines += ["[[peers]]", f"id = {peer.id}", f'kafka = "{peer.kafka}"', f'raft = "{peer.raft}"']
    file = folder / "nodes.toml"
    file.write_text("\n".join(lines))
    return [*COMMAND, "start", "--config", str(file), "--processes", str(NODES)]


def free_ports() -> list[int]:
    """Those of clients, those between nodes, and the first of HTTP with free ones behind it for the other nodes."""
    reserved, http = ReservedPorts(2 * NODES), Neighbours()
    ports = [*reserved.ports, http.first]
    reserved.release()
    http.release()
    return ports


@contextmanager
def started(folder: Path, ports: list[int]) -> Iterator[subprocess.Popen[bytes]]:
    words = words_of(folder, ports)
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(words, env=environment(None), stderr=log)
    try:
        yield process
    finally:
        if process.poll() is None:
            process.terminate()
        process.wait(60)


@pytest.mark.slow
def test_nodes_are_started_again_and_stopped_together(tmp_path: Path) -> None:
    ports = free_ports()

    def pids() -> list[int]:
        try:
            found = [ask_status(Address(HOST, ports[2 * NODES] + number), 5.0) for number in range(NODES)]
        except NodeSilent:
            return []
        return [status["pid"] for status in found] if all(status["leader"] for status in found) else []

    def racks() -> list[str | None]:
        try:
            with Client(f"{HOST}:{ports[0]}") as client:
                return [broker.rack for broker in cluster_told_by(client.any_broker()).brokers if not broker.is_fenced]
        except ClientError:
            return []

    with started(tmp_path, ports) as process:
        before = wait_for("all nodes have a leader", pids)
        wait_for("all brokers are there, in one rack", lambda: racks() == [os.uname().nodename] * NODES)
        os.kill(before[1], signal.SIGKILL)
        wait_for("another process of node 2", lambda: (now := pids()) and now[1] != before[1])
        assert (pids()[0], pids()[2]) == (before[0], before[2])
        process.terminate()
        assert process.wait(60) == 0
    assert pids() == []
    assert "node 2 ended with exit code -9: it is started again" in (tmp_path / "log").read_text()
    assert sorted(path.name for path in (tmp_path / "data").iterdir()) == ["node1", "node2", "node3"]


@pytest.mark.slow
def test_ctrl_c_stops_one_after_the_other(tmp_path: Path) -> None:
    """A terminal sends it to all processes at once; each node is to hand over to those that are left."""
    ports = free_ports()
    with Typing(words_of(tmp_path, ports), environment(None)) as terminal:
        for _ in range(NODES):
            terminal.until("registered broker")
        terminal.type("\x03")
        for node in range(NODES, 0, -1):
            before = terminal.until(f"chronik: stopping node {node}\r\n")
            assert before.count("chronik.node: stopping\r\n") == (node < NODES), before
        assert terminal.code() == 0


@pytest.mark.slow
def test_they_are_one_service_with_one_log(tmp_path: Path) -> None:
    """The service manager hears the first process alone, and what it says is an object, too, where the log is JSON."""
    reserved = ReservedPorts(2)
    kafka, raft = reserved.ports
    file, place, log = tmp_path / "nodes.toml", tmp_path / "notify", tmp_path / "log"
    file.write_text(f'[[peers]]\nid = 1\nkafka = "{HOST}:{kafka}"\nraft = "{HOST}:{raft}"\n')
    words = ["start", "--config", str(file), "--processes", "1", "--log-format", "json"]

    def lines(part: str) -> list[dict[str, Any]]:
        found = [json.loads(line) for line in log.read_text().splitlines(keepends=True) if line.endswith("\n")]
        return [line for line in found if part in line["message"]]

    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(place))
        manager.settimeout(TIMEOUT_S)
        with running(words, tmp_path, NOTIFY_SOCKET=str(place)) as process:
            assert manager.recv(100) == b"READY=1"
            wait_for("it answers", lambda: lines("answers Kafka clients on"))
            [child] = children_of(process.pid)
            os.kill(child, signal.SIGKILL)
            wait_for("it is told", lambda: lines("node 1 ended with exit code -9: it is started again"))
            wait_for("it answers again", lambda: len(lines("answers Kafka clients on")) == 2)
            process.terminate()
            assert manager.recv(100) == b"STOPPING=1"
            assert process.wait(TIMEOUT_S) == 0
            manager.setblocking(False)
            with pytest.raises(BlockingIOError):
                manager.recv(100)


def children_of(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
