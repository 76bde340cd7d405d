"""AlterNodes: add, remove, promote, demote, drain or undrain nodes.

An API of Chronik. The response is sent once the change is committed; DescribeNodes shows when it is complete.
"""

from __future__ import annotations

from chronik.protocol.schema import (
    Request,
    Response,
    Struct,
    array,
    boolean,
    int8,
    int16,
    int32,
    mirror_request_field,
    string,
)


class NodeToAlter(Struct):
    node_id: int = int32("0+")
    action: int = int8("0+")
    """0 add, 1 remove, 2 promote, 3 demote, 4 drain, 5 undrain."""
    host: str | None = string("0+", nullable="0+", default=None)
    """The peer address of the node to add."""
    port: int = int32("0+")


class AlterNodesRequest(Request):
    cluster_id: str | None = string("0+", nullable="0+", default=None)
    timeout_ms: int = int32("0+", default=60000)
    changes: list[NodeToAlter] = array(NodeToAlter, "0+")
    validate_only: bool = boolean("0+")


class AlteredNode(Struct):
    node_id: int = mirror_request_field("node_id", int32("0+"))
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+", default=None)


class AlterNodesResponse(Response):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+", default=None)
    results: list[AlteredNode] = mirror_request_field("changes", array(AlteredNode, "0+"))
