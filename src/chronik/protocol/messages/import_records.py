"""ImportRecords: append batches of another cluster's log to topics that are being imported.

An API of Chronik, which ApiVersions does not list. `expected_end` is the expected log end offset, so that a repeated or
late request changes nothing; the response has the actual one. A request without records returns it too, and waits until
all replicas start at `log_start_offset`.
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


class ImportedPartition(Struct):
    topic_id: bytes = uuid("0+")
    partition: int = int32("0+")
    expected_end: int = int64("0+")
    log_start_offset: int = int64("0+")
    records: memoryview | bytes | None = records("0+", nullable="0+")


class ImportRecordsRequest(Request):
    import_id: bytes = uuid("0+")
    timeout_ms: int = int32("0+", default=30000)
    partitions: list[ImportedPartition] = array(ImportedPartition, "0+")


class ImportedPartitionResult(Struct):
    topic_id: bytes = mirror_request_field("topic_id", uuid("0+"))
    partition: int = mirror_request_field("partition", int32("0+"))
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+", default=None)
    log_start_offset: int = int64("0+", default=-1)
    log_end_offset: int = int64("0+", default=-1)
    last_stable_offset: int = int64("0+", default=-1)


class ImportRecordsResponse(Response):
    throttle_time_ms: int = int32("0+")
    partitions: list[ImportedPartitionResult] = mirror_request_field("partitions", array(ImportedPartitionResult, "0+"))
