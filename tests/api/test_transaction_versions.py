"""Transaction APIs: the coordinator's errors are translated for each version, and its arguments are complete."""

from __future__ import annotations

import pytest

from chronik.metadata.commands.groups import OffsetToCommit
from chronik.protocol.errors import ErrorCode
from chronik.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from chronik.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)
from chronik.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from chronik.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from chronik.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from chronik.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from chronik.transactions.decisions import TransactionResult
from tests.api.transaction_node import TransactionNode

FENCED, OLD_EPOCH = ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH
ABORTABLE, WRONG_STATE = ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.INVALID_TXN_STATE
UNKNOWN, NOT_ATTEMPTED = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.OPERATION_NOT_ATTEMPTED
UNSUPPORTED = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


def end(node: TransactionNode, version: int, transactional_id: str = "t") -> EndTxnResponse:
    request = EndTxnRequest(transactional_id=transactional_id, producer_id=7, producer_epoch=2, committed=True)
    return node.send_request(request, version, EndTxnResponse)


CLIENT = ("User:ANONYMOUS", "127.0.0.1")


def init(
    node: TransactionNode, version: int, transactional_id: str | None = "t", **expected: int
) -> InitProducerIdResponse:
    request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=1000, **expected)
    return node.send_request(request, version, InitProducerIdResponse)


def add_group(node: TransactionNode, version: int, transactional_id: str = "t") -> ErrorCode:
    request = AddOffsetsToTxnRequest(transactional_id=transactional_id, producer_id=7, producer_epoch=2, group_id="g")
    return ErrorCode(node.send_request(request, version, AddOffsetsToTxnResponse).error_code)


def add(
    node: TransactionNode,
    version: int,
    *topics: tuple[str, list[int]],
    transactional_id: str = "t",
    verify_only: bool = False,
) -> list[tuple[str, int, ErrorCode]]:
    wanted = [AddPartitionsToTxnTopic(name=name, partitions=indexes) for name, indexes in topics]
    producer = {"transactional_id": transactional_id, "producer_id": 7, "producer_epoch": 2, "topics": wanted}
    if version < 4:
        response = node.send_request(AddPartitionsToTxnRequest(**producer), version, AddPartitionsToTxnResponse)  # type: ignore[arg-type]
        return codes(response.results_by_topic)
    transaction = AddPartitionsToTxnTransaction(verify_only=verify_only, **producer)  # type: ignore[arg-type]
    request = AddPartitionsToTxnRequest(transactions=[transaction])
    response = node.send_request(request, version, AddPartitionsToTxnResponse)
    assert response.error_code == ErrorCode.NONE
    (result,) = response.results_by_transaction
    assert result.transactional_id == transactional_id
    return codes(result.topic_results)


def codes(results: list[AddPartitionsToTxnTopicResult]) -> list[tuple[str, int, ErrorCode]]:
    return [
        (topic.name, each.partition_index, ErrorCode(each.error_code))
        for topic in results
        for each in topic.results_by_partition
    ]


def commit_offsets(
    node: TransactionNode, version: int, *partitions: int, **member: object
) -> list[tuple[str, int, ErrorCode]]:
    wanted = [TxnOffsetCommitRequestPartition(partition_index=each, committed_offset=5) for each in partitions or (0,)]
    request = TxnOffsetCommitRequest(
        **{"transactional_id": "t", "group_id": "g", **member},  # type: ignore[arg-type]
        producer_id=7,
        producer_epoch=2,
        topics=[TxnOffsetCommitRequestTopic(name=name, partitions=wanted) for name in ("orders", "gone")],
    )
    response = node.send_request(request, version, TxnOffsetCommitResponse)
    return [
        (topic.name, each.partition_index, ErrorCode(each.error_code))
        for topic in response.topics
        for each in topic.partitions
    ]


# Error codes of old versions


