"""Nodes that come to a cluster on this machine, or leave it: their files and processes.

DIR/node4.toml           written when node 4 comes; it names all nodes of the cluster as its peers
DIR/node4.toml.removed   what becomes of it when the node is out: `cluster up` does not start it any more
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from chronik.cli.arguments import WrongInput
from chronik.cli.cluster.local_nodes import (
    ClusterNotDown,
    ClusterNotUp,
    LocalNode,
    check_ports,
    existing_nodes,
    is_taken,
    retired_ids,
    write_configs,
)
from chronik.config import Address, Peer

PORTS_TRIED_MAX: Final = 100
STOP_SECONDS: Final = 60.0
POLL_SECONDS: Final = 0.05


def local_node(folder: Path, node_id: int) -> LocalNode | None:
    return next((node for node in existing_nodes(folder) if node.id == node_id), None)


def next_node_id(folder: Path, in_cluster: Collection[int]) -> int:
    """Returns that of a node which has a file and is not in the cluster, because its addition was stopped; otherwise
    one that no node here has ever had."""
    own = [node.id for node in existing_nodes(folder)]
    waiting = [each for each in own if each not in in_cluster]
    return min(waiting) if waiting else max({*own, *in_cluster, *retired_ids(folder)}) + 1


def planned_node(folder: Path, node_id: int, rack: str | None, votes: Mapping[int, bool]) -> LocalNode:
    """Plans a node like the others, on the next ports that are free; nothing is written yet. `votes` says who is meant
    to vote now. Raises WrongInput when its folder is there already."""
    nodes = existing_nodes(folder)
    like = nodes[0]
    data_dir = like.folder / f"node{node_id}"
    if data_dir.exists():
        raise WrongInput(f"{data_dir} is there already, from a node that was removed: move it away first")
    addresses = {kind: _free_address(nodes, kind) for kind in ("kafka", "http", "raft")}
    peers = [Peer(node.id, node.config.kafka, node.addresses()["raft"], votes.get(node.id, False)) for node in nodes]
    peers.append(Peer(node_id, addresses["kafka"], addresses["raft"], voter=False))
    config = replace(
        like.config,
        node_id=node_id,
        data_dir=data_dir,
        kafka=addresses["kafka"],
        http=addresses["http"],
        rack=rack,
        peers=tuple(peers),
    )
    return LocalNode(like.folder, config)


def _free_address(nodes: Sequence[LocalNode], kind: str) -> Address:
    used = [node.addresses()[kind] for node in nodes if kind in node.addresses()]
    last = max(used, key=lambda address: address.port)
    for port in range(last.port + 1, last.port + 1 + PORTS_TRIED_MAX):
        address = Address(last.host, port)
        if not is_taken(address):
            return address
    raise WrongInput(f"no {kind} port is free from {last.port + 1} on")


def start(node: LocalNode) -> subprocess.Popen[bytes] | None:
    """Starts it, unless it runs."""
    if node.pid() is not None:
        return None
    if not node.config_file.exists():
        check_ports([node])
        write_configs([node])
    process = node.start()
    print(f"node {node.id} started: pid {process.pid}, kafka {node.config.kafka}, log {node.log_file}", flush=True)
    return process


def check_running(node: LocalNode, process: subprocess.Popen[bytes] | None) -> None:
    """Raises ClusterNotUp when it has ended."""
    if process is not None and (code := process.poll()) is not None:
        node.forget_process()
        raise ClusterNotUp(f"node {node.id} ended with exit code {code}: {node.last_words()}")


def retire(node: LocalNode) -> None:
    """Stops a node that is out of the cluster, and sees to it that it is not started again. Raises ClusterNotDown."""
    pid = node.pid()
    if pid is not None:
        node.ask_to_stop(pid)
    deadline = time.monotonic() + STOP_SECONDS
    while node.pid() is not None:
        if time.monotonic() > deadline:
            raise ClusterNotDown(f"node {node.id} (pid {pid}) has not stopped; see {node.log_file}")
        time.sleep(POLL_SECONDS)
    node.forget_process()
    node.config_file.rename(node.retired_file)
    done = "stopped" if pid is not None else "was not running"
    print(f"node {node.id} {done}; its data is still in {node.config.data_dir}")
