"""ListTransactions and DescribeTransactions."""

from __future__ import annotations

import pytest

from chronik.metadata.records import Transaction, TransactionState
from chronik.protocol.errors import ErrorCode
from chronik.protocol.messages.describe_transactions import (
    DescribedTransactionTopic,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
)
from chronik.protocol.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from tests.api.transaction_node import TransactionNode

NOW_MS = 1_000_000


def node_with(*states: TransactionState) -> TransactionNode:
    """Return a node with transactional ids `tx-0`, `tx-1`, …, each started a second before the previous one."""
    node = TransactionNode()
    node.clock.advance(NOW_MS / 1000)
    now_ms = node.clock.now_ms()
    node.transactions.known = [
        Transaction(
            f"tx-{number}",
            producer_id=10 + number,
            producer_epoch=number,
            timeout_ms=60_000,
            state=state,
            index=1,
            time_ms=now_ms,
            began_ms=now_ms - 1000 * number,
        )
        for number, state in enumerate(states)
    ]
    return node


def listed(node: TransactionNode, version: int = 2, **filters: object) -> list[tuple[str, int, str]]:
    response = node.send_request(ListTransactionsRequest(**filters), version, ListTransactionsResponse)  # type: ignore[arg-type]
    assert (response.error_code, response.unknown_state_filters) == (ErrorCode.NONE, [])
    return [(each.transactional_id, each.producer_id, each.transaction_state) for each in response.transaction_states]


@pytest.mark.parametrize("version", [0, 1, 2])
def test_list_transactions_returns_kafkas_state_names(version: int) -> None:
    assert listed(node_with(*TransactionState), version) == [
        ("tx-0", 10, "Empty"),
        ("tx-1", 11, "Ongoing"),
        ("tx-2", 12, "PrepareCommit"),
        ("tx-3", 13, "PrepareAbort"),
        ("tx-4", 14, "CompleteCommit"),
        ("tx-5", 15, "CompleteAbort"),
    ]


def test_list_transactions_filters_by_state_and_producer() -> None:
    node = node_with(*TransactionState)
    assert [each[0] for each in listed(node, state_filters=["Ongoing", "CompleteAbort", "Dead"])] == ["tx-1", "tx-5"]
    assert [each[0] for each in listed(node, producer_id_filters=[11, 12, 99])] == ["tx-1", "tx-2"]
    assert listed(node, producer_id_filters=[11], state_filters=["Empty"]) == []


def test_unknown_state_filters_are_returned() -> None:
    request = ListTransactionsRequest(state_filters=["Sleeping", "Sleeping", "Empty"])
    response = node_with(*TransactionState).send_request(request, 2, ListTransactionsResponse)
    assert response.unknown_state_filters == ["Sleeping"]
    assert [each.transactional_id for each in response.transaction_states] == ["tx-0"]


def test_list_transactions_filters_by_duration() -> None:
    node = node_with(*[TransactionState.ONGOING] * 3, TransactionState.COMPLETE_COMMIT)
    assert [each[0] for each in listed(node, duration_filter=1000)] == ["tx-2"]
    assert [each[0] for each in listed(node, duration_filter=999)] == ["tx-1", "tx-2"]
    assert len(listed(node, duration_filter=-1)) == 4


def test_transactional_id_pattern_must_match_completely() -> None:
    node = node_with(*TransactionState)
    assert [each[0] for each in listed(node, transactional_id_pattern="tx-[13]")] == ["tx-1", "tx-3"]
    assert listed(node, transactional_id_pattern="tx") == []
    assert len(listed(node, transactional_id_pattern="")) == 6


def test_invalid_transactional_id_pattern_is_rejected() -> None:
    request = ListTransactionsRequest(transactional_id_pattern="(")
    response = node_with().send_request(request, 2, ListTransactionsResponse)
    assert response.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION


def described(node: TransactionNode, *names: str) -> DescribeTransactionsResponse:
    request = DescribeTransactionsRequest(transactional_ids=list(names))
    return node.send_request(request, 0, DescribeTransactionsResponse)


def test_describe_transactions_returns_partitions_and_groups() -> None:
    node = TransactionNode()
    gone = node.partition(0)
    node.transactions.known = [
        Transaction(
            "t",
            producer_id=7,
            producer_epoch=3,
            timeout_ms=60_000,
            state=TransactionState.ONGOING,
            index=1,
            time_ms=2,
            began_ms=1,
            groups=("g", "h"),
            partitions=(node.partition(2), node.partition(0), type(gone)(b"g" * 16, 0)),
        )
    ]
    (state,) = described(node, "t", "t").transaction_states
    assert (state.error_code, state.transactional_id, state.transaction_state) == (ErrorCode.NONE, "t", "Ongoing")
    assert (state.producer_id, state.producer_epoch) == (7, 3)
    assert (state.transaction_timeout_ms, state.transaction_start_time_ms) == (60_000, 1)
    assert state.topics == [
        DescribedTransactionTopic(topic="orders", partitions=[2, 0]),
        DescribedTransactionTopic(topic="__consumer_offsets", partitions=[0]),
    ]


def test_describe_transactions_returns_error_for_each_id() -> None:
    node = node_with(TransactionState.EMPTY)
    states = described(node, "nobody", "tx-0", "").transaction_states
    assert [(each.transactional_id, each.error_code) for each in states] == [
        ("nobody", ErrorCode.TRANSACTIONAL_ID_NOT_FOUND),
        ("tx-0", ErrorCode.NONE),
        ("", ErrorCode.INVALID_REQUEST),
    ]
