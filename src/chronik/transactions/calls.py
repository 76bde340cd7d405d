"""Transactions between nodes: who asks whom, over the connections that they have."""

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
"""Calls at a time to each node. A peer takes a limited number in all (`CALLS_UNDER_WAY_MAX`), and partitions whose
replicas are missing answer late: heartbeats and fetches must not wait behind them, nor calls to other nodes."""


class TransactionCalls:
    """See `Elsewhere`."""

    def __init__(self, calls: PeerCalls) -> None:
        self._calls = calls
        self._markers = defaultdict[int, asyncio.Semaphore](lambda: asyncio.Semaphore(MARKERS_UNDER_WAY_MAX))
        self._joins = defaultdict[int, asyncio.Semaphore](lambda: asyncio.Semaphore(JOINS_UNDER_WAY_MAX))

    def serve(self, appender: MarkerAppender, joining: Joining) -> None:
        """Must be called before the peers' transport starts."""
        MARKERS.serve(self._calls, appender.serve)
        JOIN.serve(self._calls, joining.serve)

    async def tell(self, node_id: int, markers: Markers, seconds: float) -> Sequence[int]:
        try:
            async with self._markers[node_id]:
                return (await MARKERS.ask(self._calls, node_id, markers, seconds)).errors
        except (PeerUnavailable, CallTimedOut, CallRefused) as error:
            raise Unreachable(str(error)) from error

    async def join(self, node_id: int, request: Join, seconds: float) -> Joined:
        try:
            async with self._joins[node_id]:
                return await JOIN.ask(self._calls, node_id, request, seconds)
        except (PeerUnavailable, CallTimedOut, CallRefused) as error:
            raise Unreachable(str(error)) from error
