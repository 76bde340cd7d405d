"""DeleteRecords: advance the log start offset of partitions; -1 means the high watermark."""

from __future__ import annotations

from chronik.protocol.schema import Request, Response, Struct, array, int16, int32, int64, mirror_request_field, string


class DeleteRecordsPartition(Struct):
    partition_index: int = int32("0+")
    offset: int = int64("0+")


class DeleteRecordsTopic(Struct):
    name: str = string("0+")
    partitions: list[DeleteRecordsPartition] = array(DeleteRecordsPartition, "0+")


class DeleteRecordsRequest(Request):
    topics: list[DeleteRecordsTopic] = array(DeleteRecordsTopic, "0+")
    timeout_ms: int = int32("0+")


class DeleteRecordsPartitionResult(Struct):
    partition_index: int = mirror_request_field("partition_index", int32("0+"))
    low_watermark: int = int64("0+", default=-1)
    error_code: int = int16("0+")


class DeleteRecordsTopicResult(Struct):
    name: str = mirror_request_field("name", string("0+"))
    partitions: list[DeleteRecordsPartitionResult] = mirror_request_field(
        "partitions", array(DeleteRecordsPartitionResult, "0+")
    )


class DeleteRecordsResponse(Response):
    throttle_time_ms: int = int32("0+")
    topics: list[DeleteRecordsTopicResult] = mirror_request_field("topics", array(DeleteRecordsTopicResult, "0+"))
