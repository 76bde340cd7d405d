"""`chronik cluster status`: who is a member, who leads, how far each node is, and whether they agree."""

from __future__ import annotations

import argparse
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, TypeVar

from chronik.cli.arguments import CLIENT_ID
from chronik.cli.local_nodes import LocalNode, existing_nodes
from chronik.cli.output import numbers, print_json, table
from chronik.client.cluster import parse_bootstrap, raise_for
from chronik.client.connection import Connection
from chronik.client.errors import ClientError
from chronik.client.features import FIRST, Levels, levels_told_by
from chronik.config import Address
from chronik.console.agreement import compare_states
from chronik.console.ask import NodeSilent, ask_status
from chronik.protocol.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from chronik.protocol.messages.describe_quorum import (
    DescribeQuorumPartition,
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    DescribeQuorumTopic,
    QuorumPartitionData,
    ReplicaState,
)
from chronik.protocol.schema import Request, Response

R = TypeVar("R", bound=Response)

EXIT_OK, EXIT_DIVERGED = 0, 1

_TOLD: Final = (
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
"""What each node says about itself."""

METADATA_TOPIC: Final = "__cluster_metadata"
"""Kafka's name for the log that the quorum agrees on."""

HASH_CHARACTERS_SHOWN: Final = 12
"""Enough to see by eye whether two are the same; --json has them whole."""


def run_status(arguments: argparse.Namespace) -> int:
    report = _told_by_nodes(arguments) if arguments.dir is not None else _told_by_broker(arguments)
    if arguments.json:
        print_json(report)
    else:
        print(_described(report))
    return EXIT_DIVERGED if report["same_state"] is False else EXIT_OK


# A cluster on this machine: every node is asked over HTTP


def _told_by_nodes(arguments: argparse.Namespace) -> dict[str, Any]:
    nodes = existing_nodes(arguments.dir)
    with ThreadPoolExecutor(len(nodes)) as threads:
        statuses = list(threads.map(lambda node: _status_of(node, arguments.timeout), nodes))
    answers = [status for status in statuses if status is not None]
    agreement = compare_states(answers)
    leader = _leader(answers)
    return {
        "cluster_id": next((status["cluster_id"] for status in answers if status["cluster_id"]), None),
        "members": sorted({member["id"] for status in answers for member in status.get("members", ())}),
        "leader": leader["node_id"] if leader is not None else None,
        "level": max((status.get("level", FIRST) for status in answers), default=None),
        "supported": min((status.get("levels", (FIRST, FIRST))[1] for status in answers), default=None),
        "term": max((status.get("term", 0) for status in answers), default=None),
        "compared_index": agreement.index,
        "same_state": agreement.is_same if agreement.index is not None else None,
        "nodes": [_node_report(node, status) for node, status in zip(nodes, statuses, strict=True)],
    }


def _status_of(node: LocalNode, timeout_s: float) -> dict[str, Any] | None:
    try:
        return ask_status(node.config.http, timeout_s) if node.config.http is not None else None
    except NodeSilent:
        return None


def _leader(statuses: Sequence[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """A leader that was deposed and has not noticed may still call itself one: the highest term counts."""
    leaders = [status for status in statuses if status["role"] == "leader"]
    return max(leaders, key=lambda status: int(status["term"]), default=None)


def _node_report(node: LocalNode, status: Mapping[str, Any] | None) -> dict[str, Any]:
    report: dict[str, Any] = {"node_id": node.id, "kafka": str(node.config.kafka), "http": str(node.config.http)}
    if status is None:
        pid = node.pid()
        return report | {"status": "down" if pid is None else "silent", "pid": pid}
    shown = {name: status.get(name) for name in _TOLD}
    return report | {"status": "fenced" if status.get("fenced") else "online"} | shown


# Any cluster: what a broker of it says through Kafka's API


def _told_by_broker(arguments: argparse.Namespace) -> dict[str, Any]:
    address = parse_bootstrap(arguments.bootstrap_server)[0]
    request = DescribeClusterRequest(include_fenced_brokers=True)
    response = _asked(address, arguments.timeout, request, DescribeClusterResponse)
    raise_for(response.error_code, "the cluster", response.error_message)
    brokers = sorted(response.brokers, key=lambda broker: broker.broker_id)
    quorum = _quorum(response, arguments.timeout)
    levels = _levels(address, arguments.timeout)
    log_ends = {state.replica_id: state.log_end_offset for state in _replicas(quorum)}
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
                "status": _status(broker, response),
                "role": _role(broker.broker_id, response.controller_id, voters, log_ends),
                "log_end": log_ends.get(broker.broker_id),
            }
            for broker in brokers
        ],
    }


