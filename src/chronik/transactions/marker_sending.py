"""The coordinator's side: it tells every partition of a transaction what was decided, until all have been told.

Markers go to all partitions, also to those that nothing was written to: a leader whose image was behind might otherwise
take a late record for one of an open transaction.
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
from chronik.transactions.marker_appending import COMMITTED_SECONDS, DECIDED_SECONDS, MarkerAppender
from chronik.transactions.messages import Elsewhere, Markers, Unreachable

logger = logging.getLogger("chronik.transactions")

CALL_SECONDS: Final = DECIDED_SECONDS + COMMITTED_SECONDS + 1.0
TOLD_AFTER_SECONDS: Final = 5.0
"""When it is told that markers are still missing, once: until they are written, nothing behind them is stable."""

PAUSE_SECONDS_MIN: Final = 0.02
PAUSE_SECONDS_MAX: Final = 1.0
"""Between two attempts: leaders change in fractions of a second, and replicas that are missing may be away for long."""


class MarkerSender:
    def __init__(self, node_id: int, store: MetadataStore, here: MarkerAppender, elsewhere: Elsewhere) -> None:
        self._node_id = node_id
        self._store = store
        self._here = here
        self._elsewhere = elsewhere

    async def send(self, transaction: Transaction, coordinator_epoch: int, goes_on: Callable[[], bool]) -> None:
        """Returns when all partitions have their marker, or it is no longer for this coordinator to see to that."""
        left = set(transaction.partitions)
        pause, waited = PAUSE_SECONDS_MIN, 0.0
        while goes_on():
            now = self._store.image.transactions.get(transaction.transactional_id)
            if now is None or now.index != transaction.index:
                return
            left.intersection_update(now.partitions)  # topics are deleted meanwhile
            sent = [
                self._send_to(leader, transaction, coordinator_epoch, partitions)
                for leader, partitions in _by_leader(self._store.image, left).items()
            ]
            for done in await asyncio.gather(*sent):
                left.difference_update(done)
            if not left:
                return
            if waited < TOLD_AFTER_SECONDS <= waited + pause:
                told = "the transaction of %r is decided, and %d of its partitions cannot be told so yet"
                logger.warning(told, transaction.transactional_id, len(left))
            await asyncio.sleep(pause)
            waited += pause
            pause = min(2 * pause, PAUSE_SECONDS_MAX)

    async def _send_to(
        self, leader: int, transaction: Transaction, coordinator_epoch: int, partitions: list[TransactionPartition]
    ) -> list[TransactionPartition]:
        """Returns those that have it."""
        markers = Markers(
            transaction.producer_id,
            transaction.producer_epoch,
            coordinator_epoch,
            transaction.index,
            transaction.state.commits,
            tuple(partitions),
        )
        errors: Sequence[int]
        if leader == self._node_id:
            errors = await self._here.append(markers)
        else:
            try:
                errors = await self._elsewhere.tell(leader, markers, CALL_SECONDS)
            except Unreachable:
                return []
        return [each for each, error in zip(partitions, errors, strict=False) if error == ErrorCode.NONE]


def _by_leader(image: Image, partitions: Iterable[TransactionPartition]) -> dict[int, list[TransactionPartition]]:
    found: dict[int, list[TransactionPartition]] = defaultdict(list)
    for partition in sorted(partitions, key=lambda each: (each.topic_id, each.index)):
        leader = image.topics_by_id[partition.topic_id].partitions[partition.index].leader
        if leader != NO_LEADER:
            found[leader].append(partition)
    return found
