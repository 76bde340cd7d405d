"""`chronik cluster up` and `down`: start and stop a cluster on this machine."""

from __future__ import annotations

import argparse
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from chronik.cli.arguments import (
    CLIENT_ID,
    Actions,
    Run,
    WrongInput,
    add_client_config_argument,
    add_debug_argument,
    positive,
    security_of,
)
from chronik.cli.cluster.asking import why_not_ready
from chronik.cli.cluster.local_nodes import (
    ClusterNotDown,
    ClusterNotUp,
    FirstPorts,
    LocalNode,
    check_ports,
    existing_nodes,
    found_nodes,
    planned_nodes,
    write_configs,
)
from chronik.cli.output import numbers
from chronik.client.access.settings import ClientSecurity
from chronik.client.cluster import listed_brokers
from chronik.client.connection import Connection
from chronik.client.errors import ClientError
from chronik.client.quorum import cluster_told_by
from chronik.console.ask import NodeSilent, NotAuthorized
from chronik.protocol.errors import KafkaError

NODES: Final = 3
NODES_MAX: Final = 64
"""The most members that a cluster may have."""

PORTS: Final = FirstPorts(kafka=9092, http=6092, raft=5001)
PORT_MIN: Final = 1024
"""Ports below it are privileged."""
PORT_MAX: Final = 65535

UP_SECONDS: Final = 60
DOWN_SECONDS: Final = 60
ASK_SECONDS: Final = 5.0
POLL_SECONDS: Final = 0.05


def add_arguments(actions: Actions) -> None:
    up = actions.add_parser("up", help="start a cluster on this machine, or those of its nodes that are down")
    _add_local_arguments(up, run_up, UP_SECONDS)
    add_client_config_argument(up)
    up.add_argument("--nodes", type=positive, metavar="N", help=f"how many nodes a new cluster has (default: {NODES})")
    up.add_argument("--kafka-port", type=_port, metavar="PORT", help=f"Kafka port of node 1 (default: {PORTS.kafka})")
    up.add_argument("--http-port", type=_port, metavar="PORT", help=f"HTTP port of node 1 (default: {PORTS.http})")
    up.add_argument("--raft-port", type=_port, metavar="PORT", help=f"Raft port of node 1 (default: {PORTS.raft})")

    down = actions.add_parser("down", help="stop the nodes of a cluster on this machine; their data stays")
    _add_local_arguments(down, run_down, DOWN_SECONDS)


def _add_local_arguments(parser: argparse.ArgumentParser, run: Run, timeout_s: int) -> None:
    parser.set_defaults(run=run)
    parser.add_argument("--dir", type=Path, required=True, metavar="DIR", help="the folder of its nodes")
    parser.add_argument(
        "--timeout", type=positive, default=timeout_s, metavar="SECONDS", help="when to give up (default: %(default)d)"
    )
    add_debug_argument(parser)


def _port(text: str) -> int:
    if not text.isdigit() or not 1 <= int(text) <= PORT_MAX:
        raise argparse.ArgumentTypeError(f"{text!r}: expected a port from 1 to {PORT_MAX}")
    return int(text)


# Up


def run_up(arguments: argparse.Namespace) -> int:
    nodes = _nodes_to_be(arguments)
    pids = {node.id: node.pid() for node in nodes}
    began, processes = time.monotonic(), {}
    for node in nodes:
        if (pid := pids[node.id]) is None:
            processes[node.id] = node.start()
            print(f"node {node.id} started: {_description(node, processes[node.id].pid)}", flush=True)
        else:
            print(f"node {node.id} is running already: {_description(node, pid)}")
    locked = _wait_until_all_are_listed(nodes, processes, began + arguments.timeout, security_of(arguments))
    if locked:
        print(
            f"the HTTP ports of nodes {numbers(locked)} ask for a login: readiness was checked over Kafka's protocol; "
            "to check it over HTTP, set http_token in the nodes' files or name a user in --client-config"
        )
    took = f" after {time.monotonic() - began:.1f} s" if processes else ""
    print(f"every node lists brokers {numbers(node.id for node in nodes)}{took}")
    print(f"bootstrap servers: {','.join(str(node.config.kafka) for node in nodes)}")
    return 0


