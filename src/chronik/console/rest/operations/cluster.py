"""The state of the cluster: a comparison of its nodes, and what needs attention."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from http import HTTPStatus
from typing import Any, Final, Literal

from chronik.client.errors import ClientError
from chronik.console.rest.context import OperationContext
from chronik.console.rest.errors import RestError
from chronik.console.rest.health_view import build_health, fetch_health
from chronik.console.rest.internal_client import InternalConnection
from chronik.console.rest.models.cluster import Attention, ClusterView, Health, Node
from chronik.console.rest.models.common import NoQuestion
from chronik.console.rest.node_interface import NodeInterface
from chronik.console.state_comparison import compare_states
from chronik.errors import ChronikError
from chronik.metadata.image import Image
from chronik.metadata.levels import get_cluster_level
from chronik.metadata.records import TransactionState
from chronik.protocol.errors import ErrorCode, KafkaError
from chronik.protocol.messages.describe_nodes import DescribedNode, DescribeNodesRequest, DescribeNodesResponse
from chronik.protocol.permissions import CLUSTER_NAME, AclOperation, AclResourceType
from chronik.security import audit

STATUS_TIMEOUT_SECONDS: Final = 1.0
"""Timeout of a status request. A node that does not respond in time is shown as unreachable."""

UNCONFIRMED: Final = "no majority of nodes responds: the cluster cannot be changed, and this view may be outdated"

StatusFields = dict[str, Any]


def fetch_statuses(context: OperationContext, ids: Iterable[int]) -> dict[int, StatusFields]:
    """Request the status of several nodes concurrently. Nodes that do not respond are omitted."""
    return context.loop_bridge.run(_request_statuses(context.node, list(ids)), 3 * STATUS_TIMEOUT_SECONDS)


async def _request_statuses(side: NodeInterface, ids: list[int]) -> dict[int, StatusFields]:
    async def request_status(node_id: int) -> StatusFields | None:
        if node_id == side.services.node_id:
            return side.status_source.status()
        try:
            return await side.other_nodes.fetch_status(node_id, STATUS_TIMEOUT_SECONDS)
        except (ChronikError, LookupError):
            return None

    found = await asyncio.gather(*map(request_status, ids))
    return {node_id: status for node_id, status in zip(ids, found, strict=True) if status is not None}


CONFIRM_SECONDS_MAX: Final = 2.0
"""Timeout in seconds for a majority to confirm the node list. After it, this node's possibly stale metadata is used."""


def fetch_nodes(context: OperationContext) -> tuple[DescribeNodesResponse, bool]:
    """Return the nodes of the cluster, and whether a majority has confirmed the list.

    Without a majority, the list comes from this node's image: the state of the cluster is most needed then.

    Raises:
        KafkaError: The principal lacks the Describe permission on the cluster.
    """
    services = context.node.services
    require_describe_cluster(context)
    if services.controller_id() >= 0:
        own = InternalConnection(
            context.node, context.loop_bridge, context.cluster.peer, services.node_id, CONFIRM_SECONDS_MAX
        )
        try:
            response = own.request(DescribeNodesRequest(), DescribeNodesResponse)
            if not response.error_code:
                response.nodes.sort(key=lambda node: node.node_id)
                return response, True
        except ClientError:
            pass
    return _nodes_from_image(services.image), False


def require_describe_cluster(context: OperationContext) -> None:
    """Raise KafkaError unless the principal has the Describe permission on the cluster."""
    if not context.can_describe_cluster():
        audit.log_denied_request(
            context.cluster.peer, "DescribeNodes", AclOperation.DESCRIBE, AclResourceType.CLUSTER, CLUSTER_NAME
        )
        raise KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)


def _nodes_from_image(image: Image) -> DescribeNodesResponse:
    nodes, brokers = dict(image.nodes), dict(image.brokers)
    described = []
    for node_id in sorted({*nodes, *brokers}):
        node, broker = nodes.get(node_id), brokers.get(node_id)
        described.append(
            DescribedNode(
                node_id=node_id,
                host=node.host if node is not None else "",
                port=node.port if node is not None else 0,
                meant_to_vote=node.voter if node is not None else True,
                draining=node.draining if node is not None else False,
                is_member=True,
                is_voter=node.voter if node is not None else True,
                rack=broker.rack if broker is not None else None,
                status=broker.status.value if broker is not None else "unregistered",
            )
        )
    return DescribeNodesResponse(
        cluster_id=image.cluster_id or None, level=get_cluster_level(image.features), nodes=described
    )


class PartitionCounts:
    """The numbers of topics, partitions, under-replicated partitions and offline partitions in a metadata image."""

    def __init__(self, image: Image) -> None:
        topics = list(image.topics.values())  # an atomic copy
        self.internal_topics = sum(topic.internal for topic in topics)
        self.topics = len(topics) - self.internal_topics
        self.partitions = 0
        self.under_replicated: list[str] = []
        self.offline: list[str] = []
        self.leads: dict[int, int] = {}
        self.replicas: dict[int, int] = {}
        for topic in topics:
            self.partitions += len(topic.partitions)
            for index, each in enumerate(topic.partitions):
                self.leads[each.leader] = self.leads.get(each.leader, 0) + 1
                for replica in each.replicas:
                    self.replicas[replica] = self.replicas.get(replica, 0) + 1
                if each.leader < 0:
                    self.offline.append(f"{topic.name}-{index}")
                if len(each.isr) < len(each.replicas):
                    self.under_replicated.append(f"{topic.name}-{index}")


