"""`chronik cluster up` and `down`: start and stop a local cluster."""

from __future__ import annotations

import argparse
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from chronik.cli.arguments import (
    CLIENT_ID,
    CommandRunner,
    InvalidInput,
    Subparsers,
    add_client_config_argument,
    add_debug_argument,
    load_security,
    parse_positive_int,
)
from chronik.cli.cluster.local_nodes import (
    BasePorts,
    ClusterStartError,
    ClusterStopError,
    LocalNode,
    check_ports_available,
    fetch_local_unready_reason,
    find_nodes,
    load_nodes,
    plan_nodes,
    write_configs,
)
from chronik.cli.output import join_ids
from chronik.client.access.settings import ClientSecurity
from chronik.client.cluster import list_broker_ids
from chronik.client.connection import BrokerConnection
from chronik.client.errors import ClientError
from chronik.client.nodes import describe_cluster
from chronik.console.http_client import NodeAuthorizationError, NodeRequestError
from chronik.protocol.errors import KafkaError

DEFAULT_NODES: Final = 3
NODES_MAX: Final = 64
"""Maximum number of nodes in a local cluster."""

DEFAULT_PORTS: Final = BasePorts(kafka=9092, http=6092, raft=5001)
PORT_MIN: Final = 1024
"""Lowest port number that an unprivileged process can use."""
PORT_MAX: Final = 65535

UP_SECONDS: Final = 60
DOWN_SECONDS: Final = 60
REQUEST_TIMEOUT_SECONDS: Final = 5.0
POLL_SECONDS: Final = 0.05


def add_arguments(actions: Subparsers) -> None:
    up = actions.add_parser("up", help="create and start a cluster on this machine, or start its stopped nodes")
    _add_local_arguments(up, run_up, UP_SECONDS)
    add_client_config_argument(up)
    up.add_argument(
        "--nodes",
        type=parse_positive_int,
        metavar="N",
        help=f"number of nodes of a new cluster (default: {DEFAULT_NODES})",
    )
    up.add_argument(
        "--kafka-port", type=_parse_port, metavar="PORT", help=f"Kafka port of node 1 (default: {DEFAULT_PORTS.kafka})"
    )
    up.add_argument(
        "--http-port", type=_parse_port, metavar="PORT", help=f"HTTP port of node 1 (default: {DEFAULT_PORTS.http})"
    )
    up.add_argument(
        "--raft-port", type=_parse_port, metavar="PORT", help=f"Raft port of node 1 (default: {DEFAULT_PORTS.raft})"
    )

    down = actions.add_parser("down", help="stop the nodes of a cluster on this machine; their data is kept")
    _add_local_arguments(down, run_down, DOWN_SECONDS)


def _add_local_arguments(parser: argparse.ArgumentParser, run: CommandRunner, timeout_s: int) -> None:
    parser.set_defaults(run=run)
    parser.add_argument("--dir", type=Path, required=True, metavar="DIR", help="directory of the cluster")
    parser.add_argument(
        "--timeout",
        type=parse_positive_int,
        default=timeout_s,
        metavar="SECONDS",
        help="time limit (default: %(default)d)",
    )
    add_debug_argument(parser)


def _parse_port(text: str) -> int:
    if not text.isdigit() or not 1 <= int(text) <= PORT_MAX:
        raise argparse.ArgumentTypeError(f"{text!r}: expected a port from 1 to {PORT_MAX}")
    return int(text)


# Up


def run_up(arguments: argparse.Namespace) -> int:
    nodes = _load_or_create_nodes(arguments)
    pids = {node.id: node.pid() for node in nodes}
    began, processes = time.monotonic(), {}
    for node in nodes:
        if (pid := pids[node.id]) is None:
            processes[node.id] = node.start()
            print(f"node {node.id} started: {_describe_process(node, processes[node.id].pid)}", flush=True)
        else:
            print(f"node {node.id} is already running: {_describe_process(node, pid)}")
    login_required = _wait_until_ready(nodes, processes, began + arguments.timeout, load_security(arguments))
    if login_required:
        print(
            f"the HTTP ports of nodes {join_ids(login_required)} require a login: readiness was checked over Kafka's "
            "protocol; to check it over HTTP, set http_token in the config files or name a user in --client-config"
        )
    elapsed = f" after {time.monotonic() - began:.1f} s" if processes else ""
    print(f"every node lists brokers {join_ids(node.id for node in nodes)}{elapsed}")
    print(f"bootstrap servers: {','.join(str(node.config.kafka) for node in nodes)}")
    return 0


