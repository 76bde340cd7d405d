"""Nodes of a cluster: what they are meant to be and what they are, and how that is changed. Chronik's own APIs."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import Final, NamedTuple

from chronik.client.cluster import Cluster, raise_for
from chronik.planning.views import NodeView
from chronik.protocol.messages.alter_nodes import AlterNodesRequest, AlterNodesResponse, NodeToAlter
from chronik.protocol.messages.describe_nodes import DescribedNode, DescribeNodesRequest, DescribeNodesResponse

PRESENT: Final = ("online", "maintenance")
"""The statuses of brokers that are heard from."""


class Action(IntEnum):
    """As AlterNodes numbers them."""

    ADD = 0
    REMOVE = 1
    PROMOTE = 2
    DEMOTE = 3
    DRAIN = 4
    UNDRAIN = 5


class NodeChange(NamedTuple):
    action: Action
    node_id: int
    host: str | None = None
    port: int = 0
    """Where its peers find a node that is added."""


def describe_nodes(cluster: Cluster) -> DescribeNodesResponse:
    """Raises ClientError for brokers that are not Chronik's, or too old; KafkaError when nobody knows at the moment."""

    def ask() -> DescribeNodesResponse:
        response = cluster.any_broker().request(DescribeNodesRequest(), DescribeNodesResponse)
        raise_for(response.error_code, "nodes", response.error_message)
        return response

    response = cluster.retrying(ask)
    response.nodes.sort(key=lambda node: node.node_id)
    return response


def alter_nodes(cluster: Cluster, changes: Sequence[NodeChange]) -> None:
    """Makes changes in their order, up to the first that is refused. Raises the KafkaError of that one.

    It returns when they are agreed on; that they are done is told by `describe_nodes`."""
    wanted = [NodeToAlter(node_id=each.node_id, action=each.action, host=each.host, port=each.port) for each in changes]
    request = AlterNodesRequest(changes=wanted, timeout_ms=int(cluster.timeout_s * 1000))

    def ask() -> AlterNodesResponse:
        response = cluster.any_broker().request(request, AlterNodesResponse)
        raise_for(response.error_code, "nodes", response.error_message)
        for result in response.results:
            raise_for(result.error_code, f"node {result.node_id}", result.error_message)
        return response

    cluster.retrying(ask)


def view_of(node: DescribedNode) -> NodeView:
    """Returns the node as plans see it."""
    return NodeView(
        node.node_id,
        node.rack,
        is_online=node.status in PRESENT,
        is_draining=node.draining,
        is_member=node.is_member,
        is_voter=node.is_voter,
        meant_to_vote=node.meant_to_vote,
    )
