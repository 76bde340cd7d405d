"""Messages between transaction coordinators and partition leaders on different nodes.

Existing fields never change; new fields are added at the end.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

from chronik.errors import ChronikError
from chronik.metadata.commands.transactions import TransactionPartition


class WriteMarkersRequest(msgspec.Struct, frozen=True, array_like=True):
    """A request to append the markers of a committed or aborted transaction to partitions that the receiver leads."""

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    decision_index: int
    """The metadata log index at which the transaction was committed or aborted."""
    commit: bool
    partitions: tuple[TransactionPartition, ...]


class WriteMarkersResponse(msgspec.Struct, frozen=True, array_like=True):
    """The response to a request to append transaction markers."""

    errors: tuple[int, ...]
    """An error code for each partition, in the order of the request."""


class JoinTransactionRequest(msgspec.Struct, frozen=True, array_like=True):
    """A request to add partitions or groups to a producer's transaction."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    partitions: tuple[TransactionPartition, ...] = ()
    groups: tuple[str, ...] = ()


class JoinTransactionResponse(msgspec.Struct, frozen=True, array_like=True):
    """The transaction coordinator's response to a request to add partitions or groups to a transaction."""

    error: int
    applied_index: int = -1
    """Metadata log index from which the metadata image contains the added partitions and groups."""


class TransactionPeerUnreachable(ChronikError):
    """Another node did not respond to a transaction request, so the outcome of the request is unknown."""


class TransactionPeers(Protocol):
    """The interface for transaction requests to other nodes: writing markers and joining transactions."""

    async def send_markers(self, node_id: int, markers: WriteMarkersRequest, timeout_seconds: float) -> Sequence[int]:
        """Send markers to a partition leader and return an error code for each partition.

        Raises:
            TransactionPeerUnreachable: The peer did not respond.
        """

    async def join(
        self, node_id: int, request: JoinTransactionRequest, timeout_seconds: float
    ) -> JoinTransactionResponse:
        """Send a request to the transaction coordinator on another node to add partitions or groups to a transaction.

        Raises:
            TransactionPeerUnreachable: The peer did not respond.
        """


class NoTransactionPeers:
    """The implementation of `TransactionPeers` for a standalone node, which has no peers."""

    async def send_markers(self, node_id: int, markers: WriteMarkersRequest, timeout_seconds: float) -> Sequence[int]:
        raise TransactionPeerUnreachable(f"node {node_id} does not exist: this node runs standalone")

    async def join(
        self, node_id: int, request: JoinTransactionRequest, timeout_seconds: float
    ) -> JoinTransactionResponse:
        raise TransactionPeerUnreachable(f"node {node_id} does not exist: this node runs standalone")
