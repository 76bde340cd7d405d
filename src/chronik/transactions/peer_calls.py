"""Calls between nodes about transactions, over their peer connections."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from typing import Final

from chronik.peers.calls import CallKind, CallRejected, CallTimedOut, PeerCalls, PeerUnavailable, TypedCall
from chronik.transactions.coordinator import TransactionJoiner
from chronik.transactions.markers import MarkerAppender
from chronik.transactions.peer_messages import (
    JoinTransactionRequest,
    JoinTransactionResponse,
    TransactionPeerUnreachable,
    WriteMarkersRequest,
    WriteMarkersResponse,
)

WRITE_MARKERS_CALL: Final = TypedCall(CallKind.MARKERS, WriteMarkersRequest, WriteMarkersResponse)
JOIN_TRANSACTION_CALL: Final = TypedCall(CallKind.JOIN_TRANSACTION, JoinTransactionRequest, JoinTransactionResponse)


PENDING_MARKER_CALLS_MAX: Final = 256
PENDING_JOIN_CALLS_MAX: Final = 256
"""Maximum numbers of concurrent calls to each node, for writing markers and for joining transactions.

A peer accepts a limited number of calls in total (`PENDING_CALLS_MAX`), and calls to leaders with missing replicas take
long. They must not delay heartbeats, fetches and calls to other nodes.
"""


class TransactionPeerCalls:
    """The implementation of `TransactionPeers` by remote calls to other nodes."""

    def __init__(self, calls: PeerCalls) -> None:
        self._calls = calls
        self._marker_slots = defaultdict[int, asyncio.Semaphore](lambda: asyncio.Semaphore(PENDING_MARKER_CALLS_MAX))
        self._join_slots = defaultdict[int, asyncio.Semaphore](lambda: asyncio.Semaphore(PENDING_JOIN_CALLS_MAX))

    def serve(self, appender: MarkerAppender, joining: TransactionJoiner) -> None:
        """Register the handlers of marker requests and join requests. Call it before the peer transport starts."""
        WRITE_MARKERS_CALL.serve(self._calls, appender.serve)
        JOIN_TRANSACTION_CALL.serve(self._calls, joining.serve)

    async def send_markers(self, node_id: int, markers: WriteMarkersRequest, timeout_seconds: float) -> Sequence[int]:
        """Send markers to a partition leader and return an error code for each partition.

        Raises:
            TransactionPeerUnreachable: The peer did not respond.
        """
        try:
            async with self._marker_slots[node_id]:
                return (await WRITE_MARKERS_CALL.call(self._calls, node_id, markers, timeout_seconds)).errors
        except (PeerUnavailable, CallTimedOut, CallRejected) as error:
            raise TransactionPeerUnreachable(str(error)) from error

    async def join(
        self, node_id: int, request: JoinTransactionRequest, timeout_seconds: float
    ) -> JoinTransactionResponse:
        """Send a request to the transaction coordinator on another node to add partitions or groups to a transaction.

        Raises:
            TransactionPeerUnreachable: The peer did not respond.
        """
        try:
            async with self._join_slots[node_id]:
                return await JOIN_TRANSACTION_CALL.call(self._calls, node_id, request, timeout_seconds)
        except (PeerUnavailable, CallTimedOut, CallRejected) as error:
            raise TransactionPeerUnreachable(str(error)) from error
