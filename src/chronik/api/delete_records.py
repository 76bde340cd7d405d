"""DeleteRecords: moves the start of a log up to an offset; -1 stands for the high watermark.

Answered when every replica that is alive has let go of what is before it.
"""

from __future__ import annotations

from chronik.admin.partitions import NamedPartition
from chronik.admin.records import delete_records
from chronik.api.shared.context import Context, Services
from chronik.protocol.errors import KafkaError
from chronik.protocol.messages.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)


async def handle(services: Services, request: DeleteRecordsRequest, context: Context) -> DeleteRecordsResponse:
    offsets = {
        NamedPartition(topic.name, partition.partition_index): partition.offset
        for topic in request.topics
        for partition in topic.partitions
    }
    topics: dict[str, DeleteRecordsTopicResult] = {}
    outcomes = await delete_records(services.store, services.replicas, offsets, request.timeout_ms)
    for named, outcome in outcomes.items():
        result = DeleteRecordsPartitionResult(partition_index=named.partition)
        if isinstance(outcome, KafkaError):
            result.error_code = outcome.code
        else:
            result.low_watermark = outcome
        topics.setdefault(named.topic, DeleteRecordsTopicResult(name=named.topic)).partitions.append(result)
    return DeleteRecordsResponse(topics=list(topics.values()))
