"""AddPartitionsToTxn: add partitions to a transaction.

Versions 0-3 are for producers: version 2 adds PRODUCER_FENCED. Version 4 is for brokers: it has several transactions
and can verify only that they contain the partitions. Version 5 adds TRANSACTION_ABORTABLE.
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
)


class AddPartitionsToTxnTopic(Struct):
    name: str = string("0+")
    partitions: list[int] = array(int32, "0+")


class AddPartitionsToTxnTransaction(Struct):
    transactional_id: str = string("4+")
    producer_id: int = int64("4+", default=-1)
    producer_epoch: int = int16("4+", default=-1)
    verify_only: bool = boolean("4+")
    topics: list[AddPartitionsToTxnTopic] = array(AddPartitionsToTxnTopic, "4+")


class AddPartitionsToTxnRequest(Request):
    transactions: list[AddPartitionsToTxnTransaction] = array(AddPartitionsToTxnTransaction, "4+")
    transactional_id: str = string("0-3")
    producer_id: int = int64("0-3", default=-1)
    producer_epoch: int = int16("0-3", default=-1)
    topics: list[AddPartitionsToTxnTopic] = array(AddPartitionsToTxnTopic, "0-3")


class AddPartitionsToTxnPartitionResult(Struct):
    partition_index: int = mirror_request_field("partitions", int32("0+"))
    error_code: int = int16("0+")


class AddPartitionsToTxnTopicResult(Struct):
    name: str = mirror_request_field("name", string("0+"))
    results_by_partition: list[AddPartitionsToTxnPartitionResult] = mirror_request_field(
        "partitions", array(AddPartitionsToTxnPartitionResult, "0+")
    )


class AddPartitionsToTxnResult(Struct):
    transactional_id: str = mirror_request_field("transactional_id", string("4+"))
    topic_results: list[AddPartitionsToTxnTopicResult] = mirror_request_field(
        "topics", array(AddPartitionsToTxnTopicResult, "4+")
    )


class AddPartitionsToTxnResponse(Response):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("4+")
    results_by_transaction: list[AddPartitionsToTxnResult] = mirror_request_field(
        "transactions", array(AddPartitionsToTxnResult, "4+")
    )
    results_by_topic: list[AddPartitionsToTxnTopicResult] = mirror_request_field(
        "topics", array(AddPartitionsToTxnTopicResult, "0-3")
    )
