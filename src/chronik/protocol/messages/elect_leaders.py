"""ElectLeaders: elect the preferred leader of partitions or, with `election_type` 1, run unclean elections.

Null partitions mean all.
"""

from __future__ import annotations

from chronik.protocol.schema import Request, Response, Struct, array, int8, int16, int32, mirror_request_field, string


class TopicPartitions(Struct):
    topic: str = string("0+")
    partitions: list[int] = array(int32, "0+")


class ElectLeadersRequest(Request):
    election_type: int = int8("1+")
    topic_partitions: list[TopicPartitions] | None = array(TopicPartitions, "0+", nullable="0+")
    timeout_ms: int = int32("0+", default=60000)


class PartitionResult(Struct):
    partition_id: int = mirror_request_field("partitions", int32("0+"))
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+", default=None)


class ReplicaElectionResult(Struct):
    topic: str = mirror_request_field("topic", string("0+"))
    partition_result: list[PartitionResult] = mirror_request_field("partitions", array(PartitionResult, "0+"))


class ElectLeadersResponse(Response):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("1+")
    replica_election_results: list[ReplicaElectionResult] = mirror_request_field(
        "topic_partitions", array(ReplicaElectionResult, "0+")
    )
