"""Facts of each node, merged from its own HTTP pages, the quorum's leader and a broker. Free of I/O."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from chronik.cli.monitoring.broker_requests import LogDirs
from chronik.cli.monitoring.facts import NodeFacts
from chronik.cli.monitoring.node_pages import NodePages, find_first_metric
from chronik.console.state_comparison import compare_states
from chronik.protocol.messages.describe_cluster import DescribeClusterResponse
from chronik.protocol.messages.describe_nodes import DescribeNodesResponse
from chronik.protocol.messages.describe_quorum import QuorumPartitionData

BYTES_IN: Final = "chronik_received_bytes_total"
BYTES_OUT: Final = "chronik_sent_bytes_total"


class SourceResponses(NamedTuple):
    """Responses of brokers and HTTP ports, from which facts about nodes are merged.

    A missing response is None.
    """

    cluster: DescribeClusterResponse | None = None
    nodes: DescribeNodesResponse | None = None
    quorum: QuorumPartitionData | None = None
    pages: tuple[NodePages, ...] = ()
    levels: Mapping[int, tuple[int, int]] = {}
    silent: Mapping[int, str] = {}
    """Errors of the brokers that did not respond to requests, by node id."""
    unresponsive: frozenset[int] = frozenset()
    """Ids of the brokers that accept connections but do not respond to requests."""
    folders: Mapping[int, LogDirs] = {}


def merge_node_facts(accounts: SourceResponses) -> list[NodeFacts]:
    found: dict[int, dict[str, Any]] = {}

    def add(node_id: int, **facts: Any) -> None:
        known = {name: value for name, value in facts.items() if value is not None}
        found.setdefault(node_id, {"id": node_id}).update(known)

    for page in accounts.pages:
        add(page.node_id, **_extract_page_facts(page))
    _add_broker_facts(accounts, add)
    _add_quorum_facts(accounts, add)
    for node_id, levels in accounts.levels.items():
        add(node_id, levels=levels)
    for node_id, folder in accounts.folders.items():
        add(
            node_id,
            log_bytes=sum(folder.sizes.values()),
            disk_bytes=folder.total_bytes,
            disk_free_bytes=folder.usable_bytes,
        )
    for node_id, why in accounts.silent.items():
        add(node_id, silence=why, is_unresponsive=node_id in accounts.unresponsive, status="down")
    return [NodeFacts(**found[node_id]) for node_id in sorted(found)]


def _extract_page_facts(page: NodePages) -> dict[str, Any]:
    status, metrics = page.status, page.metrics
    syncs = status.get("syncs") or {}
    levels = status.get("levels")
    return {
        "http": page.address,
        "status": "fenced" if status.get("fenced") else "online",
        "role": status.get("role"),
        "term": status.get("term"),
        "applied_index": status.get("applied_index"),
        "state_hash": status.get("state_hash"),
        "version": status.get("version"),
        "levels": tuple(levels) if levels is not None else None,
        "uptime_s": status.get("uptime_s"),
        "pid": status.get("pid"),
        "clock_ahead_ms": page.clock_ahead_ms,
        "clock_doubt_ms": page.responded_ms - page.requested_ms,
        "damaged": tuple(status.get("damaged") or ()),
        "slow_syncs": find_first_metric(metrics, "chronik_slow_syncs_total"),
        "longest_sync_s": metrics.get("chronik_longest_sync_seconds", syncs.get("longest_s")),
        "requests": find_first_metric(metrics, "chronik_requests_total"),
        "failures": find_first_metric(metrics, "chronik_request_failures_total"),
        "bytes_in": find_first_metric(metrics, BYTES_IN),
        "bytes_out": find_first_metric(metrics, BYTES_OUT),
        "connections": find_first_metric(metrics, "chronik_connections"),
    }


def _add_broker_facts(accounts: SourceResponses, add: Any) -> None:
    cluster = accounts.cluster
    if cluster is None:
        return
    drained = {node.node_id for node in accounts.nodes.nodes if node.draining} if accounts.nodes is not None else set()
    for broker in cluster.brokers:
        mode = "drained" if broker.broker_id in drained else "online"
        if cluster.error_message:
            mode = "not known"
        add(
            broker.broker_id,
            kafka=f"{broker.host}:{broker.port}",
            rack=broker.rack,
            status="fenced" if broker.is_fenced else mode,
        )


def _add_quorum_facts(accounts: SourceResponses, add: Any) -> None:
    quorum = accounts.quorum
    if quorum is None:
        return
    voters = {state.replica_id for state in quorum.current_voters}
    for state in (*quorum.current_voters, *quorum.observers):
        node_id = state.replica_id
        role = "leader" if node_id == quorum.leader_id else "follower" if node_id in voters else "observer"
        add(node_id, role=role, is_voter=node_id in voters, log_end=state.log_end_offset)
    if len(voters) == 1 and not quorum.observers:
        return
    add(quorum.leader_id, term=quorum.leader_epoch)


class NodeAgreement(NamedTuple):
    nodes: int = 0
    applied_index: int | None = None
    is_same: bool | None = None


def compare_node_states(pages: Iterable[NodePages]) -> NodeAgreement:
    statuses = [page.status for page in pages if "recent_hashes" in page.status]
    if len(statuses) < 2:
        return NodeAgreement(len(statuses))  # a single node has nothing to compare with
    compared = compare_states(statuses)
    return NodeAgreement(len(statuses), compared.index, compared.is_consistent if compared.index is not None else None)
