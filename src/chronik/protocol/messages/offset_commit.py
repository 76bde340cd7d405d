"""OffsetCommit: commit a group's offsets.

Version 1 adds commit timestamps, 2-4 have a retention time, 6 adds leader epochs, 7 static members, 9 member epochs of
the new group protocol, 10 topic ids.
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
    string,
    uuid,
)


class OffsetCommitRequestPartition(Struct):
    partition_index: int = int32("0+")
    committed_offset: int = int64("0+")
    committed_leader_epoch: int = int32("6+", default=-1, ignorable=True)
    commit_timestamp: int = int64("1", default=-1)
    committed_metadata: str | None = string("0+", nullable="0+")


class OffsetCommitRequestTopic(Struct):
    name: str = string("0-9", ignorable=True)
    topic_id: bytes = uuid("10+", ignorable=True)
    partitions: list[OffsetCommitRequestPartition] = array(OffsetCommitRequestPartition, "0+")


class OffsetCommitRequest(Request):
    group_id: str = string("0+")
    generation_id_or_member_epoch: int = int32("1+", default=-1, ignorable=True)
    member_id: str = string("1+", ignorable=True)
    group_instance_id: str | None = string("7+", nullable="7+", default=None)
    retention_time_ms: int = int64("2-4", default=-1, ignorable=True)
    topics: list[OffsetCommitRequestTopic] = array(OffsetCommitRequestTopic, "0+")


class OffsetCommitResponsePartition(Struct):
    partition_index: int = mirror_request_field("partition_index", int32("0+"))
    error_code: int = int16("0+")


class OffsetCommitResponseTopic(Struct):
    name: str = mirror_request_field("name", string("0-9"))
    topic_id: bytes = mirror_request_field("topic_id", uuid("10+"))
    partitions: list[OffsetCommitResponsePartition] = mirror_request_field(
        "partitions", array(OffsetCommitResponsePartition, "0+")
    )


class OffsetCommitResponse(Response):
    throttle_time_ms: int = int32("3+")
    topics: list[OffsetCommitResponseTopic] = mirror_request_field("topics", array(OffsetCommitResponseTopic, "0+"))
