"""Checks that a batch may be appended as part of a transaction (KIP-890).

A partition only accepts the first batch of a transaction that is known to be open; otherwise nothing would ever end the
transaction in that partition.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from chronik.api.shared.authorization import NamePredicate
from chronik.api.shared.context import Services
from chronik.api.shared.open_transactions import confirm_transaction_state
from chronik.api.shared.read_consistency import CONFIRM_TIMEOUT_SECONDS
from chronik.log.producer_state import ProducerStateManager
from chronik.metadata.commands.transactions import NO_RECORD_INDEX, TransactionPartition
from chronik.metadata.image import Image
from chronik.metadata.records import TransactionState
from chronik.metadata.stores.store import MetadataStore, StoreClosedError
from chronik.protocol.batch import BatchHeader
from chronik.protocol.errors import ErrorCode, KafkaError
from chronik.protocol.messages.produce import ProduceRequest


def continues_transaction(producers: ProducerStateManager, header: BatchHeader) -> bool:
    """Return whether the batch continues a transaction that is open in this log, or is a duplicate.

    Raises:
        KafkaError: The batch is out of sequence.
    """
    producer = producers.get(header.producer_id)
    if producer is None:
        return False
    is_open = header.producer_id in producers.transactions.open and producer.epoch == header.producer_epoch
    return is_open or producers.check_batches((header,)) is not None


class TransactionStart(NamedTuple):
    """A batch that would start a transaction in a partition."""

    header: BatchHeader
    partition: TransactionPartition

    def rejection_code(self, image: Image) -> ErrorCode | None:
        """Return why the batch must be rejected, or None if the transaction is open and contains the partition."""
        transaction = image.transaction_by_producer(self.header.producer_id)
        if transaction is None:
            return ErrorCode.TRANSACTION_ABORTABLE
        if self.header.producer_epoch < transaction.producer_epoch:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        is_open = transaction.state is TransactionState.ONGOING
        is_open = is_open and self.header.producer_epoch == transaction.producer_epoch
        return None if is_open and self.partition in transaction.partitions else ErrorCode.TRANSACTION_ABORTABLE

    def is_durable(self, store: MetadataStore) -> bool:
        """Return whether the open transaction would survive a power failure, so that a coordinator will end it."""
        return store.is_durable(self._last_change(store.image))

    async def confirm(self, services: Services) -> None:
        """Wait until the image shows durably that the transaction is open, or is confirmed to be current.

        Raises:
            KafkaError: NOT_ENOUGH_REPLICAS, because neither could be confirmed in time.
        """
        await confirm_transaction_state(services, lambda: self.rejection_code(services.image) is None)
        try:
            await services.store.wait_durable(self._last_change(services.image), CONFIRM_TIMEOUT_SECONDS)
        except (KafkaError, StoreClosedError) as error:
            raise KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS, "The transaction is not durable yet: retry") from error

    def _last_change(self, image: Image) -> int:
        transaction = image.transaction_by_producer(self.header.producer_id)
        return NO_RECORD_INDEX if transaction is None else transaction.index


async def add_partitions(
    services: Services, transactional_id: str, header: BatchHeader, partitions: Sequence[TransactionPartition]
) -> None:
    """Add partitions to the transaction on behalf of a producer that does not send AddPartitionsToTxn.

    Raises:
        KafkaError: The partitions could not be added.
    """
    error = await services.transaction_joiner.join(
        transactional_id, header.producer_id, header.producer_epoch, partitions
    )
    match error:
        case ErrorCode.NONE:
            return
        case ErrorCode.PRODUCER_FENCED:
            raise KafkaError(ErrorCode.INVALID_PRODUCER_EPOCH)
        case (
            ErrorCode.NOT_COORDINATOR
            | ErrorCode.COORDINATOR_NOT_AVAILABLE
            | ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            | ErrorCode.CONCURRENT_TRANSACTIONS
        ):  # the same error as in Kafka: every client retries after it
            raise KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS, f"The partition was not added to the transaction: {error}")
        case _:
            raise KafkaError(error)


def transaction_partitions(
    request: ProduceRequest, image: Image, may_write: NamePredicate | None, *, by_id: bool
) -> list[TransactionPartition]:
    """Return the partitions of the request that can be part of its transaction.

    Internal topics are excluded, as in AddPartitionsToTxn, and topics that the producer may not write to.
    """
    found = []
    for each in request.topic_data:
        topic = image.topics_by_id.get(each.topic_id) if by_id else image.topics.get(each.name)
        if topic is not None and not topic.internal and (may_write is None or may_write(topic.name)):
            indexes = (partition.index for partition in each.partition_data)
            found += [TransactionPartition(topic.id, index) for index in indexes if topic.has_partition(index)]
    return found
