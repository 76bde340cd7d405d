"""What a coordinator of transactions decides reaches its clients in the words of their versions, and what they ask
reaches it whole."""

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
from chronik.transactions.events import Given
from tests.api.transacting import Node

FENCED, OLD_EPOCH = ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH
ABORTABLE, WRONG_STATE = ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.INVALID_TXN_STATE
UNKNOWN, NOT_ATTEMPTED = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.OPERATION_NOT_ATTEMPTED
REFUSED = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


def end(node: Node, version: int, transactional_id: str = "t") -> EndTxnResponse:
    request = EndTxnRequest(transactional_id=transactional_id, producer_id=7, producer_epoch=2, committed=True)
    return node.ask(request, version, EndTxnResponse)


CLIENT = ("User:ANONYMOUS", "127.0.0.1")


def init(node: Node, version: int, transactional_id: str | None = "t", **expected: int) -> InitProducerIdResponse:
    request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=1000, **expected)
    return node.ask(request, version, InitProducerIdResponse)


def add_group(node: Node, version: int, transactional_id: str = "t") -> ErrorCode:
    request = AddOffsetsToTxnRequest(transactional_id=transactional_id, producer_id=7, producer_epoch=2, group_id="g")
    return ErrorCode(node.ask(request, version, AddOffsetsToTxnResponse).error_code)


def add(
    node: Node,
    version: int,
    *topics: tuple[str, list[int]],
    transactional_id: str = "t",
    verify_only: bool = False,
) -> list[tuple[str, int, ErrorCode]]:
    wanted = [AddPartitionsToTxnTopic(name=name, partitions=indexes) for name, indexes in topics]
    who = {"transactional_id": transactional_id, "producer_id": 7, "producer_epoch": 2, "topics": wanted}
    if version < 4:
        response = node.ask(AddPartitionsToTxnRequest(**who), version, AddPartitionsToTxnResponse)  # type: ignore[arg-type]
        return codes(response.results_by_topic)
    transaction = AddPartitionsToTxnTransaction(verify_only=verify_only, **who)  # type: ignore[arg-type]
    request = AddPartitionsToTxnRequest(transactions=[transaction])
    response = node.ask(request, version, AddPartitionsToTxnResponse)
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


def commit_offsets(node: Node, version: int, *partitions: int, **member: object) -> list[tuple[str, int, ErrorCode]]:
    wanted = [TxnOffsetCommitRequestPartition(partition_index=each, committed_offset=5) for each in partitions or (0,)]
    request = TxnOffsetCommitRequest(
        **{"transactional_id": "t", "group_id": "g", **member},  # type: ignore[arg-type]
        producer_id=7,
        producer_epoch=2,
        topics=[TxnOffsetCommitRequestTopic(name=name, partitions=wanted) for name in ("orders", "gone")],
    )
    response = node.ask(request, version, TxnOffsetCommitResponse)
    return [
        (topic.name, each.partition_index, ErrorCode(each.error_code))
        for topic in response.topics
        for each in topic.partitions
    ]


# Old clients


@pytest.mark.parametrize(("version", "told"), [(0, OLD_EPOCH), (1, OLD_EPOCH), (2, FENCED), (5, FENCED)])
def test_a_fenced_producer_that_ends_a_transaction_is_told_so(version: int, told: ErrorCode) -> None:
    assert end(Node(FENCED), version).error_code == told


@pytest.mark.parametrize(("version", "told"), [(0, OLD_EPOCH), (3, OLD_EPOCH), (4, FENCED), (5, FENCED)])
def test_a_fenced_producer_that_begins_is_told_so(version: int, told: ErrorCode) -> None:
    response = init(Node(FENCED), version)
    assert (response.error_code, response.producer_id, response.producer_epoch) == (told, -1, -1)


@pytest.mark.parametrize(("version", "told"), [(0, OLD_EPOCH), (1, OLD_EPOCH), (2, FENCED), (5, FENCED)])
def test_a_fenced_producer_that_adds_partitions_is_told_so(version: int, told: ErrorCode) -> None:
    assert add(Node(FENCED), version, ("orders", [0])) == [("orders", 0, told)]


@pytest.mark.parametrize(("version", "told"), [(0, OLD_EPOCH), (1, OLD_EPOCH), (2, FENCED), (4, FENCED)])
def test_a_fenced_producer_that_adds_a_group_is_told_so(version: int, told: ErrorCode) -> None:
    assert add_group(Node(FENCED), version) == told


@pytest.mark.parametrize("version", range(6))
def test_a_fenced_producer_that_commits_offsets_has_an_old_epoch_in_every_version(version: int) -> None:
    assert commit_offsets(with_group(FENCED), version)[0] == ("orders", 0, OLD_EPOCH)


