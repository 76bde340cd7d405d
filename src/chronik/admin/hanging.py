"""Hanging transactions: open in a partition, while their coordinator knows nothing of them and will never end them.

What is written here never gets such records any more (KIP-890); records of another broker's log may still have them.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from chronik.admin.partitions import NamedPartition
from chronik.broker.replica import Replica
from chronik.broker.replicas import Replicas
from chronik.metadata.commands.transactions import TransactionPartition
from chronik.metadata.image import Image
from chronik.metadata.stores.store import MetadataStore
from chronik.protocol.control_records import TransactionMarker
from chronik.protocol.errors import ErrorCode, KafkaError

logger = logging.getLogger("chronik.api")

COMMITTED_SECONDS_MAX: Final = 30.0
"""Time for the in-sync replicas to have the marker, as long as Kafka waits for a request."""


async def abort_hanging(
    store: MetadataStore,
    replicas: Replicas,
    partition: NamedPartition,
    producer_id: int,
    producer_epoch: int,
    coordinator_epoch: int,
    now_ms: int,
) -> None:
    """Aborts what a producer has open in a partition that this node leads; if that is nothing, there is nothing to do.

    Raises KafkaError: INVALID_TXN_STATE when the coordinator knows the transaction, and ends it itself."""
    replica = replicas.by_name(partition.topic, partition.partition)
    if producer_id not in replica.log.producers.transactions.open:
        return
    known = replica.log.producers.get(producer_id)
    # Whoever asks must have looked: an epoch of their own would fence a producer that writes again by now.
    if known is None or known.epoch != producer_epoch:
        raise KafkaError(ErrorCode.INVALID_PRODUCER_EPOCH)
    if coordinator_epoch < known.coordinator_epoch:
        raise KafkaError(ErrorCode.TRANSACTION_COORDINATOR_FENCED)
    if _is_known(store.image, producer_id, TransactionPartition(replica.topic_id, replica.index)):
        raise KafkaError(ErrorCode.INVALID_TXN_STATE, "the coordinator knows the transaction, and will end it")
    if not replica.has_enough_replicas:
        raise KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS)
    # Not the epoch that was sent: a high one would fence the coordinator, whose markers come with its own.
    marker = TransactionMarker(committed=False, coordinator_epoch=max(known.coordinator_epoch, 0))
    end_offset = replica.append_marker(producer_id, producer_epoch, marker, now_ms)
    logger.warning("%r: the open transaction of producer %d is aborted, as it was asked to", replica, producer_id)
    await _committed(replica, end_offset)


def _is_known(image: Image, producer_id: int, partition: TransactionPartition) -> bool:
    transaction = image.transaction_of(producer_id)
    return transaction is not None and not transaction.state.is_at_rest and partition in transaction.partitions


async def _committed(replica: Replica, end_offset: int) -> None:
    if replica.is_committed(end_offset):
        return
    outcome: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()
    replica.commits.add(end_offset, lambda code: None if outcome.done() else outcome.set_result(code))
    try:
        async with asyncio.timeout(COMMITTED_SECONDS_MAX):
            code = await outcome
    except TimeoutError:
        raise KafkaError(ErrorCode.REQUEST_TIMED_OUT) from None
    if code is not ErrorCode.NONE:
        raise KafkaError(code)
