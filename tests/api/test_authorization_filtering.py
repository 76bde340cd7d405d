"""Authorization filters lists, and revoked permissions apply to waiting requests and open sessions."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from threading import Timer
from typing import Any

import pytest
from confluent_kafka import Consumer

from chronik.protocol.errors import ErrorCode
from chronik.protocol.messages.fetch import FetchResponse
from chronik.protocol.permissions import (
    CLUSTER_OPERATION_BITS,
    AclOperation,
    AclResourceType,
    encode_operations_as_bit_field,
)
from chronik.protocol.records import Record, encode_batch
from tests.api.authorization_cases import BATCH
from tests.api.authorizing_node import DENY, PREFIXED, AuthorizingNode, build_request, error_codes_in, send_request
from tests.raw import RawClient

TOPIC, GROUP, CLUSTER = AclResourceType.TOPIC, AclResourceType.GROUP, AclResourceType.CLUSTER
DENIED = ErrorCode.TOPIC_AUTHORIZATION_FAILED
COMPLETES_WITHIN_SECONDS = 10.0
"""Half of the fetches' timeout, enough for a busy machine."""


@pytest.fixture
def node(tmp_path: Path) -> Iterator[AuthorizingNode]:
    node = AuthorizingNode(tmp_path / "data")
    with node.all_permitted(), RawClient(node.bootstrap) as client:
        new = [{"name": name, "num_partitions": 1, "replication_factor": 1} for name in ("seen", "unseen")]
        assert not error_codes_in(send_request(client, "CreateTopics", 7, topics=new))
        for name in ("seen", "unseen"):
            offset = {"partition_index": 0, "committed_offset": 0, "committed_metadata": ""}
            both = [{"name": topic, "partitions": [offset]} for topic in ("seen", "unseen")]
            assert not error_codes_in(send_request(client, "OffsetCommit", 8, group_id=name, topics=both))
            begun = send_request(client, "InitProducerId", 4, transactional_id=name, transaction_timeout_ms=60_000)
            topics = [{"name": topic, "partitions": [0]} for topic in ("seen", "unseen")]
            producer = {"transactional_id": name, "producer_id": begun.producer_id, "producer_epoch": 0}
            assert not error_codes_in(send_request(client, "AddPartitionsToTxn", 3, **producer, topics=topics))
    yield node
    node.close()


@pytest.fixture
def client(node: AuthorizingNode) -> Iterator[RawClient]:
    with RawClient(node.bootstrap) as client:
        yield client


def allow_describe(node: AuthorizingNode, kind: AclResourceType) -> None:
    node.allow(AclOperation.DESCRIBE, kind, "seen")


def fetch_topic(name: str, offset: int = 0) -> dict[str, Any]:
    partition = {"partition": 0, "fetch_offset": offset, "partition_max_bytes": 1 << 20}
    return {"topic": name, "partitions": [partition]}


def error_codes(answer: Any) -> dict[str, int]:
    return {topic.topic: topic.partitions[0].error_code for topic in answer.responses}


def test_topic_lists_omit_undescribable_topics(node: AuthorizingNode, client: RawClient) -> None:
    assert send_request(client, "Metadata", 12, topics=None).topics == []
    assert send_request(client, "DescribeTopicPartitions", 0, topics=[], response_partition_limit=9).topics == []
    allow_describe(node, TOPIC)
    assert [topic.name for topic in send_request(client, "Metadata", 12, topics=None).topics] == ["seen"]
    assert [topic.name for topic in send_request(client, "Metadata", 0, topics=[]).topics] == ["seen"]
    page = send_request(client, "DescribeTopicPartitions", 0, topics=[], response_partition_limit=1)
    assert [topic.name for topic in page.topics] == ["seen"]
    assert page.next_cursor is None, "the cursor must not reveal another topic"


def test_group_and_transaction_lists_omit_undescribable_ones(node: AuthorizingNode, client: RawClient) -> None:
    def listed() -> tuple[list[str], list[str]]:
        groups = send_request(client, "ListGroups", 4).groups
        transactions = send_request(client, "ListTransactions", 0).transaction_states
        return sorted(each.group_id for each in groups), sorted(each.transactional_id for each in transactions)

    assert listed() == ([], [])
    allow_describe(node, GROUP)
    allow_describe(node, AclResourceType.TRANSACTIONAL_ID)
    assert listed() == (["seen"], ["seen"])
    node.allow(AclOperation.DESCRIBE, CLUSTER)
    assert listed() == (["seen", "unseen"], ["seen"])


