"""Nodes of a cluster: describe and alter them (Chronik's own APIs)."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import Final, NamedTuple

from chronik.client.cluster import ClusterClient, raise_for_code
from chronik.planning.views import PlannedNode
from chronik.protocol.messages.alter_nodes import AlterNodesRequest, AlterNodesResponse, NodeToAlter
from chronik.protocol.messages.describe_nodes import DescribedNode, DescribeNodesRequest, DescribeNodesResponse

ONLINE_STATUSES: Final = ("online", "maintenance")
"""Node statuses of brokers whose heartbeats arrive."""


class AlterNodesAction(IntEnum):
    """Node changes, with the numbers that AlterNodes uses."""

    ADD = 0
    REMOVE = 1
    PROMOTE = 2
    DEMOTE = 3
    DRAIN = 4
    UNDRAIN = 5


class AlterNodesChange(NamedTuple):
    """A change of one node, as AlterNodes accepts it."""

    action: AlterNodesAction
    node_id: int
    host: str | None = None
    port: int = 0
    """Peer address of a node that is added."""


def describe_nodes(cluster: ClusterClient) -> DescribeNodesResponse:
    """Return the desired and actual state of all nodes, sorted by id.

    Raises:
        ClientError: If the broker is not Chronik, or is too old.
        KafkaError: If no node knows the state at the moment.
    """

    def send() -> DescribeNodesResponse:
        response = cluster.any_broker().request(DescribeNodesRequest(), DescribeNodesResponse)
        raise_for_code(response.error_code, "nodes", response.error_message)
        return response

    response = cluster.retry(send)
    response.nodes.sort(key=lambda node: node.node_id)
    return response


def alter_nodes(cluster: ClusterClient, changes: Sequence[AlterNodesChange]) -> None:
    """Apply node changes in order and stop at the first rejected one, raising its KafkaError.

    Returns once the changes are committed; use `describe_nodes` to see when they have taken effect.
    """
    wanted = [NodeToAlter(node_id=each.node_id, action=each.action, host=each.host, port=each.port) for each in changes]
    request = AlterNodesRequest(changes=wanted, timeout_ms=int(cluster.timeout_s * 1000))

    def send() -> AlterNodesResponse:
        response = cluster.any_broker().request(request, AlterNodesResponse)
        raise_for_code(response.error_code, "nodes", response.error_message)
        for result in response.results:
            raise_for_code(result.error_code, f"node {result.node_id}", result.error_message)
        return response

    cluster.retry(send)


def to_planned_node(node: DescribedNode) -> PlannedNode:
    """Convert a described node to the input of plans."""
    return PlannedNode(
        node.node_id,
        node.rack,
        is_online=node.status in ONLINE_STATUSES,
        is_draining=node.draining,
        is_member=node.is_member,
        is_voter=node.is_voter,
        should_vote=node.meant_to_vote,
    )