def _load_or_create_nodes(arguments: argparse.Namespace) -> list[LocalNode]:
    """Load the nodes of the local cluster in the directory, or create them if there are none."""
    nodes = find_nodes(arguments.dir)
    if nodes:
        _check_options_match_cluster(nodes, arguments)
        check_ports_available([node for node in nodes if node.pid() is None])
        return nodes
    count, ports = arguments.nodes or DEFAULT_NODES, _choose_ports(arguments)
    last = max(ports.kafka, ports.http, ports.raft) + count - 1
    if count > NODES_MAX or last > PORT_MAX:
        limit = f"at most {NODES_MAX} nodes" if count > NODES_MAX else f"no port above {PORT_MAX}"
        raise InvalidInput(f"--nodes {count}: expected {limit}")
    nodes = plan_nodes(arguments.dir, count, ports)
    check_ports_available(nodes)
    write_configs(nodes)
    return nodes


def _check_options_match_cluster(nodes: list[LocalNode], arguments: argparse.Namespace) -> None:
    """Raise InvalidInput if the requested node count or ports differ from those of the existing cluster."""
    first = nodes[0].list_addresses()
    given: dict[str, tuple[int | None, int | None]] = {"nodes": (arguments.nodes, len(nodes))}
    for kind, requested in (
        ("kafka", arguments.kafka_port),
        ("http", arguments.http_port),
        ("raft", arguments.raft_port),
    ):
        given[f"{kind}-port"] = (requested, first[kind].port if kind in first else None)
    for name, (requested, actual) in given.items():
        if requested is not None and requested != actual:
            raise InvalidInput(f"--{name} {requested}: the cluster in {arguments.dir} was created with {actual}")


def _choose_ports(arguments: argparse.Namespace) -> BasePorts:
    """Return the ports of a local cluster's first node, from the options or the defaults.

    HTTP and Raft ports are derived from the Kafka port, so that clusters do not collide.
    """
    kafka = arguments.kafka_port or DEFAULT_PORTS.kafka
    shift = kafka - DEFAULT_PORTS.kafka
    if DEFAULT_PORTS.raft + shift < PORT_MIN:
        shift = 0
    return BasePorts(
        kafka, arguments.http_port or DEFAULT_PORTS.http + shift, arguments.raft_port or DEFAULT_PORTS.raft + shift
    )


def _describe_process(node: LocalNode, pid: int) -> str:
    addresses_text = ", ".join(f"{kind} {address}" for kind, address in node.list_addresses().items())
    return f"pid {pid}, {addresses_text}, log {node.log_file}"


def _wait_until_ready(
    nodes: list[LocalNode],
    processes: Mapping[int, subprocess.Popen[bytes]],
    deadline: float,
    security: ClientSecurity,
) -> list[int]:
    """Wait until every node is ready and lists all brokers. Return the nodes whose HTTP port requires a login.

    Raises:
        ClusterStartError: A node has exited, or the deadline has expired.
    """
    expected, login_required = [node.id for node in nodes], set[int]()
    for node in nodes:
        while (missing := _find_unready_reason(node, expected, security, login_required)) is not None:
            process = processes.get(node.id)
            if process is not None and (code := process.poll()) is not None:
                node.remove_pid_file()
                raise ClusterStartError(f"node {node.id} exited with code {code}: {node.last_log_line()}")
            if time.monotonic() > deadline:
                raise ClusterStartError(f"node {node.id}: {missing}; see {node.log_file}")
            time.sleep(POLL_SECONDS)
    return sorted(login_required)


def _find_unready_reason(
    node: LocalNode, expected: list[int], security: ClientSecurity, login_required: set[int]
) -> str | None:
    """Return the reason why this node is not ready, or None if it is ready.

    Readiness is checked as well, because other nodes may still list a node that has just restarted. If the HTTP port
    requires a login, add the node to `locked`, and use the state that it reports over Kafka's protocol.
    """
    try:
        with BrokerConnection(
            node.config.kafka, client_id=CLIENT_ID, timeout_s=REQUEST_TIMEOUT_SECONDS, security=security
        ) as connection:
            listed = list_broker_ids(connection)
            if listed != expected:
                return f"it lists brokers {join_ids(listed) or 'none'}"
            try:
                return fetch_local_unready_reason(node, REQUEST_TIMEOUT_SECONDS, security)
            except NodeAuthorizationError:
                login_required.add(node.id)
                return describe_cluster(connection).error_message
    except (ClientError, KafkaError, NodeRequestError) as error:
        return str(error)


# Down


def run_down(arguments: argparse.Namespace) -> int:
    nodes = load_nodes(arguments.dir)
    running = {node.id: pid for node in nodes if (pid := node.pid()) is not None}
    for node in nodes:
        if node.id in running:
            node.terminate(running[node.id])
    deadline = time.monotonic() + arguments.timeout
    for node in nodes:
        while node.id in running and node.pid() is not None:
            if time.monotonic() > deadline:
                raise ClusterStopError(
                    f"node {node.id} (pid {running[node.id]}) did not stop in time; see {node.log_file}"
                )
            time.sleep(POLL_SECONDS)
        node.remove_pid_file()
        print(f"node {node.id} stopped" if node.id in running else f"node {node.id} was not running")
    return 0
