"""Produce: append record batches to partitions.

Versions 0-2 have message sets (magic 0 and 1); version 3 adds record batches (magic 2) and transactional ids, 7 zstd, 8
errors of single records, 10 the current leader, 12 implies transactions v2, 13 adds topic ids.
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
    struct,
    uuid,
)


class PartitionProduceData(Struct):
    index: int = int32("0+")
    records: memoryview | bytes | None = records("0+", nullable="0+")


class TopicProduceData(Struct):
    name: str = string("0-12", ignorable=True)
    topic_id: bytes = uuid("13+", ignorable=True)
    partition_data: list[PartitionProduceData] = array(PartitionProduceData, "0+")


class ProduceRequest(Request):
    transactional_id: str | None = string("3+", nullable="3+", default=None)
    acks: int = int16("0+")
    timeout_ms: int = int32("0+")
    topic_data: list[TopicProduceData] = array(TopicProduceData, "0+")


class BatchIndexAndErrorMessage(Struct):
    batch_index: int = int32("8+")
    batch_index_error_message: str | None = string("8+", nullable="8+", default=None)


class ProduceLeaderIdAndEpoch(Struct, frozen=True):
    leader_id: int = int32("10+", default=-1)
    leader_epoch: int = int32("10+", default=-1)


class PartitionProduceResponse(Struct):
    index: int = mirror_request_field("index", int32("0+"))
    error_code: int = int16("0+")
    base_offset: int = int64("0+", default=-1)
    log_append_time_ms: int = int64("2+", default=-1)
    log_start_offset: int = int64("5+", default=-1)
    record_errors: list[BatchIndexAndErrorMessage] = array(BatchIndexAndErrorMessage, "8+")
    error_message: str | None = string("8+", nullable="8+", default=None)
    current_leader: ProduceLeaderIdAndEpoch = struct(ProduceLeaderIdAndEpoch, "10+", tag=0)


class TopicProduceResponse(Struct):
    name: str = mirror_request_field("name", string("0-12"))
    topic_id: bytes = mirror_request_field("topic_id", uuid("13+"))
    partition_responses: list[PartitionProduceResponse] = mirror_request_field(
        "partition_data", array(PartitionProduceResponse, "0+")
    )


class ProduceNodeEndpoint(Struct):
    node_id: int = int32("10+")
    host: str = string("10+")
    port: int = int32("10+")
    rack: str | None = string("10+", nullable="10+", default=None)


class ProduceResponse(Response):
    responses: list[TopicProduceResponse] = mirror_request_field("topic_data", array(TopicProduceResponse, "0+"))
    throttle_time_ms: int = int32("1+")
    node_endpoints: list[ProduceNodeEndpoint] = array(ProduceNodeEndpoint, "10+", tag=0)