@pytest.mark.parametrize(("version", "told"), [(0, WRONG_STATE), (3, WRONG_STATE), (4, ABORTABLE), (5, ABORTABLE)])
def test_clients_that_cannot_abort_are_told_that_the_state_is_wrong(version: int, told: ErrorCode) -> None:
    assert end(Node(ABORTABLE), version).error_code == told
    assert commit_offsets(with_group(ABORTABLE), version)[0][2] == told
    assert commit_offsets(Node(), version)[0][2] == (ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    assert commit_offsets(with_group(WRONG_STATE), version)[0][2] == told
    assert add_group(Node(ABORTABLE), min(version, 4)) == told
    assert add(Node(ABORTABLE), version, ("orders", [0]))[0][2] == (ABORTABLE if version == 5 else WRONG_STATE)


@pytest.mark.parametrize(
    ("version", "told"),
    [(0, ErrorCode.COORDINATOR_NOT_AVAILABLE), (1, ErrorCode.COORDINATOR_NOT_AVAILABLE), (2, None), (5, None)],
)
def test_a_coordinator_that_loads_crashes_no_old_client(version: int, told: ErrorCode | None) -> None:
    loading = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert commit_offsets(with_group(loading), version)[0][2] == (told or loading)


# Producers' ids


@pytest.mark.parametrize("version", range(6))
def test_a_transactional_id_gets_its_producer_id(version: int) -> None:
    node = Node()
    response = init(node, version)
    assert (response.error_code, response.producer_id, response.producer_epoch) == (ErrorCode.NONE, 7, 3)
    assert node.transactions.asked == [("init", "t", 1000, -1, -1, CLIENT)]


@pytest.mark.parametrize("version", [3, 4, 5])
def test_a_producer_that_goes_on_names_what_it_had(version: int) -> None:
    node = Node()
    init(node, version, producer_id=7, producer_epoch=2)
    assert node.transactions.asked == [("init", "t", 1000, 7, 2, CLIENT)]


@pytest.mark.parametrize("transactional_id", ["t", None])
@pytest.mark.parametrize("half", [{"producer_id": 7}, {"producer_epoch": 2}])
def test_half_of_what_a_producer_had_is_not_enough(transactional_id: str | None, half: dict[str, int]) -> None:
    assert init(Node(), 4, transactional_id, **half).error_code == ErrorCode.INVALID_REQUEST


def test_a_producer_without_a_transactional_id_asks_no_coordinator() -> None:
    node = Node()
    assert init(node, 5, None).producer_id == 100
    assert node.transactions.asked == []


def test_a_fenced_node_sends_the_producers_of_transactions_away_and_lets_others_ask_again() -> None:
    node = Node()
    node.is_fenced = True
    assert init(node, 4).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert init(node, 4, None).error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert node.transactions.asked == []


# The end


@pytest.mark.parametrize("version", range(6))
def test_an_end_tells_the_next_epoch_from_version_5_on(version: int) -> None:
    node = Node()
    response = end(node, version)
    assert node.transactions.asked == [("end", "t", 7, 2, True, version >= 5)]
    assert (response.error_code, response.producer_id, response.producer_epoch) == (
        (ErrorCode.NONE, 7, 3) if version >= 5 else (ErrorCode.NONE, -1, -1)
    )


# Partitions


@pytest.mark.parametrize("version", range(6))
def test_partitions_are_added_once_however_often_they_are_named(version: int) -> None:
    node = Node()
    assert add(node, version, ("orders", [1, 0, 1]), ("orders", [0])) == [
        ("orders", 1, ErrorCode.NONE),
        ("orders", 0, ErrorCode.NONE),
    ]
    assert node.transactions.asked == [("add", "t", 7, 2, node.partition(1), node.partition(0))]


@pytest.mark.parametrize("version", [0, 3, 4, 5])
def test_if_one_partition_does_not_exist_none_is_added(version: int) -> None:
    node = Node()
    assert add(node, version, ("orders", [0, 3]), ("gone", [0]), ("__consumer_offsets", [0])) == [
        ("orders", 0, NOT_ATTEMPTED),
        ("orders", 3, UNKNOWN),
        ("gone", 0, UNKNOWN),
        ("__consumer_offsets", 0, ErrorCode.TOPIC_AUTHORIZATION_FAILED),
    ]
    assert node.transactions.asked == []


@pytest.mark.parametrize(("version", "told"), [(4, WRONG_STATE), (5, ABORTABLE)])
def test_partitions_that_are_only_verified_are_answered_one_by_one(version: int, told: ErrorCode) -> None:
    node = Node(ABORTABLE)
    assert add(node, version, ("orders", [0, 1]), verify_only=True) == [
        ("orders", 0, ErrorCode.NONE),
        ("orders", 1, told),
    ]
    assert node.transactions.asked == [("verify", "t", 7, 2)]


def test_each_transaction_of_a_request_stands_for_itself() -> None:
    node = Node()
    topics = [AddPartitionsToTxnTopic(name=name, partitions=[0]) for name in ("orders", "gone")]
    transactions = [
        AddPartitionsToTxnTransaction(transactional_id=name, producer_id=7, producer_epoch=2, topics=[topic])
        for name, topic in zip("ab", topics, strict=True)
    ]
    response = node.ask(AddPartitionsToTxnRequest(transactions=transactions), 5, AddPartitionsToTxnResponse)
    assert [(each.transactional_id, codes(each.topic_results)) for each in response.results_by_transaction] == [
        ("a", [("orders", 0, ErrorCode.NONE)]),
        ("b", [("gone", 0, UNKNOWN)]),
    ]


# Offsets


def with_group(code: ErrorCode = ErrorCode.NONE) -> Node:
    node = Node(code)
    node.begin("g")
    return node


@pytest.mark.parametrize("version", range(6))
def test_offsets_reach_the_groups_coordinator_with_the_member_that_commits_them(version: int) -> None:
    node = with_group()
    member: dict[str, object] = {"generation_id": 4, "member_id": "m", "group_instance_id": "i"} if version >= 3 else {}
    assert commit_offsets(node, version, 1, 3, **member) == [
        ("orders", 1, ErrorCode.NONE),
        ("orders", 3, UNKNOWN),
        ("gone", 1, UNKNOWN),
        ("gone", 3, UNKNOWN),
    ]
    offset = OffsetToCommit("orders", 1, 5, -1, "")
    who = (4, "m", "i") if member else (-1, "", None)
    began_index = node.world.image.transactions["t"].began_index
    staged = ("stage", "g", "t", began_index, [offset], *who)
    assert node.transactions.asked == ([("add", "t", 7, 2, "g"), staged] if version >= 5 else [staged])


@pytest.mark.parametrize("version", [0, 3, 4])
def test_a_group_that_is_not_part_of_the_transaction_commits_nothing(version: int) -> None:
    node = Node()
    node.begin("another")
    told = ABORTABLE if version >= 4 else WRONG_STATE
    assert commit_offsets(node, version)[0] == ("orders", 0, told)
    assert node.transactions.asked == []


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ],
)
def test_a_transaction_whose_coordinator_moves_is_no_reason_to_look_for_the_groups(code: ErrorCode) -> None:
    assert commit_offsets(with_group(code), 5)[0][2] == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert commit_offsets(with_group(code), 4)[0][2] == code, "that is what the group's coordinator says"