_counted: list[tuple[Image, int, PartitionCounts]] = []
"""The partition counts of the latest metadata image, cached because the image rarely changes between two requests."""


def count_partitions(image: Image) -> PartitionCounts:
    """Return the partition counts of a metadata image, from the cache if the image has not changed."""
    index = image.applied_index
    for known, at, counted in _counted:
        if known is image and at == index:
            return counted
    _counted[:] = [(image, index, PartitionCounts(image))]
    return _counted[0][2]


def build_nodes(
    context: OperationContext,
    described: DescribeNodesResponse,
    statuses: dict[int, StatusFields] | None = None,
    counted: PartitionCounts | None = None,
) -> list[Node]:
    """Return the nodes with their status and partition counts."""
    image = context.node.services.image
    statuses = fetch_statuses(context, [node.node_id for node in described.nodes]) if statuses is None else statuses
    counted = counted or count_partitions(image)
    return [_build_node(context, node, statuses.get(node.node_id), counted) for node in described.nodes]


def _build_node(
    context: OperationContext, described: DescribedNode, status: StatusFields | None, counted: PartitionCounts
) -> Node:
    services = context.node.services
    broker = services.image.brokers.get(described.node_id)
    reported = status or {}
    return Node(
        id=described.node_id,
        host=broker.host if broker is not None else None,
        port=broker.port if broker is not None else None,
        rack=described.rack,
        status=_get_node_status(described, reported),
        draining=described.draining,
        role=_get_node_role(described, reported),
        voter=described.is_voter,
        reachable=status is not None,
        version=reported.get("version"),
        uptime_s=reported.get("uptime_s"),
        term=reported.get("term"),
        applied_index=reported.get("applied_index"),
        state_hash=reported.get("state_hash"),
        leads=counted.leads.get(described.node_id, 0),
        replicas=counted.replicas.get(described.node_id, 0),
        bytes=reported.get("bytes"),
        is_me=described.node_id == services.node_id,
        is_controller=described.node_id == services.controller_id(),
    )


def _get_node_status(described: DescribedNode, reported: StatusFields) -> str:
    if described.status == "unregistered":
        return "absent"
    return "fenced" if described.status == "online" and reported.get("fenced") else described.status


def _get_node_role(described: DescribedNode, reported: StatusFields) -> str | None:
    role = reported.get("role")
    if role == "alone":
        return "standalone"
    return "observer" if role == "follower" and not described.is_voter else role


def show(context: OperationContext, params: NoQuestion) -> ClusterView:
    """Describe the state of the cluster."""
    return build_cluster_view(context)


def build_cluster_view(context: OperationContext) -> ClusterView:
    """Return the state of the cluster and the conditions that need attention.

    Raises:
        KafkaError: The principal lacks the Describe permission on the cluster.
        ClientError: A broker cannot be reached.
    """
    described, is_confirmed = fetch_nodes(context)
    statuses = fetch_statuses(context, [node.node_id for node in described.nodes])
    image = context.node.services.image
    counted = count_partitions(image)
    nodes = build_nodes(context, described, statuses, counted)
    verdict, agrees, index = _compare_node_metadata(nodes, statuses)
    controller = context.node.services.controller_id()
    open_transactions = sum(_is_open(each.state) for each in list(image.unfinished_transactions()))
    report = fetch_health(context)
    view = ClusterView(
        cluster_id=described.cluster_id,
        level=described.level,
        controller_id=controller if controller >= 0 else None,
        leader_id=controller if controller >= 0 else None,
        term=max((node.term for node in nodes if node.term is not None), default=None),
        verdict=verdict,
        agrees=agrees,
        compared_index=index,
        topics=counted.topics,
        internal_topics=counted.internal_topics,
        partitions=counted.partitions,
        under_replicated=len(counted.under_replicated),
        offline=len(counted.offline),
        groups=len(image.groups),
        open_transactions=open_transactions,
        attention=[],
        nodes=nodes,
    )
    if report is not None:
        view.health = build_health(report)
        view.attention = [
            Attention(_ATTENTION_SEVERITIES[each.severity.label], each.message, each.console)
            for each in report.problems
        ]
    if not is_confirmed and not any(each.text == UNCONFIRMED for each in view.attention):
        view.attention.insert(0, Attention("error", UNCONFIRMED, "/nodes"))
    return view


def _is_open(state: TransactionState) -> bool:
    return state is TransactionState.ONGOING


def _compare_node_metadata(
    nodes: Sequence[Node], statuses: dict[int, StatusFields]
) -> tuple[str, bool | None, int | None]:
    """Compare the nodes' metadata at a common log index. Return a summary, whether they agree, and the index."""
    if len(nodes) == 1:
        return "1 node", True, nodes[0].applied_index
    responding = [status for status in statuses.values() if "state_hash" in status]
    agreement = compare_states(responding)
    if agreement.index is None:
        return f"{len(responding)} of {len(nodes)} respond; their states are too far apart to compare", None, None
    if agreement.is_consistent:
        return f"{len(responding)} of {len(nodes)} agree", True, agreement.index
    return f"{len(agreement.hashes)} different states among {len(responding)} nodes", False, agreement.index


_ATTENTION_SEVERITIES: Final[dict[str, Literal["error", "warning", "info"]]] = {
    "critical": "error",
    "warning": "warning",
    "info": "info",
}


def health(context: OperationContext, params: NoQuestion) -> Health:
    """List the problems of the cluster."""
    require_describe_cluster(context)
    report = fetch_health(context)
    if report is None:
        raise RestError(HTTPStatus.SERVICE_UNAVAILABLE, "the problems are not known yet: try again later")
    return build_health(report)