@pytest.mark.parametrize(("version", "translated"), [(0, OLD_EPOCH), (1, OLD_EPOCH), (2, FENCED), (5, FENCED)])
def test_end_txn_of_fenced_producer_returns_error_of_the_version(version: int, translated: ErrorCode) -> None:
    assert end(TransactionNode(FENCED), version).error_code == translated


@pytest.mark.parametrize(("version", "translated"), [(0, OLD_EPOCH), (3, OLD_EPOCH), (4, FENCED), (5, FENCED)])
def test_init_producer_id_of_fenced_producer_returns_error_of_the_version(version: int, translated: ErrorCode) -> None:
    response = init(TransactionNode(FENCED), version)
    assert (response.error_code, response.producer_id, response.producer_epoch) == (translated, -1, -1)


@pytest.mark.parametrize(("version", "translated"), [(0, OLD_EPOCH), (1, OLD_EPOCH), (2, FENCED), (5, FENCED)])
def test_add_partitions_of_fenced_producer_returns_error_of_the_version(version: int, translated: ErrorCode) -> None:
    assert add(TransactionNode(FENCED), version, ("orders", [0])) == [("orders", 0, translated)]


@pytest.mark.parametrize(("version", "translated"), [(0, OLD_EPOCH), (1, OLD_EPOCH), (2, FENCED), (4, FENCED)])
def test_add_offsets_of_fenced_producer_returns_error_of_the_version(version: int, translated: ErrorCode) -> None:
    assert add_group(TransactionNode(FENCED), version) == translated


@pytest.mark.parametrize("version", range(6))
def test_txn_offset_commit_of_fenced_producer_returns_invalid_epoch(version: int) -> None:
    assert commit_offsets(with_group(FENCED), version)[0] == ("orders", 0, OLD_EPOCH)