def test_transactions_and_offsets_omit_undescribable_topics(node: AuthorizingNode, client: RawClient) -> None:
    allow_describe(node, GROUP)
    allow_describe(node, AclResourceType.TRANSACTIONAL_ID)
    allow_describe(node, TOPIC)
    (described,) = send_request(client, "DescribeTransactions", 0, transactional_ids=["seen"]).transaction_states
    assert [topic.topic for topic in described.topics] == ["seen"]
    (group,) = send_request(client, "OffsetFetch", 8, groups=[{"group_id": "seen", "topics": None}]).groups
    assert [topic.name for topic in group.topics] == ["seen"]


def test_authorized_operations_are_returned_per_client(node: AuthorizingNode, client: RawClient) -> None:
    def topic_operations() -> list[int]:
        asked = {"topics": [{"name": "seen"}], "include_topic_authorized_operations": True}
        (page,) = send_request(
            client, "DescribeTopicPartitions", 0, topics=asked["topics"], response_partition_limit=9
        ).topics
        (topic,) = send_request(client, "Metadata", 12, **asked).topics
        return [topic.topic_authorized_operations, page.topic_authorized_operations]

    def cluster_operations() -> list[int]:
        how = {"include_cluster_authorized_operations": True}
        answers = (
            send_request(client, "DescribeCluster", 1, **how),
            send_request(client, "Metadata", 10, topics=[], **how),
        )
        assert not error_codes_in(answers[0])
        return [each.cluster_authorized_operations for each in answers]

    assert cluster_operations() == [0, 0]
    node.allow(AclOperation.WRITE, TOPIC, "seen")
    assert topic_operations() == [encode_operations_as_bit_field([AclOperation.WRITE, AclOperation.DESCRIBE])] * 2
    node.allow(AclOperation.READ, TOPIC, "seen")
    assert (
        topic_operations()
        == [encode_operations_as_bit_field([AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE])] * 2
    )
    node.allow(AclOperation.DESCRIBE, CLUSTER)
    assert cluster_operations() == [encode_operations_as_bit_field([AclOperation.DESCRIBE])] * 2
    node.allow(AclOperation.ALL, CLUSTER)
    assert cluster_operations() == [CLUSTER_OPERATION_BITS] * 2
    allow_describe(node, GROUP)
    (group,) = send_request(client, "DescribeGroups", 5, groups=["seen"], include_authorized_operations=True).groups
    assert group.authorized_operations == encode_operations_as_bit_field([AclOperation.DESCRIBE])


def test_topic_auto_creation_requires_create_permission(node: AuthorizingNode, client: RawClient) -> None:
    def code(name: str) -> int:
        asked = {"topics": [{"name": name}], "allow_auto_topic_creation": True}
        return int(send_request(client, "Metadata", 12, **asked).topics[0].error_code)

    node.allow(AclOperation.CREATE, TOPIC, "new")
    assert code("new") == DENIED, "the client may not describe the topic"
    node.allow(AclOperation.DESCRIBE, TOPIC, "n", pattern=PREFIXED)
    assert code("never") == DENIED
    assert code("new") == ErrorCode.NONE
    node.allow(AclOperation.CREATE, CLUSTER)
    assert code("never") == ErrorCode.NONE
    assert {"new", "never"} <= set(node.services.image.topics)


def test_create_topics_returns_configs_only_with_describe_configs(node: AuthorizingNode, client: RawClient) -> None:
    node.allow(AclOperation.CREATE, CLUSTER)
    new = {"name": "a", "num_partitions": 1, "replication_factor": 1}
    (made,) = send_request(client, "CreateTopics", 7, topics=[new]).topics
    assert (made.error_code, made.topic_config_error_code, made.num_partitions) == (0, DENIED, -1)
    assert not made.configs
    node.allow(AclOperation.DESCRIBE_CONFIGS, TOPIC, "b")
    (made,) = send_request(client, "CreateTopics", 7, topics=[{**new, "name": "b"}]).topics
    assert (made.error_code, made.topic_config_error_code, made.num_partitions) == (0, 0, 1)
    assert made.configs


