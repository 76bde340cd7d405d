"""Fetch: read records of partitions, for consumers and followers.

Versions 0-3 return message sets; version 4 adds record batches and isolation levels, 7 fetch sessions, 9 leader epochs,
11 racks, 12 diverging epochs, 13 topic ids, 15 the replica state that fences old followers, 16 node endpoints, 17
directory ids, 18 the follower's high watermark.
"""

from __future__ import annotations

from chronik.protocol.schema import (
    Records,
    Request,
    Response,
    Struct,
    array,
    int8,
    int16,
    int32,
    int64,
    mirror_request_field,
    records,
    string,
    struct,
    uuid,
)


class FetchReplicaState(Struct, frozen=True):
    replica_id: int = int32("15+", default=-1)
    replica_epoch: int = int64("15+", default=-1)


class FetchPartition(Struct):
    partition: int = int32("0+")
    current_leader_epoch: int = int32("9+", default=-1, ignorable=True)
    fetch_offset: int = int64("0+")
    last_fetched_epoch: int = int32("12+", default=-1)
    log_start_offset: int = int64("5+", default=-1, ignorable=True)
    partition_max_bytes: int = int32("0+")
    replica_directory_id: bytes = uuid("17+", tag=0, ignorable=True)
    high_watermark: int = int64("18+", default=0x7FFF_FFFF_FFFF_FFFF, tag=1, ignorable=True)


class FetchTopic(Struct):
    topic: str = string("0-12", ignorable=True)
    topic_id: bytes = uuid("13+", ignorable=True)
    partitions: list[FetchPartition] = array(FetchPartition, "0+")


class ForgottenTopic(Struct):
    topic: str = string("7-12", ignorable=True)
    topic_id: bytes = uuid("13+", ignorable=True)
    partitions: list[int] = array(int32, "7+")


class FetchRequest(Request):
    cluster_id: str | None = string("12+", nullable="12+", default=None, tag=0, ignorable=True)
    replica_id: int = int32("0-14", default=-1)
    replica_state: FetchReplicaState = struct(FetchReplicaState, "15+", tag=1)
    max_wait_ms: int = int32("0+")
    min_bytes: int = int32("0+")
    max_bytes: int = int32("3+", default=0x7FFF_FFFF, ignorable=True)
    isolation_level: int = int8("4+", ignorable=True)
    session_id: int = int32("7+", ignorable=True)
    session_epoch: int = int32("7+", default=-1, ignorable=True)
    topics: list[FetchTopic] = array(FetchTopic, "0+")
    forgotten_topics_data: list[ForgottenTopic] = array(ForgottenTopic, "7+")
    rack_id: str = string("11+", ignorable=True)


class FetchEpochEndOffset(Struct, frozen=True):
    epoch: int = int32("12+", default=-1)
    end_offset: int = int64("12+", default=-1)


class FetchLeaderIdAndEpoch(Struct, frozen=True):
    leader_id: int = int32("12+", default=-1)
    leader_epoch: int = int32("12+", default=-1)


class SnapshotId(Struct, frozen=True):
    end_offset: int = int64("0+", default=-1)
    epoch: int = int32("0+", default=-1)


class FetchAbortedTransaction(Struct):
    producer_id: int = int64("4+")
    first_offset: int = int64("4+")


class PartitionData(Struct):
    partition_index: int = mirror_request_field("partition", int32("0+"))
    error_code: int = int16("0+")
    high_watermark: int = int64("0+", default=-1)
    last_stable_offset: int = int64("4+", default=-1)
    log_start_offset: int = int64("5+", default=-1)
    diverging_epoch: FetchEpochEndOffset = struct(FetchEpochEndOffset, "12+", tag=0)
    current_leader: FetchLeaderIdAndEpoch = struct(FetchLeaderIdAndEpoch, "12+", tag=1)
    snapshot_id: SnapshotId = struct(SnapshotId, "12+", tag=2)
    aborted_transactions: list[FetchAbortedTransaction] | None = array(FetchAbortedTransaction, "4+", nullable="4+")
    preferred_read_replica: int = int32("11+", default=-1)
    records: Records | None = records("0+", nullable="0+")


class FetchableTopicResponse(Struct):
    topic: str = mirror_request_field("topic", string("0-12"))
    topic_id: bytes = mirror_request_field("topic_id", uuid("13+"))
    partitions: list[PartitionData] = mirror_request_field("partitions", array(PartitionData, "0+"))


class FetchNodeEndpoint(Struct):
    node_id: int = int32("16+")
    host: str = string("16+")
    port: int = int32("16+")
    rack: str | None = string("16+", nullable="16+", default=None)


class FetchResponse(Response):
    throttle_time_ms: int = int32("1+")
    error_code: int = int16("7+")
    session_id: int = int32("7+")
    responses: list[FetchableTopicResponse] = mirror_request_field("topics", array(FetchableTopicResponse, "0+"))
    node_endpoints: list[FetchNodeEndpoint] = array(FetchNodeEndpoint, "16+", tag=0)
