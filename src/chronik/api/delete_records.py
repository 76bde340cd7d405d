"""DeleteRecords: moves the start of a log up to an offset; -1 stands for the high watermark.

Answered when every replica that is alive has let go of what is before it.
"""

from __future__ import annotations

import asyncio
import logging

from chronik.api.shared.context import Context, Services
from chronik.api.shared.long_answers import in_pieces
from chronik.broker.replica import Replica
from chronik.protocol.errors import ErrorCode, KafkaError
from chronik.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)

logger = logging.getLogger("chronik.api")

HIGH_WATERMARK = -1
UNKNOWN = -1


async def handle(services: Services, request: DeleteRecordsRequest, context: Context) -> DeleteRecordsResponse:
    wanted = {
        (topic.name, partition.partition_index): partition for topic in request.topics for partition in topic.partitions
    }
    topics: dict[str, DeleteRecordsTopicResult] = {}
    for some in in_pieces(list(wanted.items())):
        results = await asyncio.gather(
            *(_delete(services, name, partition, request.timeout_ms) for (name, _), partition in some)
        )
        for ((name, _), _), result in zip(some, results, strict=True):
            topics.setdefault(name, DeleteRecordsTopicResult(name=name)).partitions.append(result)
    return DeleteRecordsResponse(topics=list(topics.values()))


def _failed(partition: DeleteRecordsPartition, code: ErrorCode) -> DeleteRecordsPartitionResult:
    return DeleteRecordsPartitionResult(
        partition_index=partition.partition_index, low_watermark=UNKNOWN, error_code=code
    )


async def _delete(
    services: Services, topic: str, wanted: DeleteRecordsPartition, timeout_ms: int
) -> DeleteRecordsPartitionResult:
    try:
        lost = services.replicas.lost(topic, wanted.partition_index)
        if lost is not None and wanted.offset == HIGH_WATERMARK:
            return _begun_anew(lost, wanted)
        replica = services.replicas.by_name(topic, wanted.partition_index)
        if services.image.topics_by_id[replica.topic_id].internal:
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION)
        if not replica.rules.deletable:
            raise KafkaError(ErrorCode.POLICY_VIOLATION)
        offset = replica.high_watermark if wanted.offset == HIGH_WATERMARK else wanted.offset
        if not 0 <= offset <= replica.high_watermark:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
        start = await replica.delete_records_before(offset)
        async with asyncio.timeout(timeout_ms / 1000):  # for the others: what is done here is done, also within 0 ms
            low_watermark = await replica.low_watermark_reaches(start, lambda broker: _is_alive(services, broker))
    except TimeoutError:
        return _failed(wanted, ErrorCode.REQUEST_TIMED_OUT)
    except KafkaError as error:
        return _failed(wanted, error.code)
    return DeleteRecordsPartitionResult(partition_index=wanted.partition_index, low_watermark=low_watermark)


def _begun_anew(lost: Replica, wanted: DeleteRecordsPartition) -> DeleteRecordsPartitionResult:
    """All of it is to go, and all of it is gone: so an operator says that a lost partition may go on without it."""
    damage = lost.damage
    start = lost.begin_anew()
    logger.warning("%r begins anew at offset %d, as it was asked to; %s", lost, start, damage)
    return DeleteRecordsPartitionResult(partition_index=wanted.partition_index, low_watermark=start)


def _is_alive(services: Services, broker_id: int) -> bool:
    broker = services.image.brokers.get(broker_id)
    return broker is not None and not broker.fenced
