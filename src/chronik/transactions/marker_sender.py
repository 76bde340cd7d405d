"""Markers on the transaction coordinator: it sends the decision to all partitions of a transaction until all have it.

Partitions without records of the transaction get a marker, too: a leader with an outdated image could otherwise accept
a late record as one of an open transaction.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from chronik.metadata.commands.topics import NO_LEADER
from chronik.metadata.commands.transactions import TransactionPartition
from chronik.metadata.image import Image
from chronik.metadata.records import Transaction
from chronik.metadata.stores.store import MetadataStore
from chronik.protocol.errors import ErrorCode
from chronik.transactions.marker_appender import DECISION_TIMEOUT_SECONDS, REPLICATION_TIMEOUT_SECONDS, MarkerAppender
from chronik.transactions.peer_messages import TransactionPeers, TransactionPeerUnreachable, WriteMarkersRequest

logger = logging.getLogger("chronik.transactions")

CALL_TIMEOUT_SECONDS: Final = DECISION_TIMEOUT_SECONDS + REPLICATION_TIMEOUT_SECONDS + 1.0
WARNING_DELAY_SECONDS: Final = 5.0
"""Delay before a warning (logged once) about missing markers, which hold back the last stable offset."""

PAUSE_SECONDS_MIN: Final = 0.02
PAUSE_SECONDS_MAX: Final = 1.0
"""Delay between two attempts: leader changes take fractions of a second; missing replicas can be absent for long."""


class MarkerSender:
    """Sends the markers of decided transactions to the partition leaders."""

    def __init__(
        self, node_id: int, store: MetadataStore, local_appender: MarkerAppender, peers: TransactionPeers
    ) -> None:
        self._node_id = node_id
        self._store = store
        self._local_appender = local_appender
        self._peers = peers

    async def send(self, transaction: Transaction, coordinator_epoch: int, should_continue: Callable[[], bool]) -> None:
        """Return when all partitions have their marker, or when another coordinator is responsible for them."""
        missing = set(transaction.partitions)
        pause, waited = PAUSE_SECONDS_MIN, 0.0
        while should_continue():
            current = self._store.image.transactions.get(transaction.transactional_id)
            if current is None or current.index != transaction.index:
                return
            missing.intersection_update(current.partitions)  # topics may be deleted in the meantime
            sends = [
                self._send_to(leader, transaction, coordinator_epoch, partitions)
                for leader, partitions in _group_by_leader(self._store.image, missing).items()
            ]
            for done in await asyncio.gather(*sends):
                missing.difference_update(done)
            if not missing:
                return
            if waited < WARNING_DELAY_SECONDS <= waited + pause:
                warning = (
                    "transaction of %r: markers are still missing on %d partitions; retrying until they are written"
                )
                logger.warning(warning, transaction.transactional_id, len(missing))
            await asyncio.sleep(pause)
            waited += pause
            pause = min(2 * pause, PAUSE_SECONDS_MAX)

    async def _send_to(
        self, leader: int, transaction: Transaction, coordinator_epoch: int, partitions: list[TransactionPartition]
    ) -> list[TransactionPartition]:
        """Send markers to one leader. Return the partitions that have their marker."""
        markers = WriteMarkersRequest(
            transaction.producer_id,
            transaction.producer_epoch,
            coordinator_epoch,
            transaction.index,
            transaction.state.is_commit,
            tuple(partitions),
        )
        errors: Sequence[int]
        if leader == self._node_id:
            errors = await self._local_appender.append(markers)
        else:
            try:
                errors = await self._peers.send_markers(leader, markers, CALL_TIMEOUT_SECONDS)
            except TransactionPeerUnreachable:
                return []
        return [each for each, error in zip(partitions, errors, strict=False) if error == ErrorCode.NONE]


def _group_by_leader(image: Image, partitions: Iterable[TransactionPartition]) -> dict[int, list[TransactionPartition]]:
    """Return the partitions by leader, without those that have no leader."""
    by_leader: dict[int, list[TransactionPartition]] = defaultdict(list)
    for partition in sorted(partitions, key=lambda each: (each.topic_id, each.index)):
        leader = image.topics_by_id[partition.topic_id].partitions[partition.index].leader
        if leader != NO_LEADER:
            by_leader[leader].append(partition)
    return by_leader
