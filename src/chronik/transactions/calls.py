"""Calls between nodes about transactions, over their peer connections."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from typing import Final

from chronik.peers.call_kinds import CallKind
from chronik.peers.calls import CallRefused, CallTimedOut, PeerCalls, PeerUnavailable, TypedCall
from chronik.transactions.joining import Joining
from chronik.transactions.marker_appending import MarkerAppender
from chronik.transactions.messages import Join, Joined, Markers, MarkersAppended, Unreachable

MARKERS: Final = TypedCall(CallKind.MARKERS, Markers, MarkersAppended)
JOIN: Final = TypedCall(CallKind.JOIN_TRANSACTION, Join, Joined)


MARKERS_UNDER_WAY_MAX: Final = 256
JOINS_UNDER_WAY_MAX: Final = 256
"""Concurrent calls to each node. A peer accepts a limited number of calls in total (`PENDING_CALLS_MAX`), and leaders
with missing replicas respond late. Heartbeats, fetches and calls to other nodes must not wait behind them."""


class TransactionCalls:
    """The implementation of `TransactionPeers` over peer calls."""

    def __init__(self, calls: PeerCalls) -> None:
        self._calls = calls
        self._marker_slots = defaultdict[int, asyncio.Semaphore](lambda: asyncio.Semaphore(MARKERS_UNDER_WAY_MAX))
        self._join_slots = defaultdict[int, asyncio.Semaphore](lambda: asyncio.Semaphore(JOINS_UNDER_WAY_MAX))

    def serve(self, appender: MarkerAppender, joining: Joining) -> None:
        """Register the handlers of both calls. Must be called before the peer transport starts."""
        MARKERS.serve(self._calls, appender.serve)
        JOIN.serve(self._calls, joining.serve)

    async def tell(self, node_id: int, markers: Markers, seconds: float) -> Sequence[int]:
        """Send markers to a partition leader and return an error code for each partition.

        Raises:
            TransactionPeerUnreachable: The peer did not respond.
        """
        try:
            async with self._marker_slots[node_id]:
                return (await MARKERS.ask(self._calls, node_id, markers, seconds)).errors
        except (PeerUnavailable, CallTimedOut, CallRefused) as error:
            raise Unreachable(str(error)) from error

    async def join(self, node_id: int, request: Join, seconds: float) -> Joined:
        """Ask the transaction coordinator on another node to add partitions or groups to a transaction.

        Raises:
            TransactionPeerUnreachable: The peer did not respond.
        """
        try:
            async with self._join_slots[node_id]:
                return await JOIN.ask(self._calls, node_id, request, seconds)
        except (PeerUnavailable, CallTimedOut, CallRefused) as error:
            raise Unreachable(str(error)) from error
