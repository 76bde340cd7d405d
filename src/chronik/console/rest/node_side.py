"""What the admin API asks of the node that it is part of."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import msgspec

from chronik.api.shared.context import Services
from chronik.console.source import Figures, StatusSource
from chronik.exchange import Dispatch
from chronik.principals import Principal


class OtherNodes(Protocol):
    """The way to other nodes. Raises PeerUnavailable, CallTimedOut or CallRefused of `chronik.peers.calls`."""

    async def ask(
        self, node_id: int, principal: Principal, host: str, listener: str, frame: bytes, timeout_s: float
    ) -> tuple[bytes, float]:
        """Has that node answer a request as it would answer a client that is this principal. Returns the frame that
        answers, and for how many seconds the client has to be silent then."""

    async def status(self, node_id: int, timeout_s: float) -> dict[str, Any]:
        """Returns what it says of itself: see `StatusSource.status`."""


class Nobody:
    """The other nodes of one that stands alone."""

    async def ask(
        self, node_id: int, principal: Principal, host: str, listener: str, frame: bytes, timeout_s: float
    ) -> tuple[bytes, float]:
        raise LookupError(f"there is no node {node_id}")

    async def status(self, node_id: int, timeout_s: float) -> dict[str, Any]:
        raise LookupError(f"there is no node {node_id}")


class NodeSide(msgspec.Struct, frozen=True):
    services: Services
    dispatch: Dispatch
    """Of the router itself: who asks is known already."""
    source: StatusSource
    others: OtherNodes
    figures: Callable[[], Figures]
    asks_who: bool
    """Whether people have to log in."""
