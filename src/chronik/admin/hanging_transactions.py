"""Aborting of hanging transactions: open in a partition, but unknown to their coordinator.

Chronik itself no longer creates them (KIP-890), but imported logs of other brokers may contain them.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from chronik.admin.partitions import TopicPartitionName
from chronik.broker.replica import Replica
from chronik.broker.replica_manager import ReplicaManager
from chronik.metadata.commands.transactions import TransactionPartition
from chronik.metadata.image import Image
from chronik.metadata.stores.store import MetadataStore
from chronik.protocol.control_records import TransactionMarker
from chronik.protocol.errors import ErrorCode, KafkaError

logger = logging.getLogger("chronik.api")

MARKER_TIMEOUT_SECONDS: Final = 30.0
"""Timeout in seconds for replicating the abort marker to the ISR, as in Kafka."""


async def abort_hanging_transaction(
    store: MetadataStore,
    replicas: ReplicaManager,
    partition: TopicPartitionName,
    producer_id: int,
    producer_epoch: int,
    coordinator_epoch: int,
    now_ms: int,
) -> None:
    """Abort a producer's open transaction, if any, in a partition that this node leads.

    Raises:
        KafkaError: The producer or coordinator epoch is outdated, or the coordinator knows the transaction
            (INVALID_TXN_STATE).
    """
    replica = replicas.get_leader(partition.topic, partition.partition)
    if producer_id not in replica.log.producers.transactions.open:
        return
    known = replica.log.producers.get(producer_id)
    # The caller must know the current epoch. Another epoch could fence a producer that is active again.
    if known is None or known.epoch != producer_epoch:
        raise KafkaError(ErrorCode.INVALID_PRODUCER_EPOCH)
    if coordinator_epoch < known.coordinator_epoch:
        raise KafkaError(ErrorCode.TRANSACTION_COORDINATOR_FENCED)
    if _is_transaction_known_to_coordinator(
        store.image, producer_id, TransactionPartition(replica.topic_id, replica.index)
    ):
        raise KafkaError(ErrorCode.INVALID_TXN_STATE, "the coordinator knows the transaction and will end it")
    if not replica.has_enough_replicas:
        raise KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS)
    # Do not use the epoch of the request: a high one would fence the markers of the coordinator.
    marker = TransactionMarker(is_commit=False, coordinator_epoch=max(known.coordinator_epoch, 0))
    end_offset = replica.append_marker(producer_id, producer_epoch, marker, now_ms)
    logger.warning("%r: hanging transaction aborted by an administrator: producer_id=%d", replica, producer_id)
    await _wait_until_committed(replica, end_offset)


def _is_transaction_known_to_coordinator(image: Image, producer_id: int, partition: TransactionPartition) -> bool:
    transaction = image.find_transaction_by_producer_id(producer_id)
    return transaction is not None and not transaction.state.is_idle and partition in transaction.partitions


async def _wait_until_committed(replica: Replica, end_offset: int) -> None:
    """Wait until all in-sync replicas have replicated the records before `end_offset`."""
    if replica.is_committed(end_offset):
        return
    outcome: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()
    replica.commit_waiters.add(end_offset, lambda code: None if outcome.done() else outcome.set_result(code))
    try:
        async with asyncio.timeout(MARKER_TIMEOUT_SECONDS):
            code = await outcome
    except TimeoutError:
        raise KafkaError(ErrorCode.REQUEST_TIMED_OUT) from None
    if code is not ErrorCode.NONE:
        raise KafkaError(code)