def test_denied_topic_id_is_answered_without_its_name(node: AuthorizingNode, client: RawClient) -> None:
    topic_id = node.services.image.topics["unseen"].id
    (found,) = send_request(client, "Metadata", 12, topics=[{"topic_id": topic_id, "name": None}]).topics
    assert (found.error_code, found.name, found.topic_id, found.partitions) == (DENIED, None, topic_id, [])
    (deleted,) = send_request(client, "DeleteTopics", 6, topics=[{"topic_id": topic_id, "name": None}]).responses
    assert (deleted.error_code, deleted.name, deleted.topic_id) == (DENIED, None, topic_id)
    node.allow(AclOperation.DESCRIBE, TOPIC, "unseen")
    (deleted,) = send_request(client, "DeleteTopics", 6, topics=[{"topic_id": topic_id, "name": None}]).responses
    assert (deleted.error_code, deleted.name) == (DENIED, "unseen")
    assert "unseen" in node.services.image.topics
    partition = {"partition": 0, "partition_max_bytes": 1000}
    fetched = send_request(client, "Fetch", 13, topics=[{"topic_id": topic_id, "partitions": [partition]}])
    assert error_codes_in(fetched) == [DENIED]
    data = [{"topic_id": topic_id, "partition_data": [{"index": 0, "records": BATCH}]}]
    assert error_codes_in(send_request(client, "Produce", 13, acks=-1, timeout_ms=9000, topic_data=data)) == [DENIED]
    committed = [{"topic_id": topic_id, "partitions": [{"partition_index": 0, "committed_offset": 0}]}]
    node.allow(AclOperation.READ, GROUP, "seen")
    assert error_codes_in(send_request(client, "OffsetCommit", 10, group_id="seen", topics=committed)) == [DENIED]
    asked = [{"group_id": "seen", "topics": [{"topic_id": topic_id, "partition_indexes": [0]}]}]
    node.allow(AclOperation.DESCRIBE, TOPIC, "unseen", permission=DENY)
    assert error_codes_in(send_request(client, "OffsetFetch", 10, groups=asked)) == [DENIED]


def test_produce_is_authorized_per_topic(node: AuthorizingNode, client: RawClient) -> None:
    node.allow(AclOperation.WRITE, TOPIC, "seen")
    data = [{"name": name, "partition_data": [{"index": 0, "records": BATCH}]} for name in ("unseen", "seen")]
    answer = send_request(client, "Produce", 9, acks=-1, timeout_ms=9000, topic_data=data)
    assert [topic.partition_responses[0].error_code for topic in answer.responses] == [DENIED, 0]
    with RawClient(node.bootstrap) as other:
        other.send(build_request("Produce", {"acks": 0, "timeout_ms": 9000, "topic_data": data[:1]}), 9)
        assert other.wait_for_close(), "a request with acks=0 has no other way to fail"


def test_fetch_session_is_authorized_on_each_fetch(node: AuthorizingNode, client: RawClient) -> None:
    for name in ("seen", "unseen"):
        node.allow(AclOperation.READ, TOPIC, name)
    both = [fetch_topic("seen"), fetch_topic("unseen")]
    begun = send_request(client, "Fetch", 12, topics=both, session_epoch=0)
    assert begun.session_id
    assert error_codes(begun) == {"seen": 0, "unseen": 0}
    node.revoke(AclOperation.READ, TOPIC, "unseen")
    again = send_request(client, "Fetch", 12, topics=[], session_id=begun.session_id, session_epoch=1)
    assert error_codes(again) == {"unseen": DENIED}, "although the request does not name it"
    node.allow(AclOperation.READ, TOPIC, "unseen")
    at_last = send_request(client, "Fetch", 12, topics=[], session_id=begun.session_id, session_epoch=2)
    assert error_codes(at_last) == {"unseen": 0}


def test_fetch_session_does_not_reveal_existing_topics(node: AuthorizingNode, client: RawClient) -> None:
    node.allow(AclOperation.READ, TOPIC, "seen")
    for other in ("unseen", "never"):
        answer = send_request(client, "Fetch", 12, topics=[fetch_topic("seen"), fetch_topic(other)], session_epoch=0)
        assert answer.session_id == 0
        assert error_codes(answer) == {"seen": 0, other: DENIED}


