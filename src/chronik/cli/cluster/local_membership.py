"""Local nodes that are added to a cluster or removed from it: their files and processes.

DIR/node4.toml           created when node 4 is added; lists all nodes of the cluster as its peers
DIR/node4.toml.removed   the config file of a removed node; `cluster up` does not start it
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from chronik.cli.arguments import InvalidInput
from chronik.cli.cluster.local_nodes import (
    ClusterStartError,
    ClusterStopError,
    LocalNode,
    check_ports,
    is_port_in_use,
    load_nodes,
    retired_node_ids,
    write_configs,
)
from chronik.config import Address, PeerConfig

PORTS_TRIED_MAX: Final = 100
STOP_SECONDS: Final = 60.0
POLL_SECONDS: Final = 0.05


def find_local_node(folder: Path, node_id: int) -> LocalNode | None:
    return next((node for node in load_nodes(folder) if node.id == node_id), None)


def next_node_id(folder: Path, in_cluster: Collection[int]) -> int:
    """Return the id for the next node.

    A node that has a config file but is not a member comes first: its addition was interrupted. Otherwise the id is one
    that no local node has ever had.
    """
    own = [node.id for node in load_nodes(folder)]
    unadmitted = [each for each in own if each not in in_cluster]
    return min(unadmitted) if unadmitted else max({*own, *in_cluster, *retired_node_ids(folder)}) + 1


def plan_local_node(folder: Path, node_id: int, rack: str | None, votes: Mapping[int, bool]) -> LocalNode:
    """Plan a node with the settings of the existing ones, on the next free ports, without writing files.

    Args:
        folder: The directory of the local cluster.
        node_id: The id of the new node.
        rack: The rack of the new node.
        votes: Whether each existing node is a voter.

    Raises:
        InvalidInput: The node's data directory exists.
    """
    nodes = load_nodes(folder)
    template = nodes[0]
    data_dir = template.directory / f"node{node_id}"
    if data_dir.exists():
        raise InvalidInput(f"{data_dir} already exists, from a node that was removed: move it away first")
    addresses = {kind: _free_address(nodes, kind) for kind in ("kafka", "http", "raft")}
    peers = [
        PeerConfig(node.id, node.config.kafka, node.addresses()["raft"], votes.get(node.id, False)) for node in nodes
    ]
    peers.append(PeerConfig(node_id, addresses["kafka"], addresses["raft"], voter=False))
    config = replace(
        template.config,
        node_id=node_id,
        data_dir=data_dir,
        kafka=addresses["kafka"],
        http=addresses["http"],
        rack=rack,
        peers=tuple(peers),
    )
    return LocalNode(template.directory, config)


def _free_address(nodes: Sequence[LocalNode], kind: str) -> Address:
    used = [node.addresses()[kind] for node in nodes if kind in node.addresses()]
    last = max(used, key=lambda address: address.port)
    for port in range(last.port + 1, last.port + 1 + PORTS_TRIED_MAX):
        address = Address(last.host, port)
        if not is_port_in_use(address):
            return address
    raise InvalidInput(f"no free {kind} port from {last.port + 1} on")


def start_node(node: LocalNode) -> subprocess.Popen[bytes] | None:
    """Start the node if it is not running; return its process, or None if it was running."""
    if node.pid() is not None:
        return None
    if not node.config_file.exists():
        check_ports([node])
        write_configs([node])
    process = node.start()
    print(f"node {node.id}: started pid={process.pid} kafka={node.config.kafka} log={node.log_file}", flush=True)
    return process


def check_process(node: LocalNode, process: subprocess.Popen[bytes] | None) -> None:
    """Raise ClusterStartError if the node's process has exited."""
    if process is not None and (code := process.poll()) is not None:
        node.remove_pid_file()
        raise ClusterStartError(f"node {node.id} exited with code {code}: {node.last_log_line()}")


def retire_node(node: LocalNode) -> None:
    """Stop a node that was removed from the cluster, and rename its config file so that it is not started again."""
    pid = node.pid()
    if pid is not None:
        node.terminate(pid)
    deadline = time.monotonic() + STOP_SECONDS
    while node.pid() is not None:
        if time.monotonic() > deadline:
            raise ClusterStopError(f"node {node.id} (pid {pid}) did not stop in time; see {node.log_file}")
        time.sleep(POLL_SECONDS)
    node.remove_pid_file()
    node.config_file.rename(node.retired_file)
    outcome = "stopped" if pid is not None else "was not running"
    print(f"node {node.id}: {outcome}; its data is kept in {node.config.data_dir}")
