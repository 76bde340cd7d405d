"""Transactions between nodes: who asks whom, over the connections that they have."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from chronik.peers.call_kinds import CallKind
from chronik.peers.calls import CallRefused, CallTimedOut, PeerCalls, PeerUnavailable, TypedCall
from chronik.transactions.joining import Joining
from chronik.transactions.marker_appending import MarkerAppender
from chronik.transactions.messages import Join, Joined, Markers, MarkersAppended, Unreachable

MARKERS: Final = TypedCall(CallKind.MARKERS, Markers, MarkersAppended)
JOIN: Final = TypedCall(CallKind.JOIN_TRANSACTION, Join, Joined)


class TransactionCalls:
    """See `Elsewhere`."""

    def __init__(self, calls: PeerCalls) -> None:
        self._calls = calls

    def serve(self, appender: MarkerAppender, joining: Joining) -> None:
        """Must be called before the peers' transport starts."""
        MARKERS.serve(self._calls, appender.serve)
        JOIN.serve(self._calls, joining.serve)

    async def tell(self, node_id: int, markers: Markers, seconds: float) -> Sequence[int]:
        try:
            return (await MARKERS.ask(self._calls, node_id, markers, seconds)).errors
        except (PeerUnavailable, CallTimedOut, CallRefused) as error:
            raise Unreachable(str(error)) from error

    async def join(self, node_id: int, request: Join, seconds: float) -> Joined:
        try:
            return await JOIN.ask(self._calls, node_id, request, seconds)
        except (PeerUnavailable, CallTimedOut, CallRefused) as error:
            raise Unreachable(str(error)) from error