@pytest.mark.parametrize("in_session", [True, False])
def test_revoked_permission_completes_waiting_fetch(node: AuthorizingNode, client: RawClient, in_session: bool) -> None:
    node.allow(AclOperation.READ, TOPIC, "seen")
    request = build_request(
        "Fetch",
        {
            "topics": [fetch_topic("seen")],
            "max_wait_ms": 20_000,
            "min_bytes": 1,
            "session_epoch": 0 if in_session else -1,
        },
    )
    client.send(request, 12)
    revoked_at: list[float] = []

    def revoke() -> None:
        while not node.services.authorizer or not node.services.authorizer.delayed_fetches:
            time.sleep(0.001)
        revoked_at.append(time.monotonic())
        node.revoke(AclOperation.READ, TOPIC, "seen")

    Timer(0, revoke).start()
    answer = client.receive(request, 12, FetchResponse)
    assert error_codes(answer) == {"seen": DENIED}
    assert time.monotonic() - revoked_at[0] < COMPLETES_WITHIN_SECONDS


def test_unrelated_acl_change_keeps_fetch_waiting(node: AuthorizingNode, client: RawClient) -> None:
    node.allow(AclOperation.READ, TOPIC, "seen")
    node.allow(AclOperation.WRITE, TOPIC, "seen")
    request = build_request(
        "Fetch", {"topics": [fetch_topic("seen")], "max_wait_ms": 20_000, "min_bytes": 1, "session_epoch": -1}
    )
    client.send(request, 12)
    node.allow(AclOperation.READ, TOPIC, "unseen")
    data = [{"name": "seen", "partition_data": [{"index": 0, "records": BATCH}]}]
    with RawClient(node.bootstrap) as other:
        assert not error_codes_in(send_request(other, "Produce", 9, acks=-1, timeout_ms=9000, topic_data=data))
    answer = client.receive(request, 12, FetchResponse)
    assert answer.responses[0].partitions[0].records


def test_transaction_excludes_partitions_without_write_permission(node: AuthorizingNode, client: RawClient) -> None:
    node.allow(AclOperation.WRITE, AclResourceType.TRANSACTIONAL_ID, "fresh")
    node.allow(AclOperation.WRITE, TOPIC, "seen")
    begun = send_request(client, "InitProducerId", 5, transactional_id="fresh", transaction_timeout_ms=60_000)
    producer: dict[str, Any] = {
        "producer_id": begun.producer_id,
        "producer_epoch": begun.producer_epoch,
        "base_sequence": 0,
    }
    records = encode_batch([Record(0, -1, None, b"v")], transactional=True, **producer)
    data = [{"name": name, "partition_data": [{"index": 0, "records": records}]} for name in ("unseen", "seen")]
    answer = send_request(client, "Produce", 12, transactional_id="fresh", acks=-1, timeout_ms=9000, topic_data=data)
    assert [topic.partition_responses[0].error_code for topic in answer.responses] == [DENIED, 0]
    (joined,) = node.services.image.transactions["fresh"].partitions
    assert joined.topic_id == node.services.image.topics["seen"].id


@pytest.mark.slow
def test_revoked_permission_fails_running_consumer(node: AuthorizingNode) -> None:
    node.allow(AclOperation.READ, TOPIC, "seen")
    node.allow(AclOperation.READ, GROUP, "g")
    with node.all_permitted(), RawClient(node.bootstrap) as client:
        data = [{"name": "seen", "partition_data": [{"index": 0, "records": BATCH}]}]
        assert not error_codes_in(send_request(client, "Produce", 9, acks=-1, timeout_ms=9000, topic_data=data))
    settings = {"bootstrap.servers": node.bootstrap, "group.id": "g", "auto.offset.reset": "earliest"}
    consumer = Consumer({**settings, "fetch.wait.max.ms": 20_000})
    try:
        consumer.subscribe(["seen"])
        read = consumer.poll(30)
        assert read is not None
        assert read.value() == b"v"
        authorizer = node.services.authorizer
        assert authorizer is not None
        while not authorizer.delayed_fetches:
            time.sleep(0.001)
        node.revoke(AclOperation.READ, TOPIC, "seen")
        revoked_at = time.monotonic()
        refused = consumer.poll(30)
        assert time.monotonic() - revoked_at < COMPLETES_WITHIN_SECONDS
        assert refused is not None
        error = refused.error()
        assert error is not None
        assert error.code() == DENIED
    finally:
        consumer.close()
