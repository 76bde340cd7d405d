"""WriteTxnMarkers: append control records that end transactions in partitions; a result of true is a commit.

In Kafka, coordinators and the tool that aborts hanging transactions send it. Version 2 adds the transaction version.
"""

from __future__ import annotations

from chronik.protocol.schema import (
    Request,
    Response,
    Struct,
    array,
    boolean,
    int8,
    int16,
    int32,
    int64,
    mirror_request_field,
    string,
)


class WritableTxnMarkerTopic(Struct):
    name: str = string("0+")
    partition_indexes: list[int] = array(int32, "0+")


class WritableTxnMarker(Struct):
    producer_id: int = int64("0+", default=-1)
    producer_epoch: int = int16("0+", default=-1)
    transaction_result: bool = boolean("0+")
    topics: list[WritableTxnMarkerTopic] = array(WritableTxnMarkerTopic, "0+")
    coordinator_epoch: int = int32("0+", default=-1)
    transaction_version: int = int8("2+", ignorable=True)


class WriteTxnMarkersRequest(Request):
    markers: list[WritableTxnMarker] = array(WritableTxnMarker, "0+")


class WritableTxnMarkerPartitionResult(Struct):
    partition_index: int = mirror_request_field("partition_indexes", int32("0+"))
    error_code: int = int16("0+")


class WritableTxnMarkerTopicResult(Struct):
    name: str = mirror_request_field("name", string("0+"))
    partitions: list[WritableTxnMarkerPartitionResult] = mirror_request_field(
        "partition_indexes", array(WritableTxnMarkerPartitionResult, "0+")
    )


class WritableTxnMarkerResult(Struct):
    producer_id: int = mirror_request_field("producer_id", int64("0+", default=-1))
    topics: list[WritableTxnMarkerTopicResult] = mirror_request_field(
        "topics", array(WritableTxnMarkerTopicResult, "0+")
    )


class WriteTxnMarkersResponse(Response):
    markers: list[WritableTxnMarkerResult] = mirror_request_field("markers", array(WritableTxnMarkerResult, "0+"))
