"""`chronik cluster status`: members, leader, progress and state hashes of a cluster's nodes."""

from __future__ import annotations

import argparse
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

from chronik.cli.arguments import CLIENT_ID, Subparsers, add_client_arguments, add_json_argument, load_security
from chronik.cli.cluster.local_nodes import LocalNode, fetch_local_status, load_nodes
from chronik.cli.output import format_table, join_ids, print_json
from chronik.client.access.settings import ClientSecurity
from chronik.client.cluster import parse_bootstrap
from chronik.client.connection import BrokerConnection
from chronik.client.errors import ApiNotSupported, ClientError
from chronik.client.nodes import FIRST_LEVEL, describe_cluster, describe_feature_levels, describe_quorum
from chronik.config import Address
from chronik.console.http_client import NodeRequestError
from chronik.console.state_comparison import compare_states
from chronik.protocol.errors import KafkaError
from chronik.protocol.messages.describe_cluster import DescribeClusterBroker, DescribeClusterResponse
from chronik.protocol.messages.describe_nodes import DescribeNodesRequest, DescribeNodesResponse
from chronik.protocol.messages.describe_quorum import QuorumPartitionData, QuorumReplicaState
from chronik.wording import pluralize

EXIT_OK, EXIT_DIVERGED = 0, 1

_STATUS_FIELDS: Final = (
    "pid",
    "role",
    "term",
    "leader",
    "applied_index",
    "commit_index",
    "state_hash",
    "uptime_s",
    "version",
    "levels",
)
"""Fields of a node's `/status` response that `chronik cluster status` reports."""

HASH_CHARACTERS_SHOWN: Final = 12
"""Number of characters of the metadata's state hash in the status table.

`--json` prints the complete hash.
"""


def add_arguments(actions: Subparsers) -> None:
    status = actions.add_parser("status", help="show the members, the leader and the state of each node")
    status.add_argument(
        "--dir", type=Path, metavar="DIR", help="directory of a cluster on this machine; queries all nodes"
    )
    add_json_argument(status)
    add_client_arguments(status, run_status)


def run_status(arguments: argparse.Namespace) -> int:
    report = _build_report_from_nodes(arguments) if arguments.dir is not None else _build_report_from_broker(arguments)
    if arguments.json:
        print_json(report)
    else:
        print(_format_report(report))
    return EXIT_DIVERGED if report["same_state"] is False else EXIT_OK


# Local cluster: every node is queried over HTTP


def _build_report_from_nodes(arguments: argparse.Namespace) -> dict[str, Any]:
    nodes, security = load_nodes(arguments.dir), load_security(arguments)
    with ThreadPoolExecutor(len(nodes)) as threads:
        statuses = list(threads.map(lambda node: _fetch_status(node, arguments.timeout, security), nodes))
    answers = [status for status in statuses if status is not None]
    agreement = compare_states(answers)
    leader = _find_leader(answers)
    drained = _fetch_drained_nodes(leader, nodes, arguments.timeout, security)
    return {
        "cluster_id": next((status["cluster_id"] for status in answers if status["cluster_id"]), None),
        "members": sorted({member["id"] for status in answers for member in status.get("members", ())}),
        "leader": leader["node_id"] if leader is not None else None,
        "level": max((status.get("level", FIRST_LEVEL) for status in answers), default=None),
        "supported": min((status.get("levels", (FIRST_LEVEL, FIRST_LEVEL))[1] for status in answers), default=None),
        "term": max((status.get("term", 0) for status in answers), default=None),
        "compared_index": agreement.index,
        "same_state": agreement.is_consistent if agreement.index is not None else None,
        "nodes": [
            _build_node_report(node, status, leader, drained) for node, status in zip(nodes, statuses, strict=True)
        ],
    }


def _fetch_status(node: LocalNode, timeout_s: float, security: ClientSecurity) -> dict[str, Any] | None:
    try:
        return fetch_local_status(node, timeout_s, security)
    except NodeRequestError:
        return None


