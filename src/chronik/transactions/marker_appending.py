"""The side of partitions' leaders: markers are appended for decisions that the image holds, and for no others.

A leader's image may be behind the coordinator's or ahead of it. So a marker names the index of its decision: it waits
until the image has come so far and nothing can take the decision back, and if the image has gone on since then, all
markers of that decision were written. The look and the append are one turn of the loop: no record of the next
transaction can come between them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Set
from typing import Final

from chronik.broker.replica import Replica
from chronik.broker.replicas import Replicas
from chronik.clock import Clock
from chronik.metadata.commands.transactions import TransactionPartition
from chronik.metadata.slices import Pace, in_pieces
from chronik.metadata.stores.store import MetadataStore, StoreClosed
from chronik.protocol.control_records import TransactionMarker
from chronik.protocol.errors import ErrorCode, KafkaError
from chronik.transactions.messages import Markers, MarkersAppended

DECIDED_SECONDS: Final = 5.0
"""How long a marker waits for the decision. Then its coordinator sends it again."""

COMMITTED_SECONDS: Final = 10.0
"""How long it waits until every in-sync replica has it; a replica that does not come on leaves them in that time."""


class MarkerAppender:
    def __init__(self, store: MetadataStore, replicas: Replicas, clock: Clock, is_fenced: Callable[[], bool]) -> None:
        self._store = store
        self._replicas = replicas
        self._clock = clock
        self._is_fenced = is_fenced

    async def serve(self, peer: int, markers: Markers) -> MarkersAppended:
        return MarkersAppended(tuple(await self.append(markers)))

    async def append(self, markers: Markers) -> list[ErrorCode]:
        """Returns when they are committed, or why not, for each partition."""
        try:
            await self._store.wait_durable(markers.index, DECIDED_SECONDS)
        except (KafkaError, StoreClosed):
            return [ErrorCode.REQUEST_TIMED_OUT] * len(markers.partitions)
        appended: list[ErrorCode | asyncio.Future[ErrorCode]] = []
        pace = Pace()
        for some in in_pieces(markers.partitions):
            due = self._due(markers)  # in each turn anew
            appended += [self._append(markers, each) if each in due else ErrorCode.NONE for each in some]
            await pace.yield_if_due()
        waiting = [each for each in appended if isinstance(each, asyncio.Future)]
        if waiting:
            await asyncio.wait(waiting, timeout=COMMITTED_SECONDS)
        return [_outcome(each) for each in appended]

    def _due(self, markers: Markers) -> Set[TransactionPartition]:
        """Returns the partitions that may need a marker of this decision; none when all have it."""
        transaction = self._store.image.transaction_of(markers.producer_id)
        is_due = transaction is not None and transaction.state.is_prepared and transaction.index == markers.index
        return frozenset(transaction.partitions) if transaction is not None and is_due else frozenset()

    def _append(self, markers: Markers, partition: TransactionPartition) -> ErrorCode | asyncio.Future[ErrorCode]:
        if self._is_fenced():
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        try:
            replica = self._replicas.by_id(partition.topic_id, partition.index)
            if not replica.has_enough_replicas:
                return ErrorCode.NOT_ENOUGH_REPLICAS
            if _has_gone_on(replica, markers):
                return ErrorCode.NONE
            marker = TransactionMarker(committed=markers.commit, coordinator_epoch=max(markers.coordinator_epoch, 0))
            end_offset = replica.append_marker(
                markers.producer_id, markers.producer_epoch, marker, self._clock.now_ms()
            )
        except KafkaError as error:
            return error.code
        if replica.is_committed(end_offset):
            return ErrorCode.NONE
        committed: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()
        replica.commits.add(end_offset, lambda code: None if committed.done() else committed.set_result(code))
        return committed


def _has_gone_on(replica: Replica, markers: Markers) -> bool:
    """Whether a later epoch of the producer has written to the partition, and nothing is open there: then nothing of
    this transaction can come any more, and a marker of it would be refused. Only records outside of transactions come
    so early; whoever sends them must not keep the transaction from its end."""
    producers = replica.log.producers
    known = producers.get(markers.producer_id)
    is_later = known is not None and known.epoch > markers.producer_epoch
    return is_later and markers.producer_id not in producers.transactions.open


def _outcome(appended: ErrorCode | asyncio.Future[ErrorCode]) -> ErrorCode:
    if isinstance(appended, ErrorCode):
        return appended
    return appended.result() if appended.done() else ErrorCode.REQUEST_TIMED_OUT
