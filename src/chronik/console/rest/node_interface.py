"""The interface between the admin API and the node that it is part of."""

from __future__ import annotations

from typing import Any, Protocol

import msgspec

from chronik.api.shared.context import Services
from chronik.console.status_source import StatusSource
from chronik.principals import Principal
from chronik.registry.service import SchemaRegistry
from chronik.request_reply import Dispatch
from chronik.security.quotas.limiter import QuotaLimiter


class OtherNodes(Protocol):
    """The interface through which the admin API sends requests to the other nodes of the cluster."""

    async def forward_request(
        self, node_id: int, principal: Principal, host: str, listener: str, frame: bytes, timeout_s: float
    ) -> tuple[bytes, float]:
        """Forward a Kafka request to another node, which handles it with this principal's permissions.

        Returns:
            The response frame, and the throttle time in seconds.
        """

    async def fetch_status(self, node_id: int, timeout_s: float) -> dict[str, Any]:
        """Return the status of another node; see `StatusSource.status`."""

    async def query_history(self, node_id: int, query: bytes, timeout_s: float) -> bytes:
        """Return the encoded answer of another node to an encoded `HistoryQuery`."""


class NoOtherNodes:
    """The implementation of `OtherNodes` in standalone mode, which has no other nodes."""

    async def forward_request(
        self, node_id: int, principal: Principal, host: str, listener: str, frame: bytes, timeout_s: float
    ) -> tuple[bytes, float]:
        raise LookupError(f"node {node_id} does not exist: this node is standalone")

    async def fetch_status(self, node_id: int, timeout_s: float) -> dict[str, Any]:
        raise LookupError(f"node {node_id} does not exist: this node is standalone")

    async def query_history(self, node_id: int, query: bytes, timeout_s: float) -> bytes:
        raise LookupError(f"node {node_id} does not exist: this node is standalone")


class NodeInterface(msgspec.Struct, frozen=True):
    """The services of a node that the admin API uses."""

    services: Services
    dispatch: Dispatch
    """The node's router for Kafka requests. It expects requests that are already authenticated."""
    status_source: StatusSource
    other_nodes: OtherNodes
    registry: SchemaRegistry
    limiter: QuotaLimiter
    """The client quotas of the node."""
    requires_login: bool
    """Whether clients have to log in with a user name and a password."""