@pytest.mark.parametrize(
    ("version", "translated"), [(0, WRONG_STATE), (3, WRONG_STATE), (4, ABORTABLE), (5, ABORTABLE)]
)
def test_transaction_abortable_becomes_invalid_txn_state_for_old_clients(version: int, translated: ErrorCode) -> None:
    assert end(TransactionNode(ABORTABLE), version).error_code == translated
    assert commit_offsets(with_group(ABORTABLE), version)[0][2] == translated
    assert commit_offsets(TransactionNode(), version)[0][2] == (ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    assert commit_offsets(with_group(WRONG_STATE), version)[0][2] == translated
    assert add_group(TransactionNode(ABORTABLE), min(version, 4)) == translated
    assert add(TransactionNode(ABORTABLE), version, ("orders", [0]))[0][2] == (
        ABORTABLE if version == 5 else WRONG_STATE
    )


@pytest.mark.parametrize(
    ("version", "translated"),
    [(0, ErrorCode.COORDINATOR_NOT_AVAILABLE), (1, ErrorCode.COORDINATOR_NOT_AVAILABLE), (2, None), (5, None)],
)
def test_loading_coordinator_error_is_translated_for_old_clients(version: int, translated: ErrorCode | None) -> None:
    loading = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert commit_offsets(with_group(loading), version)[0][2] == (translated or loading)


# InitProducerId


@pytest.mark.parametrize("version", range(6))
def test_init_producer_id_returns_id_of_transactional_id(version: int) -> None:
    node = TransactionNode()
    response = init(node, version)
    assert (response.error_code, response.producer_id, response.producer_epoch) == (ErrorCode.NONE, 7, 3)
    assert node.transactions.calls == [("init", "t", 1000, -1, -1, CLIENT)]


@pytest.mark.parametrize("version", [3, 4, 5])
def test_init_producer_id_passes_current_id_and_epoch(version: int) -> None:
    node = TransactionNode()
    init(node, version, producer_id=7, producer_epoch=2)
    assert node.transactions.calls == [("init", "t", 1000, 7, 2, CLIENT)]


@pytest.mark.parametrize("transactional_id", ["t", None])
@pytest.mark.parametrize("half", [{"producer_id": 7}, {"producer_epoch": 2}])
def test_init_producer_id_requires_both_id_and_epoch(transactional_id: str | None, half: dict[str, int]) -> None:
    assert init(TransactionNode(), 4, transactional_id, **half).error_code == ErrorCode.INVALID_REQUEST


def test_idempotent_producer_id_needs_no_coordinator() -> None:
    node = TransactionNode()
    assert init(node, 5, None).producer_id == 100
    assert node.transactions.calls == []


def test_fenced_node_rejects_init_producer_id_with_retriable_errors() -> None:
    node = TransactionNode()
    node.is_fenced = True
    assert init(node, 4).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert init(node, 4, None).error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert node.transactions.calls == []


# EndTxn


@pytest.mark.parametrize("version", range(6))
def test_end_txn_returns_next_epoch_from_version_5_on(version: int) -> None:
    node = TransactionNode()
    response = end(node, version)
    assert node.transactions.calls == [("end", "t", 7, 2, True, version >= 5)]
    assert (response.error_code, response.producer_id, response.producer_epoch) == (
        (ErrorCode.NONE, 7, 3) if version >= 5 else (ErrorCode.NONE, -1, -1)
    )


# AddPartitionsToTxn


@pytest.mark.parametrize("version", range(6))
def test_duplicate_partitions_are_added_once(version: int) -> None:
    node = TransactionNode()
    assert add(node, version, ("orders", [1, 0, 1]), ("orders", [0])) == [
        ("orders", 1, ErrorCode.NONE),
        ("orders", 0, ErrorCode.NONE),
    ]
    assert node.transactions.calls == [("add", "t", 7, 2, node.partition(1), node.partition(0))]


@pytest.mark.parametrize("version", [0, 3, 4, 5])
def test_unknown_partition_prevents_adding_all_partitions(version: int) -> None:
    node = TransactionNode()
    assert add(node, version, ("orders", [0, 3]), ("gone", [0]), ("__consumer_offsets", [0])) == [
        ("orders", 0, NOT_ATTEMPTED),
        ("orders", 3, UNKNOWN),
        ("gone", 0, UNKNOWN),
        ("__consumer_offsets", 0, ErrorCode.TOPIC_AUTHORIZATION_FAILED),
    ]
    assert node.transactions.calls == []


@pytest.mark.parametrize(("version", "translated"), [(4, WRONG_STATE), (5, ABORTABLE)])
def test_verify_only_returns_error_code_for_each_partition(version: int, translated: ErrorCode) -> None:
    node = TransactionNode(ABORTABLE)
    assert add(node, version, ("orders", [0, 1]), verify_only=True) == [
        ("orders", 0, ErrorCode.NONE),
        ("orders", 1, translated),
    ]
    assert node.transactions.calls == [("verify", "t", 7, 2)]


def test_transactions_of_a_request_are_independent() -> None:
    node = TransactionNode()
    topics = [AddPartitionsToTxnTopic(name=name, partitions=[0]) for name in ("orders", "gone")]
    transactions = [
        AddPartitionsToTxnTransaction(transactional_id=name, producer_id=7, producer_epoch=2, topics=[topic])
        for name, topic in zip("ab", topics, strict=True)
    ]
    response = node.send_request(AddPartitionsToTxnRequest(transactions=transactions), 5, AddPartitionsToTxnResponse)
    assert [(each.transactional_id, codes(each.topic_results)) for each in response.results_by_transaction] == [
        ("a", [("orders", 0, ErrorCode.NONE)]),
        ("b", [("gone", 0, UNKNOWN)]),
    ]


# TxnOffsetCommit


def with_group(code: ErrorCode = ErrorCode.NONE) -> TransactionNode:
    node = TransactionNode(code)
    node.begin("g")
    return node


@pytest.mark.parametrize("version", range(6))
def test_txn_offset_commit_passes_offsets_and_member(version: int) -> None:
    node = with_group()
    member: dict[str, object] = {"generation_id": 4, "member_id": "m", "group_instance_id": "i"} if version >= 3 else {}
    assert commit_offsets(node, version, 1, 3, **member) == [
        ("orders", 1, ErrorCode.NONE),
        ("orders", 3, UNKNOWN),
        ("gone", 1, UNKNOWN),
        ("gone", 3, UNKNOWN),
    ]
    offset = OffsetToCommit("orders", 1, 5, -1, "")
    producer = (4, "m", "i") if member else (-1, "", None)
    began_index = node.world.image.transactions["t"].began_index
    staged = ("stage", "g", "t", began_index, [offset], *producer)
    assert node.transactions.calls == ([("add", "t", 7, 2, "g"), staged] if version >= 5 else [staged])


@pytest.mark.parametrize("version", [0, 3, 4])
def test_txn_offset_commit_of_group_outside_transaction_is_rejected(version: int) -> None:
    node = TransactionNode()
    node.begin("another")
    translated = ABORTABLE if version >= 4 else WRONG_STATE
    assert commit_offsets(node, version)[0] == ("orders", 0, translated)
    assert node.transactions.calls == []


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ],
)
def test_unavailable_transaction_coordinator_returns_load_in_progress(code: ErrorCode) -> None:
    assert commit_offsets(with_group(code), 5)[0][2] == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert commit_offsets(with_group(code), 4)[0][2] == code, "the group coordinator's own error"