def _nodes_to_be(arguments: argparse.Namespace) -> list[LocalNode]:
    """Returns the nodes of the folder, or new ones. Nothing is written before it is clear that their ports are free."""
    nodes = found_nodes(arguments.dir)
    if nodes:
        _check_against(nodes, arguments)
        check_ports([node for node in nodes if node.pid() is None])
        return nodes
    count, ports = arguments.nodes or NODES, _ports(arguments)
    last = max(ports.kafka, ports.http, ports.raft) + count - 1
    if count > NODES_MAX or last > PORT_MAX:
        limit = f"at most {NODES_MAX} nodes" if count > NODES_MAX else f"no port above {PORT_MAX}"
        raise WrongInput(f"--nodes {count}: expected {limit}")
    nodes = planned_nodes(arguments.dir, count, ports)
    check_ports(nodes)
    write_configs(nodes)
    return nodes


def _check_against(nodes: list[LocalNode], arguments: argparse.Namespace) -> None:
    """Refuses what a cluster was not made with: another count or other ports would be another cluster."""
    first = nodes[0].addresses()
    given: dict[str, tuple[int | None, int | None]] = {"nodes": (arguments.nodes, len(nodes))}
    for kind, asked in (("kafka", arguments.kafka_port), ("http", arguments.http_port), ("raft", arguments.raft_port)):
        given[f"{kind}-port"] = (asked, first[kind].port if kind in first else None)
    for name, (asked, is_so) in given.items():
        if asked is not None and asked != is_so:
            raise WrongInput(f"--{name} {asked}: the cluster in {arguments.dir} was made with {is_so}")


def _ports(arguments: argparse.Namespace) -> FirstPorts:
    """With another Kafka port the others move along, so that two clusters do not collide."""
    kafka = arguments.kafka_port or PORTS.kafka
    shift = kafka - PORTS.kafka
    if PORTS.raft + shift < PORT_MIN:
        shift = 0
    return FirstPorts(kafka, arguments.http_port or PORTS.http + shift, arguments.raft_port or PORTS.raft + shift)


def _description(node: LocalNode, pid: int) -> str:
    places = ", ".join(f"{kind} {address}" for kind, address in node.addresses().items())
    return f"pid {pid}, {places}, log {node.log_file}"


def _wait_until_all_are_listed(
    nodes: list[LocalNode],
    processes: Mapping[int, subprocess.Popen[bytes]],
    deadline: float,
    security: ClientSecurity,
) -> list[int]:
    """Ask each node directly. Return the nodes whose HTTP ports ask for a login that is not known here. Raises
    ClusterNotUp."""
    expected, locked = [node.id for node in nodes], set[int]()
    for node in nodes:
        while (missing := _missing(node, expected, security, locked)) is not None:
            process = processes.get(node.id)
            if process is not None and (code := process.poll()) is not None:
                node.forget_process()
                raise ClusterNotUp(f"node {node.id} ended with exit code {code}: {node.last_words()}")
            if time.monotonic() > deadline:
                raise ClusterNotUp(f"node {node.id}: {missing}; see {node.log_file}")
            time.sleep(POLL_SECONDS)
    return sorted(locked)


def _missing(node: LocalNode, expected: list[int], security: ClientSecurity, locked: set[int]) -> str | None:
    """Return what this node still lacks, or None. A node that has just restarted may still be listed by others, so it
    must be ready, too.

    Where the HTTP port asks for a login, the node is added to `locked`, and readiness is what it says of itself over
    Kafka's protocol."""
    try:
        with Connection(node.config.kafka, client_id=CLIENT_ID, timeout_s=ASK_SECONDS, security=security) as connection:
            listed = listed_brokers(connection)
            if listed != expected:
                return f"it lists brokers {numbers(listed) or 'none'}"
            try:
                return why_not_ready(node, ASK_SECONDS, security)
            except NotAuthorized:
                locked.add(node.id)
                return cluster_told_by(connection).error_message
    except (ClientError, KafkaError, NodeSilent) as error:
        return str(error)


# Down


def run_down(arguments: argparse.Namespace) -> int:
    nodes = existing_nodes(arguments.dir)
    running = {node.id: pid for node in nodes if (pid := node.pid()) is not None}
    for node in nodes:
        if node.id in running:
            node.ask_to_stop(running[node.id])
    deadline = time.monotonic() + arguments.timeout
    for node in nodes:
        while node.id in running and node.pid() is not None:
            if time.monotonic() > deadline:
                raise ClusterNotDown(f"node {node.id} (pid {running[node.id]}) has not stopped; see {node.log_file}")
            time.sleep(POLL_SECONDS)
        node.forget_process()
        print(f"node {node.id} stopped" if node.id in running else f"node {node.id} was not running")
    return 0
