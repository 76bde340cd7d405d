"""OffsetForLeaderEpoch: return the end offset of a leader epoch, to detect diverging logs.

Version 1 returns the epoch, 2 adds fencing by the current leader epoch, 3 the replica id.
"""

from __future__ import annotations

from chronik.protocol.schema import Request, Response, Struct, array, int16, int32, int64, mirror_request_field, string


class OffsetForLeaderPartition(Struct):
    partition: int = int32("0+")
    current_leader_epoch: int = int32("2+", default=-1, ignorable=True)
    leader_epoch: int = int32("0+")


class OffsetForLeaderTopic(Struct):
    topic: str = string("0+")
    partitions: list[OffsetForLeaderPartition] = array(OffsetForLeaderPartition, "0+")


class OffsetForLeaderEpochRequest(Request):
    replica_id: int = int32("3+", default=-2, ignorable=True)
    topics: list[OffsetForLeaderTopic] = array(OffsetForLeaderTopic, "0+")


class EpochEndOffset(Struct):
    error_code: int = int16("0+")
    partition: int = mirror_request_field("partition", int32("0+"))
    leader_epoch: int = int32("1+", default=-1)
    end_offset: int = int64("0+", default=-1)


class OffsetForLeaderTopicResult(Struct):
    topic: str = mirror_request_field("topic", string("0+"))
    partitions: list[EpochEndOffset] = mirror_request_field("partitions", array(EpochEndOffset, "0+"))


class OffsetForLeaderEpochResponse(Response):
    throttle_time_ms: int = int32("2+")
    topics: list[OffsetForLeaderTopicResult] = mirror_request_field("topics", array(OffsetForLeaderTopicResult, "0+"))
