"""OffsetFetch: return a group's committed offsets.

From version 2 on null means all topics. Version 5 adds leader epochs, 7 can require stable offsets, 8 adds several
groups per request, 9 member epochs of the new group protocol, 10 topic ids.
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
    int64,
    mirror_request_field,
    string,
    uuid,
)


class OffsetFetchRequestTopic(Struct):
    name: str = string("0-9", ignorable=True)
    topic_id: bytes = uuid("10+", ignorable=True)
    partition_indexes: list[int] = array(int32, "0+")


class OffsetFetchRequestGroup(Struct):
    group_id: str = string("8+")
    member_id: str | None = string("9+", nullable="9+", default=None, ignorable=True)
    member_epoch: int = int32("9+", default=-1, ignorable=True)
    topics: list[OffsetFetchRequestTopic] | None = array(OffsetFetchRequestTopic, "8+", nullable="8+")


class OffsetFetchRequest(Request):
    group_id: str = string("0-7")
    topics: list[OffsetFetchRequestTopic] | None = array(OffsetFetchRequestTopic, "0-7", nullable="2-7")
    groups: list[OffsetFetchRequestGroup] = array(OffsetFetchRequestGroup, "8+")
    require_stable: bool = boolean("7+")


class OffsetFetchResponsePartition(Struct):
    partition_index: int = mirror_request_field("partition_indexes", int32("0+"))
    committed_offset: int = int64("0+", default=-1)
    committed_leader_epoch: int = int32("5+", default=-1)
    metadata: str | None = string("0+", nullable="0+")
    error_code: int = int16("0+")


class OffsetFetchResponseTopic(Struct):
    name: str = mirror_request_field("name", string("0-9"))
    topic_id: bytes = uuid("10+")
    partitions: list[OffsetFetchResponsePartition] = mirror_request_field(
        "partition_indexes", array(OffsetFetchResponsePartition, "0+")
    )


class OffsetFetchResponseGroup(Struct):
    group_id: str = mirror_request_field("group_id", string("8+"))
    topics: list[OffsetFetchResponseTopic] = array(OffsetFetchResponseTopic, "8+")
    error_code: int = int16("8+")


class OffsetFetchResponse(Response):
    throttle_time_ms: int = int32("3+")
    topics: list[OffsetFetchResponseTopic] = mirror_request_field("topics", array(OffsetFetchResponseTopic, "0-7"))
    error_code: int = int16("2-7")
    groups: list[OffsetFetchResponseGroup] = mirror_request_field("groups", array(OffsetFetchResponseGroup, "8+"))