def _status(broker: DescribeClusterBroker, response: DescribeClusterResponse) -> str:
    """A broker that adds a message to its answer is cut off: it has not heard from the others for a while."""
    if broker.is_fenced:
        return "fenced"
    return "not known" if response.error_message else "online"


def _asked(address: Address, timeout_s: float, request: Request, response_type: type[R]) -> R:
    with Connection(address, client_id=CLIENT_ID, timeout_s=timeout_s) as connection:
        return connection.request(request, response_type)


def _levels(address: Address, timeout_s: float) -> Levels | None:
    with Connection(address, client_id=CLIENT_ID, timeout_s=timeout_s) as connection:
        return levels_told_by(connection)


def _quorum(cluster: DescribeClusterResponse, timeout_s: float) -> QuorumPartitionData | None:
    """Returns what the leader says about its followers; None when nobody leads, or the node has no quorum."""
    for broker in cluster.brokers:
        if broker.broker_id == cluster.controller_id:
            partition = DescribeQuorumPartition(partition_index=0)
            asked = DescribeQuorumTopic(topic_name=METADATA_TOPIC, partitions=[partition])
            request = DescribeQuorumRequest(topics=[asked])
            try:
                response = _asked(Address(broker.host, broker.port), timeout_s, request, DescribeQuorumResponse)
            except ClientError:
                return None
            answers = [answer for topic in response.topics for answer in topic.partitions if not answer.error_code]
            return answers[0] if answers else None
    return None


def _replicas(quorum: QuorumPartitionData | None) -> list[ReplicaState]:
    return [*quorum.current_voters, *quorum.observers] if quorum is not None else []


def _role(node_id: int, leader: int, voters: Collection[int], members: Collection[int]) -> str | None:
    if node_id == leader:
        return "leader"
    if node_id not in members:
        return None
    return "follower" if node_id in voters else "learner"


# For people

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


def _described(report: Mapping[str, Any]) -> str:
    leader, term = report["leader"], report["term"]
    leads = "nobody at the moment" if leader is None else f"node {leader}"
    nodes = report["nodes"]
    columns = {heading: name for heading, name in _COLUMNS.items() if any(node.get(name) is not None for node in nodes)}
    rows = [[_cell(node, name) for name in columns.values()] for node in nodes]
    return "\n".join(
        [
            *([report["note"]] if report.get("note") else []),
            f"Members: {numbers(report['members']) or 'not known'}",
            f"Leader: {leads}{f', term {term}' if term is not None else ''}",
            *_level(report),
            *_agreement(report),
            "",
            table(list(columns), rows),
        ]
    )


def _level(report: Mapping[str, Any]) -> list[str]:
    level, supported = report["level"], report["supported"]
    if level is None:
        return []
    if supported <= level:
        return [f"Level: {level}"]
    raised = "chronik cluster upgrade raises it once all brokers support it"
    return [f"Level: {level}, and {supported} is supported by those that were asked: {raised}"]


def _agreement(report: Mapping[str, Any]) -> list[str]:
    if report["same_state"] is None:
        return []
    asked = sum("state_hash" in node for node in report["nodes"])
    verdict = "the same" if report["same_state"] else "DIFFERENT"
    return [f"State: {verdict} on the {asked} nodes that answer, at index {report['compared_index']}"]


def _cell(node: Mapping[str, Any], name: str) -> Any:
    value = node.get(name)
    return value[:HASH_CHARACTERS_SHOWN] if name == "state_hash" and value is not None else value
