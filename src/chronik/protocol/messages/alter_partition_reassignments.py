"""AlterPartitionReassignments: reassign partitions to other replicas; null replicas cancel a reassignment."""

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
    string,
)


class ReassignablePartition(Struct):
    partition_index: int = int32("0+")
    replicas: list[int] | None = array(int32, "0+", nullable="0+", default=None)


class ReassignableTopic(Struct):
    name: str = string("0+")
    partitions: list[ReassignablePartition] = array(ReassignablePartition, "0+")


class AlterPartitionReassignmentsRequest(Request):
    timeout_ms: int = int32("0+", default=60000)
    allow_replication_factor_change: bool = boolean("1+", default=True)
    topics: list[ReassignableTopic] = array(ReassignableTopic, "0+")


class ReassignablePartitionResponse(Struct):
    partition_index: int = mirror_request_field("partition_index", int32("0+"))
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+", default=None)


class ReassignableTopicResponse(Struct):
    name: str = mirror_request_field("name", string("0+"))
    partitions: list[ReassignablePartitionResponse] = mirror_request_field(
        "partitions", array(ReassignablePartitionResponse, "0+")
    )


class AlterPartitionReassignmentsResponse(Response):
    throttle_time_ms: int = int32("0+")
    allow_replication_factor_change: bool = boolean("1+", default=True, ignorable=True)
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+", default=None)
    responses: list[ReassignableTopicResponse] = mirror_request_field("topics", array(ReassignableTopicResponse, "0+"))
