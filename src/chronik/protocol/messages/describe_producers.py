"""DescribeProducers: return the active producers and open transactions of partitions."""

from __future__ import annotations

from chronik.protocol.schema import Request, Response, Struct, array, int16, int32, int64, mirror_request_field, string


class DescribeProducersTopic(Struct):
    name: str = string("0+")
    partition_indexes: list[int] = array(int32, "0+")


class DescribeProducersRequest(Request):
    topics: list[DescribeProducersTopic] = array(DescribeProducersTopic, "0+")


class ProducerState(Struct):
    producer_id: int = int64("0+")
    producer_epoch: int = int32("0+")
    last_sequence: int = int32("0+", default=-1)
    last_timestamp: int = int64("0+", default=-1)
    coordinator_epoch: int = int32("0+")
    current_txn_start_offset: int = int64("0+", default=-1)


class PartitionResponse(Struct):
    partition_index: int = mirror_request_field("partition_indexes", int32("0+"))
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+", default=None)
    active_producers: list[ProducerState] = array(ProducerState, "0+")


class TopicResponse(Struct):
    name: str = mirror_request_field("name", string("0+"))
    partitions: list[PartitionResponse] = mirror_request_field("partition_indexes", array(PartitionResponse, "0+"))


class DescribeProducersResponse(Response):
    throttle_time_ms: int = int32("0+")
    topics: list[TopicResponse] = mirror_request_field("topics", array(TopicResponse, "0+"))
