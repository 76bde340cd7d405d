"""FetchImported (Chronik API key 20005): reads records of topics that are being imported and are not visible yet."""

from __future__ import annotations

from typing import Final

from chronik.admin.topic_import import ImportLogWriter, read_log_offsets
from chronik.api.shared.context import RequestContext, Services
from chronik.limits import MIB
from chronik.metadata.chunking import YieldTimer
from chronik.protocol.error_responses import build_error_fields
from chronik.protocol.errors import KafkaError
from chronik.protocol.messages.fetch_imported import (
    FetchImportedPartition,
    FetchImportedRequest,
    FetchImportedResponse,
    FetchImportedResult,
)

ANSWER_BYTES_MAX: Final = 8 * MIB
"""Maximum size in bytes of the records in a FetchImported response; the last batch may exceed it.

Reading them blocks the event loop for a few milliseconds.
"""


async def handle(services: Services, request: FetchImportedRequest, context: RequestContext) -> FetchImportedResponse:
    logs = ImportLogWriter(services.store, services.replicas, request.import_id)
    response, pace, left = FetchImportedResponse(), YieldTimer(), ANSWER_BYTES_MAX
    for wanted in request.partitions:
        result = _read(logs, wanted, left)
        left -= len(result.records or b"")
        response.partitions.append(result)
        await pace.yield_if_due()
    return response


def _read(logs: ImportLogWriter, wanted: FetchImportedPartition, left: int) -> FetchImportedResult:
    result = FetchImportedResult(topic_id=wanted.topic_id, partition=wanted.partition, records=b"")
    try:
        replica = logs.find_imported_replica(wanted.topic_id, wanted.partition)
        result.log_start_offset, result.high_watermark, result.last_stable_offset = read_log_offsets(replica)
        if left > 0:
            result.records = replica.read(wanted.fetch_offset, min(wanted.max_bytes, left), min_one_batch=True)
    except KafkaError as error:
        result.error_code, result.error_message = build_error_fields(error).values()
    return result