def test_a_group_must_have_a_name_and_exist_for_a_generation() -> None:
    assert commit_offsets(with_group(), 3, group_id="")[0][2] == ErrorCode.INVALID_GROUP_ID
    assert commit_offsets(with_group(ErrorCode.GROUP_ID_NOT_FOUND), 3)[0][2] == ErrorCode.ILLEGAL_GENERATION


# Without a name, and before the upgrade


def test_a_transactional_id_has_a_name() -> None:
    node, wrong = Node(), ErrorCode.INVALID_REQUEST
    assert init(node, 4, "").error_code == wrong
    assert end(node, 4, "").error_code == wrong
    assert add_group(node, 3, "") == wrong
    assert add(node, 3, ("orders", [0]), transactional_id="") == [("orders", 0, wrong)]
    assert commit_offsets(node, 3, transactional_id="")[0][2] == wrong
    assert node.transactions.asked == []


def test_a_cluster_that_is_not_upgraded_yet_has_no_transactions() -> None:
    node = Node(level=1)
    assert init(node, 4).error_code == REFUSED
    assert end(node, 4).error_code == REFUSED
    assert add_group(node, 3) == REFUSED
    assert add(node, 3, ("orders", [0])) == [("orders", 0, REFUSED)]
    assert commit_offsets(node, 3)[0][2] == REFUSED
    assert node.transactions.asked == []


@pytest.mark.parametrize("version", [1, 3])
def test_clients_of_such_a_cluster_learn_how_it_is_upgraded(version: int) -> None:
    """With an error that every client gives up on at once."""
    request = FindCoordinatorRequest(key="t", key_type=1)
    response = Node(level=1).ask(request, version, FindCoordinatorResponse)
    assert (response.error_code, response.node_id) == (REFUSED, -1)
    assert "chronik cluster upgrade" in (response.error_message or "")
    assert Node().ask(request, version, FindCoordinatorResponse).error_code != REFUSED


def test_what_is_given_with_an_error_is_passed_on_as_it_is() -> None:
    node = Node()
    node.transactions.given = Given(ErrorCode.CONCURRENT_TRANSACTIONS)
    response = end(node, 5)
    assert (response.error_code, response.producer_id) == (ErrorCode.CONCURRENT_TRANSACTIONS, -1)
