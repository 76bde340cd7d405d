"""TxnOffsetCommit: commit a group's offsets as part of a transaction.

Version 2 adds leader epochs, 3 the committing member, 4 TRANSACTION_ABORTABLE. Version 5 (transactions v2) also adds
the group to the transaction.
"""

from __future__ import annotations

from chronik.protocol.schema import Request, Response, Struct, array, int16, int32, int64, mirror_request_field, string


class TxnOffsetCommitRequestPartition(Struct):
    partition_index: int = int32("0+")
    committed_offset: int = int64("0+")
    committed_leader_epoch: int = int32("2+", default=-1, ignorable=True)
    committed_metadata: str | None = string("0+", nullable="0+")


class TxnOffsetCommitRequestTopic(Struct):
    name: str = string("0+")
    partitions: list[TxnOffsetCommitRequestPartition] = array(TxnOffsetCommitRequestPartition, "0+")


class TxnOffsetCommitRequest(Request):
    transactional_id: str = string("0+")
    group_id: str = string("0+")
    producer_id: int = int64("0+", default=-1)
    producer_epoch: int = int16("0+", default=-1)
    generation_id: int = int32("3+", default=-1)
    member_id: str = string("3+")
    group_instance_id: str | None = string("3+", nullable="3+", default=None)
    topics: list[TxnOffsetCommitRequestTopic] = array(TxnOffsetCommitRequestTopic, "0+")


class TxnOffsetCommitResponsePartition(Struct):
    partition_index: int = mirror_request_field("partition_index", int32("0+"))
    error_code: int = int16("0+")


class TxnOffsetCommitResponseTopic(Struct):
    name: str = mirror_request_field("name", string("0+"))
    partitions: list[TxnOffsetCommitResponsePartition] = mirror_request_field(
        "partitions", array(TxnOffsetCommitResponsePartition, "0+")
    )


class TxnOffsetCommitResponse(Response):
    throttle_time_ms: int = int32("0+")
    topics: list[TxnOffsetCommitResponseTopic] = mirror_request_field(
        "topics", array(TxnOffsetCommitResponseTopic, "0+")
    )
