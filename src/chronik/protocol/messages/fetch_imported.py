"""FetchImported: read records of topics that are being imported, to compare them with their source.

An API of Chronik, which ApiVersions does not list.
"""

from __future__ import annotations

from chronik.protocol.schema import (
    Request,
    Response,
    Struct,
    array,
    int16,
    int32,
    int64,
    mirror_request_field,
    records,
    string,
    uuid,
)


class FetchImportedPartition(Struct):
    topic_id: bytes = uuid("0+")
    partition: int = int32("0+")
    fetch_offset: int = int64("0+")
    max_bytes: int = int32("0+")


class FetchImportedRequest(Request):
    import_id: bytes = uuid("0+")
    partitions: list[FetchImportedPartition] = array(FetchImportedPartition, "0+")


class FetchImportedResult(Struct):
    topic_id: bytes = mirror_request_field("topic_id", uuid("0+"))
    partition: int = mirror_request_field("partition", int32("0+"))
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+", default=None)
    log_start_offset: int = int64("0+", default=-1)
    high_watermark: int = int64("0+", default=-1)
    last_stable_offset: int = int64("0+", default=-1)
    records: memoryview | bytes | None = records("0+", nullable="0+")


class FetchImportedResponse(Response):
    throttle_time_ms: int = int32("0+")
    partitions: list[FetchImportedResult] = mirror_request_field("partitions", array(FetchImportedResult, "0+"))