def _find_leader(statuses: Sequence[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """Return the status of the Raft leader with the highest term.

    A deposed leader may still report its old role.
    """
    leaders = [status for status in statuses if status["role"] == "leader"]
    return max(leaders, key=lambda status: int(status["term"]), default=None)


def _fetch_drained_nodes(
    leader: Mapping[str, Any] | None, nodes: Sequence[LocalNode], timeout_s: float, security: ClientSecurity
) -> Collection[int]:
    for node in nodes:
        if leader is not None and node.id == leader["node_id"]:
            try:
                address = node.config.kafka
                with BrokerConnection(
                    address, client_id=CLIENT_ID, timeout_s=timeout_s, security=security
                ) as connection:
                    return _list_drained_nodes(connection)
            except ClientError:
                return ()
    return ()


def _build_node_report(
    node: LocalNode, status: Mapping[str, Any] | None, leader: Mapping[str, Any] | None, drained: Collection[int]
) -> dict[str, Any]:
    report: dict[str, Any] = {"node_id": node.id, "kafka": str(node.config.kafka), "http": str(node.config.http)}
    if status is None:
        pid = node.pid()
        return report | {"status": "down" if pid is None else "silent", "pid": pid}
    shown = {name: status.get(name) for name in _STATUS_FIELDS}
    voters = [member["id"] for member in leader.get("members", ()) if member["voter"]] if leader is not None else None
    if voters is not None and shown["role"] == "follower" and node.id not in voters:
        shown["role"] = "observer"
    mode = "drained" if node.id in drained else "online"
    return report | {"status": "fenced" if status.get("fenced") else mode} | shown


# Any cluster: one broker and the leader are queried over Kafka's protocol


def _build_report_from_broker(arguments: argparse.Namespace) -> dict[str, Any]:
    address = parse_bootstrap(arguments.bootstrap_server)[0]
    security = load_security(arguments)
    with BrokerConnection(address, client_id=CLIENT_ID, timeout_s=arguments.timeout, security=security) as connection:
        response = describe_cluster(connection)
        levels = describe_feature_levels(connection)
    brokers = response.brokers
    quorum, drained = _query_leader(response, arguments.timeout, security)
    log_ends = {state.replica_id: state.log_end_offset for state in _list_quorum_replicas(quorum)}
    voters = {state.replica_id for state in quorum.current_voters} if quorum is not None else set()
    return {
        "cluster_id": response.cluster_id,
        "members": sorted(log_ends) if quorum is not None else [broker.broker_id for broker in brokers],
        "leader": response.controller_id if response.controller_id >= 0 else None,
        "level": levels.level if levels is not None else None,
        "supported": levels.highest if levels is not None else None,
        "term": quorum.leader_epoch if quorum is not None else None,
        "compared_index": None,
        "same_state": None,
        "note": response.error_message,
        "nodes": [
            {
                "node_id": broker.broker_id,
                "kafka": f"{broker.host}:{broker.port}",
                "status": _get_broker_status(broker, response, drained),
                "role": _role(broker.broker_id, response.controller_id, voters, log_ends),
                "log_end": log_ends.get(broker.broker_id),
            }
            for broker in brokers
        ],
    }


def _get_broker_status(
    broker: DescribeClusterBroker, response: DescribeClusterResponse, drained: Collection[int]
) -> str:
    """Return the status of a broker from its response to DescribeCluster.

    A message in the response means that the broker is isolated and its status outdated.
    """
    if broker.is_fenced:
        return "fenced"
    if response.error_message:
        return "not known"
    return "drained" if broker.broker_id in drained else "online"


def _query_leader(
    cluster: DescribeClusterResponse, timeout_s: float, security: ClientSecurity
) -> tuple[QuorumPartitionData | None, Collection[int]]:
    """Return the Raft leader's view of the quorum and of drained nodes, both empty without a leader."""
    for broker in cluster.brokers:
        if broker.broker_id == cluster.controller_id:
            try:
                address = Address(broker.host, broker.port)
                with BrokerConnection(address, client_id=CLIENT_ID, timeout_s=timeout_s, security=security) as leader:
                    return describe_quorum(leader), _list_drained_nodes(leader)
            except (ClientError, KafkaError):
                return None, ()
    return None, ()


def _list_drained_nodes(leader: BrokerConnection) -> Collection[int]:
    """Return the ids of drained nodes; empty if the broker does not support DescribeNodes."""
    try:
        nodes = leader.request(DescribeNodesRequest(), DescribeNodesResponse).nodes
    except ApiNotSupported:
        return ()
    return {node.node_id for node in nodes if node.draining}


def _list_quorum_replicas(quorum: QuorumPartitionData | None) -> list[QuorumReplicaState]:
    return [*quorum.current_voters, *quorum.observers] if quorum is not None else []


def _role(node_id: int, leader: int, voters: Collection[int], members: Collection[int]) -> str | None:
    if node_id == leader:
        return "leader"
    if node_id not in members:
        return None
    return "follower" if node_id in voters else "observer"


# Text output

_COLUMNS = {
    "NODE": "node_id",
    "STATUS": "status",
    "ROLE": "role",
    "PID": "pid",
    "TERM": "term",
    "APPLIED": "applied_index",
    "COMMITTED": "commit_index",
    "LOG END": "log_end",
    "STATE HASH": "state_hash",
    "KAFKA": "kafka",
    "HTTP": "http",
}


def _format_report(report: Mapping[str, Any]) -> str:
    leader, term = report["leader"], report["term"]
    leader_text = "none" if leader is None else f"node {leader}"
    nodes = report["nodes"]
    columns = {heading: name for heading, name in _COLUMNS.items() if any(node.get(name) is not None for node in nodes)}
    rows = [[_format_cell(node, name) for name in columns.values()] for node in nodes]
    return "\n".join(
        [
            *([report["note"]] if report.get("note") else []),
            f"Members: {join_ids(report['members']) or 'not known'}",
            f"Leader: {leader_text}{f', term {term}' if term is not None else ''}",
            *_format_level(report),
            *_format_state_comparison(report),
            "",
            format_table(list(columns), rows),
        ]
    )


def _format_level(report: Mapping[str, Any]) -> list[str]:
    level, supported = report["level"], report["supported"]
    if level is None:
        return []
    if supported <= level:
        return [f"Level: {level}"]
    hint = "use chronik cluster upgrade when all brokers support it"
    return [f"Level: {level}; the queried nodes support {supported}: {hint}"]


def _format_state_comparison(report: Mapping[str, Any]) -> list[str]:
    if report["same_state"] is None:
        return []
    asked = sum("state_hash" in node for node in report["nodes"])
    verdict = "the same" if report["same_state"] else "DIFFERENT"
    return [f"State: {verdict} on {pluralize(asked, 'node')}, at index {report['compared_index']}"]


def _format_cell(node: Mapping[str, Any], name: str) -> Any:
    value = node.get(name)
    return value[:HASH_CHARACTERS_SHOWN] if name == "state_hash" and value is not None else value
