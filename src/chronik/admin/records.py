"""Deletion of records: advances the log start offset on all live replicas."""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from chronik.admin.partitions import NamedPartition
from chronik.broker.replica import Replica
from chronik.broker.replica_manager import ReplicaManager
from chronik.metadata.stores.store import MetadataStore
from chronik.protocol.errors import ErrorCode, KafkaError

logger = logging.getLogger("chronik.api")

UP_TO_HIGH_WATERMARK: Final = -1
"""The requested offset that stands for the high watermark."""

LowWatermark = int


async def delete_records(
    store: MetadataStore, replicas: ReplicaManager, partition: NamedPartition, offset: int, timeout_ms: int
) -> LowWatermark:
    """Delete the records before an offset of a partition that this node leads. Return the low watermark.

    Raises:
        KafkaError: The partition is not led here, its records cannot be deleted, or the offset is out of range.
    """

    def is_alive(broker_id: int) -> bool:
        broker = store.image.brokers.get(broker_id)
        return broker is not None and not broker.is_fenced

    try:
        lost = replicas.find_lost(partition.topic, partition.partition)
        if lost is not None and offset == UP_TO_HIGH_WATERMARK:
            return _restart_lost_partition(lost)
        replica = replicas.get_leader(partition.topic, partition.partition)
        if store.image.topics_by_id[replica.topic_id].internal:
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION)
        if not replica.produce_rules.can_delete_records:
            raise KafkaError(ErrorCode.POLICY_VIOLATION)
        if offset == UP_TO_HIGH_WATERMARK:
            offset = replica.high_watermark
        if not 0 <= offset <= replica.high_watermark:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
        start = await replica.delete_records_before(offset)
        async with asyncio.timeout(timeout_ms / 1000):  # the timeout applies to the followers only
            return await replica.wait_for_low_watermark(start, is_alive)
    except TimeoutError:
        raise KafkaError(ErrorCode.REQUEST_TIMED_OUT) from None


def _restart_lost_partition(lost: Replica) -> LowWatermark:
    """Restart a partition that has lost records. Deleting all its records confirms that the loss is accepted."""
    damage = lost.damage_description
    start = lost.restart_after_data_loss()
    logger.warning("%r: log restarted by request after data loss offset=%d: %s", lost, start, damage)
    return start
