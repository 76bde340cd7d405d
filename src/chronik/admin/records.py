"""Records are deleted from the front of partitions: the start of the log moves up, on every replica that is alive."""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from chronik.admin.partitions import NamedPartition
from chronik.broker.replica import Replica
from chronik.broker.replicas import Replicas
from chronik.metadata.stores.store import MetadataStore
from chronik.protocol.errors import ErrorCode, KafkaError

logger = logging.getLogger("chronik.api")

HIGH_WATERMARK: Final = -1
"""In place of an offset: all that can be read."""

LowWatermark = int


async def delete_records(
    store: MetadataStore, replicas: Replicas, partition: NamedPartition, offset: int, timeout_ms: int
) -> LowWatermark:
    """Deletes what is before an offset of a partition that this node leads, and tells where its replicas begin. Raises
    KafkaError."""

    def is_alive(broker_id: int) -> bool:
        broker = store.image.brokers.get(broker_id)
        return broker is not None and not broker.fenced

    try:
        lost = replicas.lost(partition.topic, partition.partition)
        if lost is not None and offset == HIGH_WATERMARK:
            return _begin_anew(lost)
        replica = replicas.by_name(partition.topic, partition.partition)
        if store.image.topics_by_id[replica.topic_id].internal:
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION)
        if not replica.rules.deletable:
            raise KafkaError(ErrorCode.POLICY_VIOLATION)
        if offset == HIGH_WATERMARK:
            offset = replica.high_watermark
        if not 0 <= offset <= replica.high_watermark:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
        start = await replica.delete_records_before(offset)
        async with asyncio.timeout(timeout_ms / 1000):  # the others' time: what is done here is done even in 0 ms
            return await replica.low_watermark_reaches(start, is_alive)
    except TimeoutError:
        raise KafkaError(ErrorCode.REQUEST_TIMED_OUT) from None


def _begin_anew(lost: Replica) -> LowWatermark:
    """By deleting all of a lost partition, an operator says that it may go on without what was lost."""
    damage = lost.damage
    start = lost.begin_anew()
    logger.warning("%r begins anew at offset %d, as it was asked to; %s", lost, start, damage)
    return start
