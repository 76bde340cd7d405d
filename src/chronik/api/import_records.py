"""ImportRecords (Chronik API key 20002): appends imported batches to a log, and waits for all in-sync replicas."""

from __future__ import annotations

import asyncio

from chronik.admin.topic_import import ImportLogWriter
from chronik.api.shared.context import RequestContext, Services
from chronik.metadata.chunking import iter_chunks
from chronik.protocol.error_responses import build_error_fields
from chronik.protocol.errors import ErrorCode, KafkaError
from chronik.protocol.messages.import_records import (
    ImportedPartition,
    ImportedPartitionResult,
    ImportRecordsRequest,
    ImportRecordsResponse,
)


async def handle(services: Services, request: ImportRecordsRequest, context: RequestContext) -> ImportRecordsResponse:
    logs = ImportLogWriter(services.store, services.replicas, request.import_id)
    response = ImportRecordsResponse()
    for chunk in iter_chunks(request.partitions):
        response.partitions += await asyncio.gather(
            *(_append_records(logs, each, request.timeout_ms) for each in chunk)
        )
    return response


async def _append_records(logs: ImportLogWriter, wanted: ImportedPartition, timeout_ms: int) -> ImportedPartitionResult:
    result = ImportedPartitionResult(topic_id=wanted.topic_id, partition=wanted.partition)
    try:
        async with asyncio.timeout(timeout_ms / 1000):
            ends = await logs.append(
                wanted.topic_id, wanted.partition, wanted.expected_end, wanted.log_start_offset, wanted.records
            )
    except TimeoutError:
        result.error_code = ErrorCode.REQUEST_TIMED_OUT
    except KafkaError as error:
        result.error_code, result.error_message = build_error_fields(error).values()
    else:
        result.log_start_offset, result.log_end_offset, result.last_stable_offset = ends
    return result
