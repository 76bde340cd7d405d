"""DescribeTopicPartitions: return topics and their partitions, page by page.

Java's admin client fails on null `eligible_leader_replicas` and `last_known_elr`: send empty arrays.
"""

from __future__ import annotations

from chronik.protocol.schema import (
    Request,
    Response,
    Struct,
    array,
    boolean,
    int16,
    int32,
    mirror_request_field,
    nullable_struct,
    string,
    uuid,
)


class DescribeTopicPartitionsTopic(Struct):
    name: str = string("0+")


class Cursor(Struct):
    topic_name: str = string("0+")
    partition_index: int = int32("0+")


class DescribeTopicPartitionsRequest(Request):
    topics: list[DescribeTopicPartitionsTopic] = array(DescribeTopicPartitionsTopic, "0+")
    response_partition_limit: int = int32("0+", default=2000)
    cursor: Cursor | None = nullable_struct(Cursor, "0+")


class DescribeTopicPartitionsResponsePartition(Struct):
    error_code: int = int16("0+")
    partition_index: int = int32("0+")
    leader_id: int = int32("0+")
    leader_epoch: int = int32("0+", default=-1)
    replica_nodes: list[int] = array(int32, "0+")
    isr_nodes: list[int] = array(int32, "0+")
    eligible_leader_replicas: list[int] | None = array(int32, "0+", nullable="0+", default=None)
    last_known_elr: list[int] | None = array(int32, "0+", nullable="0+", default=None)
    offline_replicas: list[int] = array(int32, "0+")


class DescribeTopicPartitionsResponseTopic(Struct):
    error_code: int = int16("0+")
    name: str | None = mirror_request_field("name", string("0+", nullable="0+"))
    topic_id: bytes = uuid("0+")
    is_internal: bool = boolean("0+")
    partitions: list[DescribeTopicPartitionsResponsePartition] = array(DescribeTopicPartitionsResponsePartition, "0+")
    topic_authorized_operations: int = int32("0+", default=-0x8000_0000)


class DescribeTopicPartitionsResponse(Response):
    throttle_time_ms: int = int32("0+")
    topics: list[DescribeTopicPartitionsResponseTopic] = mirror_request_field(
        "topics", array(DescribeTopicPartitionsResponseTopic, "0+")
    )
    next_cursor: Cursor | None = nullable_struct(Cursor, "0+")
