"""DeleteRecords (API key 21): advances the log start offset of partitions; -1 stands for the high watermark.

The response is sent when every live replica has advanced its log start offset.
"""

from __future__ import annotations

import asyncio

from chronik.admin.partitions import NamedPartition
from chronik.admin.records import delete_records
from chronik.api.shared.context import Context, Services
from chronik.api.shared.rights import Judge, may_do
from chronik.metadata.slices import Pace, in_pieces
from chronik.protocol.errors import ErrorCode, KafkaError
from chronik.protocol.messages.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from chronik.protocol.permissions import Operation, ResourceType


async def handle(services: Services, request: DeleteRecordsRequest, context: Context) -> DeleteRecordsResponse:
    offsets: dict[NamedPartition, int] = {}
    pace = Pace()
    for topic in request.topics:
        for chunk in in_pieces(topic.partitions):
            offsets.update((NamedPartition(topic.name, each.partition_index), each.offset) for each in chunk)
            await pace.yield_if_due()
    topics: dict[str, DeleteRecordsTopicResult] = {}
    may_delete = may_do(services, context, Operation.DELETE, ResourceType.TOPIC)
    for chunk_offsets in in_pieces(offsets.items()):
        results = await asyncio.gather(
            *(_delete(services, may_delete, *each, request.timeout_ms) for each in chunk_offsets)
        )
        for (named, _), result in zip(chunk_offsets, results, strict=True):
            topics.setdefault(named.topic, DeleteRecordsTopicResult(name=named.topic)).partitions.append(result)
    return DeleteRecordsResponse(topics=list(topics.values()))


async def _delete(
    services: Services, may_delete: Judge, named: NamedPartition, offset: int, timeout_ms: int
) -> DeleteRecordsPartitionResult:
    result = DeleteRecordsPartitionResult(partition_index=named.partition)
    try:
        if not may_delete(named.topic):
            raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        result.low_watermark = await delete_records(services.store, services.replicas, named, offset, timeout_ms)
    except KafkaError as error:
        result.error_code = error.code
    return result
