"""Implicit additions (transactions of version 2): a partition's leader, or a group's coordinator, asks the coordinator
of the transaction in its producer's place, and goes on when its own image shows that it is part of the transaction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from chronik.coordination.tenure import Coordinators
from chronik.metadata.commands.topics import NO_LEADER
from chronik.metadata.commands.transactions import TransactionPartition
from chronik.metadata.stores.store import MetadataStore, StoreClosed
from chronik.protocol.errors import ErrorCode, KafkaError
from chronik.transactions.coordinator import TransactionCoordinator
from chronik.transactions.messages import Elsewhere, Join, Joined, Unreachable

CALL_SECONDS: Final = 6.0
"""Longer than a coordinator waits for the markers of the transaction before."""


class Joining:
    def __init__(
        self,
        node_id: int,
        store: MetadataStore,
        coordinators: Coordinators,
        here: TransactionCoordinator,
        elsewhere: Elsewhere,
    ) -> None:
        self._node_id = node_id
        self._store = store
        self._coordinators = coordinators
        self._here = here
        self._elsewhere = elsewhere

    async def join(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Sequence[TransactionPartition] = (),
        groups: Sequence[str] = (),
    ) -> ErrorCode:
        """Returns when the image shows it, for good, or why not."""
        request = Join(transactional_id, producer_id, producer_epoch, tuple(partitions), tuple(groups))
        try:
            joined = await self._ask(request)
            if joined.error == ErrorCode.NONE:
                await self._store.wait_durable(joined.index, CALL_SECONDS)
        except (Unreachable, KafkaError, StoreClosed):
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        return ErrorCode(joined.error)

    async def _ask(self, request: Join) -> Joined:
        node_id = self._coordinators.node_of(request.transactional_id)
        if node_id == self._node_id:
            return await self.serve(node_id, request)
        if node_id == NO_LEADER:
            return Joined(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return await self._elsewhere.join(node_id, request, CALL_SECONDS)

    async def serve(self, peer: int, request: Join) -> Joined:
        error = await self._here.add(
            request.transactional_id,
            request.producer_id,
            request.producer_epoch,
            request.partitions,
            request.groups,
        )
        return Joined(error, self._store.image.applied_index)
