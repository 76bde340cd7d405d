"""DeleteRecords (API key 21): advances the log start offset of partitions; -1 stands for the high watermark.

The response is sent when every live replica has advanced its log start offset.
"""

from __future__ import annotations

import asyncio

from chronik.admin.partitions import TopicPartitionName, delete_records
from chronik.api.shared.authorization import NamePredicate, build_authorization_predicate
from chronik.api.shared.context import RequestContext, Services
from chronik.metadata.chunking import YieldTimer, iter_chunks
from chronik.protocol.errors import ErrorCode, KafkaError
from chronik.protocol.messages.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from chronik.protocol.permissions import AclOperation, AclResourceType


async def handle(services: Services, request: DeleteRecordsRequest, context: RequestContext) -> DeleteRecordsResponse:
    offsets: dict[TopicPartitionName, int] = {}
    pace = YieldTimer()
    for topic in request.topics:
        for chunk in iter_chunks(topic.partitions):
            offsets.update((TopicPartitionName(topic.name, each.partition_index), each.offset) for each in chunk)
            await pace.yield_if_due()
    topics: dict[str, DeleteRecordsTopicResult] = {}
    may_delete = build_authorization_predicate(services, context, AclOperation.DELETE, AclResourceType.TOPIC)
    for chunk_offsets in iter_chunks(offsets.items()):
        results = await asyncio.gather(
            *(_delete_partition_records(services, may_delete, *each, request.timeout_ms) for each in chunk_offsets)
        )
        for (named, _), result in zip(chunk_offsets, results, strict=True):
            topics.setdefault(named.topic, DeleteRecordsTopicResult(name=named.topic)).partitions.append(result)
    return DeleteRecordsResponse(topics=list(topics.values()))


async def _delete_partition_records(
    services: Services, may_delete: NamePredicate, named: TopicPartitionName, offset: int, timeout_ms: int
) -> DeleteRecordsPartitionResult:
    result = DeleteRecordsPartitionResult(partition_index=named.partition)
    try:
        if not may_delete(named.topic):
            raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        result.low_watermark = await delete_records(services.store, services.replicas, named, offset, timeout_ms)
    except KafkaError as error:
        result.error_code = error.code
    return result
