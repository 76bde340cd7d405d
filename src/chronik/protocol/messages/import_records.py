"""ImportRecords: batches of another store's log, as they stand there, for partitions of topics that are being imported.

Chronik's own, and not told by ApiVersions. `expected_end` is where the partition's log must end, so that a request that
comes twice, or late, changes nothing; the answer says where it ends. Without records it asks for that, and waits until
all replicas begin at `log_start_offset`.
"""

from __future__ import annotations

from chronik.protocol.schema import Request, Response, Struct, array, int16, int32, int64, mirror, records, string, uuid


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
    topic_id: bytes = mirror("topic_id", uuid("0+"))
    partition: int = mirror("partition", int32("0+"))
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+", default=None)
    log_start_offset: int = int64("0+", default=-1)
    log_end_offset: int = int64("0+", default=-1)
    last_stable_offset: int = int64("0+", default=-1)


class ImportRecordsResponse(Response):
    throttle_time_ms: int = int32("0+")
    partitions: list[ImportedPartitionResult] = mirror("partitions", array(ImportedPartitionResult, "0+"))
