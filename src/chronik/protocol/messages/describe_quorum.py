"""DescribeQuorum: return the Raft quorum of the metadata log and the log end offset of each replica.

Version 1 adds fetch times, version 2 directory ids, node listeners and error messages.
"""

from __future__ import annotations

from chronik.protocol.schema import Request, Response, Struct, array, int16, int32, int64, string, uint16, uuid


class DescribeQuorumPartition(Struct):
    partition_index: int = int32("0+")


class DescribeQuorumTopic(Struct):
    topic_name: str = string("0+")
    partitions: list[DescribeQuorumPartition] = array(DescribeQuorumPartition, "0+")


class DescribeQuorumRequest(Request):
    topics: list[DescribeQuorumTopic] = array(DescribeQuorumTopic, "0+")


class QuorumReplicaState(Struct):
    replica_id: int = int32("0+")
    replica_directory_id: bytes = uuid("2+")
    log_end_offset: int = int64("0+")
    last_fetch_timestamp: int = int64("1+", default=-1, ignorable=True)
    last_caught_up_timestamp: int = int64("1+", default=-1, ignorable=True)


class QuorumPartitionData(Struct):
    partition_index: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("2+", nullable="2+", ignorable=True)
    leader_id: int = int32("0+")
    leader_epoch: int = int32("0+")
    high_watermark: int = int64("0+")
    current_voters: list[QuorumReplicaState] = array(QuorumReplicaState, "0+")
    observers: list[QuorumReplicaState] = array(QuorumReplicaState, "0+")


class QuorumTopicData(Struct):
    topic_name: str = string("0+")
    partitions: list[QuorumPartitionData] = array(QuorumPartitionData, "0+")


class QuorumListener(Struct):
    name: str = string("2+")
    host: str = string("2+")
    port: int = uint16("2+")


class QuorumNode(Struct):
    node_id: int = int32("2+")
    listeners: list[QuorumListener] = array(QuorumListener, "2+")


class DescribeQuorumResponse(Response):
    error_code: int = int16("0+")
    error_message: str | None = string("2+", nullable="2+", ignorable=True)
    topics: list[QuorumTopicData] = array(QuorumTopicData, "0+")
    nodes: list[QuorumNode] = array(QuorumNode, "2+")
