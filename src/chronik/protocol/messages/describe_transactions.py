"""DescribeTransactions: return the state of transactional ids and the partitions of their open transactions."""

from __future__ import annotations

from chronik.protocol.schema import Request, Response, Struct, array, int16, int32, int64, mirror_request_field, string


class DescribeTransactionsRequest(Request):
    transactional_ids: list[str] = array(string, "0+")


class DescribedTransactionTopic(Struct):
    topic: str = string("0+")
    partitions: list[int] = array(int32, "0+")


class DescribedTransaction(Struct):
    error_code: int = int16("0+")
    transactional_id: str = mirror_request_field("transactional_ids", string("0+"))
    transaction_state: str = string("0+")
    transaction_timeout_ms: int = int32("0+")
    transaction_start_time_ms: int = int64("0+")
    producer_id: int = int64("0+")
    producer_epoch: int = int16("0+")
    topics: list[DescribedTransactionTopic] = array(DescribedTransactionTopic, "0+")


class DescribeTransactionsResponse(Response):
    throttle_time_ms: int = int32("0+")
    transaction_states: list[DescribedTransaction] = mirror_request_field(
        "transactional_ids", array(DescribedTransaction, "0+")
    )
