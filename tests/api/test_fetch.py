"""Fetch: size limits, waiting, leader epochs, and fetch sessions, which a throttled first fetch does not create."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from chronik.api.fetch import PARTITIONS_PER_ITERATION_MAX, compute_response_bytes_max
from chronik.broker.requests.fetch_sessions import FetchSessionCache
from chronik.limits import FETCH_PARTITIONS_MAX, FETCH_RESPONSE_BYTES_MAX, RESPONSE_BYTES_MIN, RESPONSES_BYTES_MAX
from chronik.protocol.errors import ErrorCode
from chronik.protocol.messages.fetch import FetchPartition, FetchResponse, ForgottenTopic
from chronik.request_reply import EarlyCompletion, UnsentByteCounter
from chronik.testing import Broker
from chronik.testing.plugin import BrokerFactory
from tests.api import request_builders
from tests.api.authorizing_node import AuthorizingNode, error_codes_in, send_request
from tests.api.quota_requests import set_quota
from tests.raw import RawClient

MIB = 1 << 20

RATE = 10_000
VERSION = 11


def test_fetch_within_a_batch_returns_the_whole_batch(client: RawClient, chronik_topic: str) -> None:
    request_builders.produce(client, chronik_topic, request_builders.batch(b"0", b"1", b"2"))
    assert request_builders.values(request_builders.fetch(client, chronik_topic, 1)) == [b"0", b"1", b"2"]


def test_fetch_outside_the_log_returns_offset_out_of_range(client: RawClient, chronik_topic: str) -> None:
    request_builders.produce(client, chronik_topic, request_builders.batch(b"0"))
    assert request_builders.fetch(client, chronik_topic, 1).error_code == ErrorCode.NONE
    for offset in (-1, 2):
        assert request_builders.fetch(client, chronik_topic, offset).error_code == ErrorCode.OFFSET_OUT_OF_RANGE


# Waiting


def test_fetch_waits_at_most_max_wait_ms(client: RawClient, chronik_topic: str) -> None:
    began = time.monotonic()
    request = request_builders.fetch_request((chronik_topic, 0, 0), min_bytes=1, max_wait_ms=300)
    response = client.request(request, 12, FetchResponse)
    assert request_builders.values(response.responses[0].partitions[0]) == []
    assert 0.3 <= time.monotonic() - began < 10


def test_fetch_completes_when_min_bytes_are_available(
    chronik_broker: Broker, client: RawClient, chronik_topic: str
) -> None:
    record = request_builders.batch(b"v" * 100)
    request = request_builders.fetch_request((chronik_topic, 0, 0), min_bytes=len(record) + 1, max_wait_ms=30_000)
    client.send(request, 12)
    with RawClient(chronik_broker.bootstrap) as producer:
        request_builders.produce(producer, chronik_topic, record)
        request_builders.produce(producer, chronik_topic, record)
    response = client.receive(request, 12, FetchResponse)
    assert len(request_builders.values(response.responses[0].partitions[0])) == 2


def test_fetch_does_not_wait_for_more_than_max_bytes(client: RawClient, chronik_topic: str) -> None:
    request_builders.produce(client, chronik_topic, request_builders.batch(b"v" * 1000))
    began = time.monotonic()
    request = request_builders.fetch_request((chronik_topic, 0, 0), min_bytes=MIB, max_bytes=500, max_wait_ms=20_000)
    response = client.request(request, 12, FetchResponse)
    assert len(request_builders.values(response.responses[0].partitions[0])) == 1
    assert time.monotonic() - began < 10


@pytest.mark.chronik_topic(configs={"internal.segment.bytes": "1000"})
def test_fetch_does_not_wait_at_a_segment_end(client: RawClient, chronik_topic: str) -> None:
    for _ in range(4):
        request_builders.produce(client, chronik_topic, request_builders.batch(b"v" * 600))
    began = time.monotonic()
    request = request_builders.fetch_request((chronik_topic, 0, 0), min_bytes=2000, max_wait_ms=20_000)
    assert request_builders.values(client.request(request, 12, FetchResponse).responses[0].partitions[0])
    assert time.monotonic() - began < 10


def test_fetch_with_partition_error_does_not_wait(client: RawClient, chronik_topic: str) -> None:
    began = time.monotonic()
    request = request_builders.fetch_request(
        (chronik_topic, 0, 0), (chronik_topic, 9, 0), min_bytes=1, max_wait_ms=20_000
    )
    response = client.request(request, 12, FetchResponse)
    codes = {each.partition_index: each.error_code for topic in response.responses for each in topic.partitions}
    assert codes == {0: ErrorCode.NONE, 9: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert time.monotonic() - began < 10


# Size limits


@pytest.mark.chronik_topic(partitions=2)
def test_fetch_returns_first_batch_beyond_max_bytes(client: RawClient, chronik_topic: str) -> None:
    for partition in (0, 1):
        request_builders.produce(client, chronik_topic, request_builders.batch(b"v" * 5000), partition=partition)
    request = request_builders.fetch_request(
        (chronik_topic, 0, 0), (chronik_topic, 1, 0), max_bytes=100, partition_max_bytes=100
    )
    response = client.request(request, 12, FetchResponse)
    first, second = (each for topic in response.responses for each in topic.partitions)
    assert len(request_builders.values(first)) == 1
    assert request_builders.values(second) == []


def test_broker_fetch_max_bytes_limits_response(
    chronik_broker_factory: BrokerFactory,
) -> None:
    record = request_builders.batch(b"v" * 1000)
    for limit, returned in ((2 * len(record), 2), (2 * len(record) - 1, 1)):
        broker = chronik_broker_factory(broker={"fetch.max.bytes": limit})
        broker.create_topic("limited")
        with RawClient(broker.bootstrap) as client:
            for _ in range(3):
                request_builders.produce(client, "limited", record)
            assert len(request_builders.values(request_builders.fetch(client, "limited", 0))) == returned


# Leader epochs


def test_fetch_with_other_leader_epoch_is_fenced_or_unknown(client: RawClient, chronik_topic: str) -> None:
    request_builders.produce(client, chronik_topic, request_builders.batch(b"0"))
    epoch = request_builders.describe_topic(client, chronik_topic).partitions[0].leader_epoch
    for claimed, code in (
        (epoch - 1 if epoch else -1, ErrorCode.FENCED_LEADER_EPOCH if epoch else ErrorCode.NONE),
        (epoch, ErrorCode.NONE),
        (epoch + 1, ErrorCode.UNKNOWN_LEADER_EPOCH),
    ):
        request = request_builders.fetch_request((chronik_topic, 0, 0))
        request.topics[0].partitions[0].current_leader_epoch = claimed
        assert client.request(request, 12, FetchResponse).responses[0].partitions[0].error_code == code
        assert request_builders.list_offset(client, chronik_topic, -1, epoch=claimed).error_code == code


def test_unknown_last_fetched_epoch_returns_offset_out_of_range(client: RawClient, chronik_topic: str) -> None:
    request_builders.produce(client, chronik_topic, request_builders.batch(b"0"))
    request = request_builders.fetch_request((chronik_topic, 0, 1), min_bytes=1, max_wait_ms=20_000)
    request.topics[0].partitions[0].last_fetched_epoch = 1000
    began = time.monotonic()
    response = client.request(request, 12, FetchResponse)
    assert response.responses[0].partitions[0].error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert time.monotonic() - began < 10


# Sessions


@pytest.mark.chronik_topic(partitions=3)
@pytest.mark.parametrize("version", [7, 12, 13, 18])
def test_fetch_session_returns_only_changed_partitions(client: RawClient, chronik_topic: str, version: int) -> None:
    topic: str | bytes = chronik_topic
    if version >= 13:
        topic = request_builders.describe_topic(client, chronik_topic).topic_id
    request = request_builders.fetch_request(*((topic, index, 0) for index in range(3)), session=(0, 0))
    first = client.request(request, version, FetchResponse)
    assert first.session_id > 0
    assert _indexes(first) == [0, 1, 2]

    quiet = client.request(request_builders.fetch_request(session=(first.session_id, 1)), version, FetchResponse)
    assert _indexes(quiet) == []

    request_builders.produce(client, chronik_topic, request_builders.batch(b"news"), partition=1)
    news = client.request(request_builders.fetch_request(session=(first.session_id, 2)), version, FetchResponse)
    assert _indexes(news) == [1]

    forgetful = request_builders.fetch_request(session=(first.session_id, 3))
    forgotten = ForgottenTopic(partitions=[1])
    if isinstance(topic, str):
        forgotten.topic = topic
    else:
        forgotten.topic_id = topic
    forgetful.forgotten_topics_data = [forgotten]
    assert _indexes(client.request(forgetful, version, FetchResponse)) == []


def _indexes(response: FetchResponse) -> list[int]:
    assert response.error_code == ErrorCode.NONE
    return sorted(each.partition_index for topic in response.responses for each in topic.partitions)


def test_fetch_with_invalid_session_is_rejected(client: RawClient, chronik_topic: str) -> None:
    def code(session_id: int, epoch: int, version: int = 12) -> int:
        request = request_builders.fetch_request(session=(session_id, epoch))
        return client.request(request, version, FetchResponse).error_code

    begun = client.request(request_builders.fetch_request((chronik_topic, 0, 0), session=(0, 0)), 12, FetchResponse)
    assert code(begun.session_id + 1000, 1) == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert code(begun.session_id, 7) == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    assert code(begun.session_id, 1, version=13) == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
    assert code(begun.session_id, 1) == ErrorCode.NONE
    assert code(begun.session_id, -1) == ErrorCode.NONE  # closes the session
    assert code(begun.session_id, 2) == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_fetch_and_produce_with_unknown_topic_id_fail(client: RawClient, chronik_topic: str) -> None:
    assert request_builders.fetch(client, bytes([7]) * 16, 0, version=13).error_code == ErrorCode.UNKNOWN_TOPIC_ID
    assert (
        request_builders.produce(client, bytes([7]) * 16, request_builders.batch(b"v"), version=13).error_code
        == ErrorCode.UNKNOWN_TOPIC_ID
    )
    topic_id = request_builders.describe_topic(client, chronik_topic).topic_id
    assert request_builders.produce(client, topic_id, request_builders.batch(b"v"), version=13).base_offset == 0
    assert request_builders.values(request_builders.fetch(client, topic_id, 0, version=13)) == [b"v"]
    unknown = request_builders.fetch(client, topic_id, 0, version=13, partition=5)
    assert unknown.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("has_fenced_broker", [True, False])
def test_waiting_fetch_completes_early_only_while_a_broker_is_fenced(has_fenced_broker: bool) -> None:
    """Librdkafka requests metadata on the connection of a waiting fetch, and needs it soon after a failover."""
    woken: list[bool] = []
    completion = EarlyCompletion(lambda: has_fenced_broker)
    completion.wake = lambda: woken.append(True)
    completion.request()
    assert completion.must_complete is has_fenced_broker
    assert bool(woken) is has_fenced_broker


def test_fetch_response_limit_shrinks_with_unsent_bytes() -> None:
    def limit_for(unsent_bytes: int) -> int:
        return compute_response_bytes_max(UnsentByteCounter(unsent_bytes))

    assert limit_for(0) == FETCH_RESPONSE_BYTES_MAX
    assert limit_for(RESPONSES_BYTES_MAX // 2) == RESPONSES_BYTES_MAX // 8
    assert limit_for(RESPONSES_BYTES_MAX - 4 * RESPONSE_BYTES_MIN - 4) == RESPONSE_BYTES_MIN + 1
    assert limit_for(RESPONSES_BYTES_MAX) == limit_for(2 * RESPONSES_BYTES_MAX) == RESPONSE_BYTES_MIN


def test_fetch_sessions_do_not_keep_unknown_topics(client: RawClient, chronik_topic: str) -> None:
    unknown = request_builders.fetch_request((chronik_topic, 0, 0), ("x" * 32_000, 0, 0), session=(0, 0))
    answer = client.request(unknown, 12, FetchResponse)
    assert answer.session_id == 0
    assert [topic.partitions[0].error_code for topic in answer.responses] == [
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    begun = client.request(request_builders.fetch_request((chronik_topic, 0, 0), session=(0, 0)), 12, FetchResponse)
    assert begun.session_id > 0
    added = request_builders.fetch_request(("unknown-topic", 0, 0), session=(begun.session_id, 1))
    assert client.request(added, 12, FetchResponse).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


@pytest.mark.chronik_topic(partitions=20)
def test_session_returns_skipped_partitions_first_in_next_fetch(client: RawClient, chronik_topic: str) -> None:
    for partition in range(20):
        request_builders.produce(client, chronik_topic, request_builders.batch(b"v" * 1_000_000), partition=partition)
    wanted = [(chronik_topic, partition, 0) for partition in range(20)]
    first = client.request(request_builders.fetch_request(*wanted, session=(0, 0)), 12, FetchResponse)
    answered = {each.partition_index for each in first.responses[0].partitions if each.records}
    assert len(answered) == FETCH_RESPONSE_BYTES_MAX // 1_000_000
    second = client.request(request_builders.fetch_request(session=(first.session_id, 1)), 12, FetchResponse)
    reached = {each.partition_index for each in second.responses[0].partitions if each.records}
    assert reached >= set(range(20)) - answered


def test_fetch_of_thousands_of_partitions_answers_each(client: RawClient, chronik_topic: str) -> None:
    request_builders.produce(client, chronik_topic, request_builders.batch(b"there"))
    count = PARTITIONS_PER_ITERATION_MAX + 1_000
    request = request_builders.fetch_request((chronik_topic, 0, 0), min_bytes=1_000_000, max_wait_ms=30_000)
    for index in range(count):
        request.topics[0].partitions.append(FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=1_000))
    answered = client.request(request, 12, FetchResponse).responses[0].partitions
    assert [partition.partition_index for partition in answered] == list(range(count))
    assert request_builders.values(answered[0]) == [b"there"]
    assert {partition.error_code for partition in answered[1:]} == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}


@pytest.mark.parametrize("extra", [0, 1])
def test_fetch_partition_count_is_limited(client: RawClient, chronik_topic: str, extra: int) -> None:
    request = request_builders.fetch_request((chronik_topic, 0, 0))
    request.topics[0].partitions *= FETCH_PARTITIONS_MAX + extra
    client.send(request, 12)
    assert (client.read_frame() is None) is bool(extra)


@pytest.fixture
def node(tmp_path: Path) -> Iterator[AuthorizingNode]:
    node = AuthorizingNode(tmp_path / "data", **{"super.users": "User:ANONYMOUS"})
    yield node
    node.close()


@pytest.fixture
def sessions(node: AuthorizingNode) -> FetchSessionCache:
    return node.services.fetch_sessions


def connect(node: AuthorizingNode, client_id: str = "limited") -> RawClient:
    client = RawClient(node.bootstrap)
    client.client_id = client_id
    return client


def prepare(operator: RawClient) -> None:
    for name in ("empty", "full"):
        topic = {"name": name, "num_partitions": 1, "replication_factor": 1}
        assert not error_codes_in(send_request(operator, "CreateTopics", 7, topics=[topic]))
    request_builders.produce(operator, "full", request_builders.batch(bytes(3 * RATE)))
    set_quota(operator, {"client_id": "limited"}, consumer_byte_rate=RATE)


@pytest.mark.parametrize("is_continued", [False, True])
def test_throttled_waiting_fetch_closes_only_new_sessions(
    node: AuthorizingNode, sessions: FetchSessionCache, is_continued: bool
) -> None:
    with connect(node, "operator") as operator, connect(node) as waiting, connect(node) as other:
        prepare(operator)
        session = (0, 0)
        if is_continued:
            first = waiting.request(
                request_builders.fetch_request(("empty", 0, 0), session=session), VERSION, FetchResponse
            )
            session = (first.session_id, 1)
        request = request_builders.fetch_request(("empty", 0, 0), min_bytes=1, max_wait_ms=30_000, session=session)
        waiting.send(request, VERSION)
        node.wait_until(
            lambda: len(sessions) == 1 and all(each.epoch == session[1] + 1 for each in sessions._sessions.values())
        )
        assert other.request(request_builders.fetch_request(("full", 0, 0)), VERSION, FetchResponse).responses
        request_builders.produce(operator, "empty", request_builders.batch(b"x"))
        answer = waiting.receive(request, VERSION, FetchResponse)
        assert answer.throttle_time_ms > 0
        assert (answer.responses, answer.session_id) == ([], session[0])
        assert len(sessions) == is_continued, "only a session that the client already knows is kept"
