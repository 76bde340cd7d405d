"""Transaction markers: sent by the transaction coordinator, and appended by the partition leaders.

The coordinator sends the decision to all partitions of a transaction until all have it. Partitions without records of
the transaction get a marker, too: a leader with an outdated image could otherwise accept a late record as one of an
open transaction.

A leader appends a marker only for a decision that its metadata image contains. The image may be behind the
coordinator's or ahead of it. A marker therefore carries the metadata index of its decision. The leader waits until its
image durably contains that index. If the image shows a later state of the transaction, all markers of the decision are
already written. The check and the append happen in the same event-loop iteration, so that no record of the next
transaction can be appended in between.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence, Set
from typing import Final

from chronik.broker.replica import Replica
from chronik.broker.replica_manager import ReplicaManager
from chronik.clock import Clock
from chronik.metadata.chunking import YieldTimer, iter_chunks
from chronik.metadata.commands.topics import NO_LEADER
from chronik.metadata.commands.transactions import TransactionPartition
from chronik.metadata.image import Image
from chronik.metadata.records import Transaction
from chronik.metadata.stores.store import MetadataStore, StoreClosedError
from chronik.protocol.control_records import TransactionMarker
from chronik.protocol.errors import ErrorCode, KafkaError
from chronik.transactions.peer_messages import (
    TransactionPeers,
    TransactionPeerUnreachable,
    WriteMarkersRequest,
    WriteMarkersResponse,
)

DECISION_TIMEOUT_SECONDS: Final = 5.0
"""Time in seconds that a partition leader waits until its metadata image contains the commit or abort. Then, the
coordinator retries."""

REPLICATION_TIMEOUT_SECONDS: Final = 10.0
"""Time in seconds to wait until all in-sync replicas have a marker. Slow replicas leave the ISR within this time."""

logger = logging.getLogger("chronik.transactions")

CALL_TIMEOUT_SECONDS: Final = DECISION_TIMEOUT_SECONDS + REPLICATION_TIMEOUT_SECONDS + 1.0
WARNING_DELAY_SECONDS: Final = 5.0
"""Delay before a single warning about missing markers, which prevent the last stable offset from advancing."""

PAUSE_SECONDS_MIN: Final = 0.02
PAUSE_SECONDS_MAX: Final = 1.0
"""Minimum and maximum delay in seconds between attempts to send markers. The delay doubles after each attempt."""


class MarkerAppender:
    """The component that appends transaction markers to the partitions that this node leads."""

    def __init__(
        self, store: MetadataStore, replicas: ReplicaManager, clock: Clock, is_fenced: Callable[[], bool]
    ) -> None:
        self._store = store
        self._replicas = replicas
        self._clock = clock
        self._is_fenced = is_fenced

    async def serve(self, peer: int, markers: WriteMarkersRequest) -> WriteMarkersResponse:
        """Handle another node's request to append transaction markers."""
        return WriteMarkersResponse(tuple(await self.append(markers)))

    async def append(self, markers: WriteMarkersRequest) -> list[ErrorCode]:
        """Append the markers and return an error code for each partition when they are committed."""
        try:
            await self._store.wait_durable(markers.decision_index, DECISION_TIMEOUT_SECONDS)
        except (KafkaError, StoreClosedError):
            return [ErrorCode.REQUEST_TIMED_OUT] * len(markers.partitions)
        appended: list[ErrorCode | asyncio.Future[ErrorCode]] = []
        pace = YieldTimer()
        for chunk in iter_chunks(markers.partitions):
            due = self._list_partitions_due(markers)  # read again in each event-loop iteration
            appended += [self._append(markers, each) if each in due else ErrorCode.NONE for each in chunk]
            await pace.yield_if_due()
        waiting = [each for each in appended if isinstance(each, asyncio.Future)]
        if waiting:
            await asyncio.wait(waiting, timeout=REPLICATION_TIMEOUT_SECONDS)
        return [_get_append_result(each) for each in appended]

    def _list_partitions_due(self, markers: WriteMarkersRequest) -> Set[TransactionPartition]:
        """Return the partitions that may still need a marker of the transaction; empty if it is completed."""
        transaction = self._store.image.find_transaction_by_producer_id(markers.producer_id)
        is_due = (
            transaction is not None and transaction.state.is_prepared and transaction.index == markers.decision_index
        )
        return frozenset(transaction.partitions) if transaction is not None and is_due else frozenset()

    def _append(
        self, markers: WriteMarkersRequest, partition: TransactionPartition
    ) -> ErrorCode | asyncio.Future[ErrorCode]:
        """Append a marker to one partition. Return an error code, or a future if the marker is not committed yet."""
        if self._is_fenced():
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        try:
            replica = self._replicas.get_leader_by_id(partition.topic_id, partition.index)
            if not replica.has_enough_replicas:
                return ErrorCode.NOT_ENOUGH_REPLICAS
            if _has_later_producer_epoch(replica, markers):
                return ErrorCode.NONE
            marker = TransactionMarker(is_commit=markers.commit, coordinator_epoch=max(markers.coordinator_epoch, 0))
            end_offset = replica.append_marker(
                markers.producer_id, markers.producer_epoch, marker, self._clock.now_ms()
            )
        except KafkaError as error:
            return error.code
        if replica.is_committed(end_offset):
            return ErrorCode.NONE
        committed: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()
        replica.commit_waiters.add(end_offset, lambda code: None if committed.done() else committed.set_result(code))
        return committed


