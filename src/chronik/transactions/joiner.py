"""Implicit additions to a transaction (transactions version 2).

A partition leader or group coordinator asks the transaction coordinator to add it to the transaction, on behalf of the
producer, and continues when its own image shows the addition.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from chronik.coordination.terms import CoordinatorTerms
from chronik.metadata.commands.topics import NO_LEADER
from chronik.metadata.commands.transactions import TransactionPartition
from chronik.metadata.stores.store import MetadataStore, StoreClosedError
from chronik.protocol.errors import ErrorCode, KafkaError
from chronik.transactions.coordinator import TransactionCoordinator
from chronik.transactions.peer_messages import (
    JoinTransactionRequest,
    JoinTransactionResponse,
    TransactionPeers,
    TransactionPeerUnreachable,
)

CALL_TIMEOUT_SECONDS: Final = 6.0
"""Longer than a coordinator waits for the markers of the previous transaction."""


class TransactionJoiner:
    """Adds partitions and groups of this node to transactions of any coordinator."""

    def __init__(
        self,
        node_id: int,
        store: MetadataStore,
        coordinators: CoordinatorTerms,
        local_coordinator: TransactionCoordinator,
        peers: TransactionPeers,
    ) -> None:
        self._node_id = node_id
        self._store = store
        self._coordinators = coordinators
        self._local_coordinator = local_coordinator
        self._peers = peers

    async def join(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Sequence[TransactionPartition] = (),
        groups: Sequence[str] = (),
    ) -> ErrorCode:
        """Add partitions and groups to a transaction. Return NONE when the local image durably shows the addition."""
        request = JoinTransactionRequest(
            transactional_id, producer_id, producer_epoch, tuple(partitions), tuple(groups)
        )
        try:
            joined = await self._ask(request)
            if joined.error == ErrorCode.NONE:
                await self._store.wait_durable(joined.applied_index, CALL_TIMEOUT_SECONDS)
        except (TransactionPeerUnreachable, KafkaError, StoreClosedError):
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        return ErrorCode(joined.error)

    async def _ask(self, request: JoinTransactionRequest) -> JoinTransactionResponse:
        node_id = self._coordinators.coordinator_of(request.transactional_id)
        if node_id == self._node_id:
            return await self.serve(node_id, request)
        if node_id == NO_LEADER:
            return JoinTransactionResponse(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return await self._peers.join(node_id, request, CALL_TIMEOUT_SECONDS)

    async def serve(self, peer: int, request: JoinTransactionRequest) -> JoinTransactionResponse:
        """Handle a join request of another node, as the transaction coordinator."""
        error = await self._local_coordinator.add_to_transaction(
            request.transactional_id,
            request.producer_id,
            request.producer_epoch,
            request.partitions,
            request.groups,
        )
        return JoinTransactionResponse(error, self._store.image.applied_index)
