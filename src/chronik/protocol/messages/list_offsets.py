"""ListOffsets: find the offset of a timestamp, or the earliest (-2) or latest (-1) offset of a partition.

Version 0 returns segment offsets; version 1 returns one offset with its timestamp, 2 adds isolation levels, 4 leader
epochs, 10 a timeout. Versions 7 to 11 add further negative timestamps.
"""

from __future__ import annotations

from chronik.protocol.schema import (
    Request,
    Response,
    Struct,
    array,
    int8,
    int16,
    int32,
    int64,
    mirror_request_field,
    string,
)


class ListOffsetsPartition(Struct):
    partition_index: int = int32("0+")
    current_leader_epoch: int = int32("4+", default=-1, ignorable=True)
    timestamp: int = int64("0+")
    max_num_offsets: int = int32("0", default=1)


class ListOffsetsTopic(Struct):
    name: str = string("0+")
    partitions: list[ListOffsetsPartition] = array(ListOffsetsPartition, "0+")


class ListOffsetsRequest(Request):
    replica_id: int = int32("0+")
    isolation_level: int = int8("2+")
    topics: list[ListOffsetsTopic] = array(ListOffsetsTopic, "0+")
    timeout_ms: int = int32("10+", ignorable=True)


class ListOffsetsPartitionResponse(Struct):
    partition_index: int = mirror_request_field("partition_index", int32("0+"))
    error_code: int = int16("0+")
    old_style_offsets: list[int] = array(int64, "0")
    timestamp: int = int64("1+", default=-1)
    offset: int = int64("1+", default=-1)
    leader_epoch: int = int32("4+", default=-1)


class ListOffsetsTopicResponse(Struct):
    name: str = mirror_request_field("name", string("0+"))
    partitions: list[ListOffsetsPartitionResponse] = mirror_request_field(
        "partitions", array(ListOffsetsPartitionResponse, "0+")
    )


class ListOffsetsResponse(Response):
    throttle_time_ms: int = int32("2+")
    topics: list[ListOffsetsTopicResponse] = mirror_request_field("topics", array(ListOffsetsTopicResponse, "0+"))