def _has_later_producer_epoch(replica: Replica, markers: WriteMarkersRequest) -> bool:
    """Return whether the partition has records of a later producer epoch and no open transaction of the producer.

    In this case, the log accepts no more records of this transaction and would reject its marker. The later records are
    not transactional, and they must not prevent the transaction from ending.
    """
    producers = replica.log.producers
    known = producers.get(markers.producer_id)
    is_later = known is not None and known.epoch > markers.producer_epoch
    return is_later and markers.producer_id not in producers.transactions.open


def _get_append_result(appended: ErrorCode | asyncio.Future[ErrorCode]) -> ErrorCode:
    if isinstance(appended, ErrorCode):
        return appended
    return appended.result() if appended.done() else ErrorCode.REQUEST_TIMED_OUT


class MarkerSender:
    """The component that sends the markers of committed and aborted transactions to the partition leaders."""

    def __init__(
        self, node_id: int, store: MetadataStore, local_appender: MarkerAppender, peers: TransactionPeers
    ) -> None:
        self._node_id = node_id
        self._store = store
        self._local_appender = local_appender
        self._peers = peers

    async def send(self, transaction: Transaction, coordinator_epoch: int, should_continue: Callable[[], bool]) -> None:
        """Send markers until all partitions have one, or until the transaction or the coordinator term has ended."""
        missing = set(transaction.partitions)
        pause, waited = PAUSE_SECONDS_MIN, 0.0
        while should_continue():
            current = self._store.image.transactions.get(transaction.transactional_id)
            if current is None or current.index != transaction.index:
                return
            missing.intersection_update(current.partitions)  # topics may be deleted in the meantime
            sends = [
                self._send_markers_to_leader(leader, transaction, coordinator_epoch, partitions)
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

    async def _send_markers_to_leader(
        self, leader: int, transaction: Transaction, coordinator_epoch: int, partitions: list[TransactionPartition]
    ) -> list[TransactionPartition]:
        """Send markers to one leader. Return the partitions for which this succeeded."""
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
    """Return the partitions by leader, omitting partitions without a leader."""
    by_leader: dict[int, list[TransactionPartition]] = defaultdict(list)
    for partition in sorted(partitions, key=lambda each: (each.topic_id, each.index)):
        leader = image.topics_by_id[partition.topic_id].partitions[partition.index].leader
        if leader != NO_LEADER:
            by_leader[leader].append(partition)
    return by_leader
