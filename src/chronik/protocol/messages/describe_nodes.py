"""DescribeNodes: return the nodes of the cluster with their target and current state.

An API of Chronik, which ApiVersions does not list. Kafka has no equivalent.
"""

from __future__ import annotations

from chronik.protocol.schema import Request, Response, Struct, array, boolean, int16, int32, int64, string, uuid


class DescribeNodesRequest(Request):
    pass


class DescribedNode(Struct):
    node_id: int = int32("0+")
    host: str = string("0+")
    """The node's peer address; empty for a node that is being removed and in standalone mode."""
    port: int = int32("0+")
    meant_to_vote: bool = boolean("0+")
    draining: bool = boolean("0+")
    is_member: bool = boolean("0+")
    is_voter: bool = boolean("0+")
    directory_id: bytes = uuid("0+")
    rack: str | None = string("0+", nullable="0+", default=None)
    status: str = string("0+")
    """The state of the node's broker: online, offline, maintenance or unregistered."""
    broker_epoch: int = int64("0+", default=-1)


class DescribeNodesResponse(Response):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+", default=None)
    cluster_id: str | None = string("0+", nullable="0+", default=None)
    level: int = int16("0+")
    nodes: list[DescribedNode] = array(DescribedNode, "0+")