def test_txn_offset_commit_rejects_empty_or_unknown_group() -> None:
    assert commit_offsets(with_group(), 3, group_id="")[0][2] == ErrorCode.INVALID_GROUP_ID
    assert commit_offsets(with_group(ErrorCode.GROUP_ID_NOT_FOUND), 3)[0][2] == ErrorCode.ILLEGAL_GENERATION


# Empty transactional ids, and clusters before the upgrade


def test_empty_transactional_id_is_rejected() -> None:
    node, wrong = TransactionNode(), ErrorCode.INVALID_REQUEST
    assert init(node, 4, "").error_code == wrong
    assert end(node, 4, "").error_code == wrong
    assert add_group(node, 3, "") == wrong
    assert add(node, 3, ("orders", [0]), transactional_id="") == [("orders", 0, wrong)]
    assert commit_offsets(node, 3, transactional_id="")[0][2] == wrong
    assert node.transactions.calls == []


def test_cluster_before_upgrade_rejects_transactions() -> None:
    node = TransactionNode(level=1)
    assert init(node, 4).error_code == UNSUPPORTED
    assert end(node, 4).error_code == UNSUPPORTED
    assert add_group(node, 3) == UNSUPPORTED
    assert add(node, 3, ("orders", [0])) == [("orders", 0, UNSUPPORTED)]
    assert commit_offsets(node, 3)[0][2] == UNSUPPORTED
    assert node.transactions.calls == []


@pytest.mark.parametrize("version", [1, 3])
def test_find_coordinator_before_upgrade_explains_how_to_upgrade(version: int) -> None:
    """The error is fatal for every client."""
    request = FindCoordinatorRequest(key="t", key_type=1)
    response = TransactionNode(level=1).send_request(request, version, FindCoordinatorResponse)
    assert (response.error_code, response.node_id) == (UNSUPPORTED, -1)
    assert "chronik cluster upgrade" in (response.error_message or "")
    assert TransactionNode().send_request(request, version, FindCoordinatorResponse).error_code != UNSUPPORTED


def test_end_txn_passes_coordinator_error_through() -> None:
    node = TransactionNode()
    node.transactions.given = TransactionResult(ErrorCode.CONCURRENT_TRANSACTIONS)
    response = end(node, 5)
    assert (response.error_code, response.producer_id) == (ErrorCode.CONCURRENT_TRANSACTIONS, -1)
