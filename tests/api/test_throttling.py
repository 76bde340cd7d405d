"""Throttling of clients that exceed a quota: throttle times, errors and delayed requests, for each limited API."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator

import pytest

from chronik.protocol.errors import ErrorCode
from chronik.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from chronik.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from chronik.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from chronik.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from chronik.protocol.messages.fetch import FetchResponse
from chronik.protocol.messages.metadata import MetadataRequest, MetadataResponse
from chronik.protocol.messages.produce import ProduceResponse
from chronik.testing import Broker
from chronik.testing.plugin import BrokerFactory
from tests.api import request_builders
from tests.api.quota_requests import set_quota
from tests.raw import RawClient

pytestmark = pytest.mark.slow

RATE = 100_000
SLACK_SECONDS = 0.05
ANONYMOUS: dict[str, str | None] = {"user": "ANONYMOUS"}
LIMITED: dict[str, str | None] = {"client_id": "limited"}


@pytest.fixture(scope="module")
def own() -> Iterator[Broker]:
    """A broker whose quotas only this module changes."""
    with Broker() as broker:
        yield broker


@pytest.fixture
def operator(own: Broker) -> Iterator[RawClient]:
    with RawClient(own.bootstrap) as client:
        client.client_id = "operator"
        yield client


@pytest.fixture
def limited(own: Broker) -> Iterator[RawClient]:
    with RawClient(own.bootstrap) as client:
        client.client_id = "limited"
        yield client


@pytest.fixture
def topic(own: Broker) -> str:
    name = f"t{time.monotonic_ns()}"
    own.create_topic(name)
    return name


@pytest.fixture(autouse=True)
def remove_quotas(operator: RawClient) -> Iterator[None]:
    yield
    keys = ("producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate")
    for entity in (LIMITED, ANONYMOUS):
        set_quota(operator, entity, **dict.fromkeys(keys))


def limit(operator: RawClient, **values: float) -> None:
    set_quota(operator, LIMITED, **values)


def seconds_until_answered(client: RawClient) -> float:
    began = time.monotonic()
    client.request(ApiVersionsRequest(), 0, ApiVersionsResponse)
    return time.monotonic() - began


@pytest.mark.parametrize("acks", [1, -1])
@pytest.mark.parametrize("version", [3, 9, 12])
def test_produce_over_quota_returns_throttle_time_and_delays_next_request(
    operator: RawClient, limited: RawClient, topic: str, acks: int, version: int
) -> None:
    limit(operator, producer_byte_rate=RATE)
    request = request_builders.produce_request(topic, request_builders.batch(bytes(RATE * 3 // 2)), acks=acks)
    answer = limited.request(request, version, ProduceResponse)
    began = time.monotonic()
    throttle_time = answer.throttle_time_ms / 1000
    assert answer.responses[0].partition_responses[0].error_code == ErrorCode.NONE
    assert 0 < throttle_time < 1.1, "the rest of a second; the response itself is not delayed"
    limited.send(ApiVersionsRequest(), 0)
    assert seconds_until_answered(operator) < throttle_time, "other clients are not throttled"
    limited.receive(ApiVersionsRequest(), 0, ApiVersionsResponse)
    assert time.monotonic() - began >= throttle_time - SLACK_SECONDS


def test_producer_with_acks_0_is_throttled(operator: RawClient, limited: RawClient, topic: str) -> None:
    limit(operator, producer_byte_rate=RATE)
    limited.send(request_builders.produce_request(topic, request_builders.batch(bytes(RATE)), acks=0), 9)
    assert seconds_until_answered(limited) > 0.4


def test_pipelined_requests_are_throttled_one_by_one(operator: RawClient, limited: RawClient, topic: str) -> None:
    limit(operator, producer_byte_rate=RATE)
    request = request_builders.produce_request(topic, request_builders.batch(bytes(RATE // 2)))
    began = time.monotonic()
    for _ in range(4):
        limited.send(request, 9)
    for _ in range(4):
        limited.receive(request, 9, ProduceResponse)
    assert 1.0 - SLACK_SECONDS < time.monotonic() - began < 20.0


@pytest.mark.parametrize("version", [4, 11])
def test_fetch_over_quota_returns_empty_response_and_throttle_time(
    operator: RawClient, limited: RawClient, topic: str, version: int
) -> None:
    request_builders.produce(operator, topic, request_builders.batch(bytes(RATE * 3 // 2)))
    limit(operator, consumer_byte_rate=RATE)
    request = request_builders.fetch_request((topic, 0, 0))
    first = limited.request(request, version, FetchResponse)
    assert first.throttle_time_ms == 0
    assert len(first.responses[0].partitions[0].records or b"") > RATE
    second = limited.request(request, version, FetchResponse)
    assert 0 < second.throttle_time_ms < 1100
    assert (second.error_code, second.responses, second.session_id) == (ErrorCode.NONE, [], 0)
    began = time.monotonic()
    third = limited.request(request, version, FetchResponse)
    assert time.monotonic() - began > second.throttle_time_ms / 1000 - SLACK_SECONDS
    assert third.throttle_time_ms == 0
    assert third.responses


def test_fetch_response_size_is_limited_by_quota(operator: RawClient, limited: RawClient, topic: str) -> None:
    for _ in range(20):
        request_builders.produce(operator, topic, request_builders.batch(bytes(RATE // 10)))
    limit(operator, consumer_byte_rate=RATE)
    answer = limited.request(request_builders.fetch_request((topic, 0, 0)), 11, FetchResponse)
    assert RATE * 0.3 < len(answer.responses[0].partitions[0].records or b"") <= RATE * 0.5


def test_fetch_session_continues_after_throttled_response(operator: RawClient, limited: RawClient, topic: str) -> None:
    request_builders.produce(operator, topic, request_builders.batch(bytes(RATE * 3 // 2)))
    limit(operator, consumer_byte_rate=RATE)
    wanted = (topic, 0, 0)
    first = limited.request(request_builders.fetch_request(wanted, session=(0, 0)), 11, FetchResponse)
    assert first.session_id > 0
    again = limited.request(request_builders.fetch_request(wanted, session=(first.session_id, 1)), 11, FetchResponse)
    assert (again.session_id, again.responses) == (first.session_id, [])
    assert again.throttle_time_ms > 0
    third = limited.request(request_builders.fetch_request(wanted, session=(first.session_id, 2)), 11, FetchResponse)
    assert third.error_code == ErrorCode.NONE
    assert third.responses
    begun = limited.request(request_builders.fetch_request(wanted, session=(0, 0)), 11, FetchResponse)
    assert (begun.session_id, begun.responses) == (0, []), "no session is created with an empty response"


def test_waiting_fetch_checks_quota_again_before_responding(
    own: Broker, operator: RawClient, limited: RawClient, topic: str
) -> None:
    """Other clients with the same quota may have fetched in the meantime."""
    limit(operator, consumer_byte_rate=RATE)
    waiting = request_builders.fetch_request((topic, 0, 0), min_bytes=1, max_wait_ms=10_000)
    limited.send(waiting, 11)
    with RawClient(own.bootstrap) as other:
        other.client_id = "limited"
        full = f"{topic}-full"
        own.create_topic(full)
        request_builders.produce(operator, full, request_builders.batch(bytes(3 * RATE)))
        assert other.request(request_builders.fetch_request((full, 0, 0)), 11, FetchResponse).responses
        request_builders.produce(operator, topic, request_builders.batch(b"x"))
        answer = limited.receive(waiting, 11, FetchResponse)
        assert answer.throttle_time_ms > 0
        assert answer.responses == []


def test_request_percentage_quota_throttles_client(operator: RawClient, limited: RawClient) -> None:
    limit(operator, request_percentage=0.01)
    deadline = time.monotonic() + 20
    throttle_time = 0
    while not throttle_time and time.monotonic() < deadline:
        throttle_time = limited.request(MetadataRequest(topics=None), 9, MetadataResponse).throttle_time_ms
    assert 0 < throttle_time <= 1000
    assert seconds_until_answered(limited) > throttle_time / 1000 - SLACK_SECONDS


def create(client: RawClient, name: str, count: int, version: int) -> tuple[ErrorCode, int]:
    topic = CreatableTopic(name=name, num_partitions=count, replication_factor=1)
    answer = client.request(CreateTopicsRequest(topics=[topic], timeout_ms=10_000), version, CreateTopicsResponse)
    return ErrorCode(answer.topics[0].error_code), answer.throttle_time_ms


def test_mutation_quota_rejects_requests_of_new_clients(operator: RawClient, limited: RawClient, topic: str) -> None:
    limit(operator, controller_mutation_rate=1)
    assert create(limited, f"{topic}-a", 12, 6) == (ErrorCode.NONE, 0), "the burst and one more"
    code, throttle_time = create(limited, f"{topic}-b", 1, 6)
    assert code is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert 0 < throttle_time <= 1000
    deletion = DeleteTopicsRequest(topics=[DeleteTopicState(name=f"{topic}-a")], timeout_ms=10_000)
    assert limited.request(deletion, 6, DeleteTopicsResponse).responses[0].error_code == ErrorCode.NONE
    growth = CreatePartitionsRequest(topics=[CreatePartitionsTopic(name=topic, count=2)], timeout_ms=10_000)
    refused = limited.request(growth, 3, CreatePartitionsResponse)
    assert refused.results[0].error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert refused.throttle_time_ms > 5000, "twelve partitions were deleted"


def test_rejected_topic_creation_does_not_use_quota(operator: RawClient, limited: RawClient, topic: str) -> None:
    limit(operator, controller_mutation_rate=1)
    for name, count in ((f"{topic}-huge", 2**31 - 1), (topic, 1000)):
        code, throttle_time = create(limited, name, count, 6)
        assert code not in (ErrorCode.NONE, ErrorCode.THROTTLING_QUOTA_EXCEEDED)
        assert throttle_time == 0
    assert create(limited, f"{topic}-a", 1, 6) == (ErrorCode.NONE, 0)


def test_mutation_quota_throttles_old_clients_without_error(
    operator: RawClient, limited: RawClient, topic: str
) -> None:
    limit(operator, controller_mutation_rate=1)
    code, throttle_time = create(limited, f"{topic}-a", 13, 5)
    assert code is ErrorCode.NONE
    assert 0 < throttle_time <= 2000
    assert seconds_until_answered(limited) > throttle_time / 1000 - SLACK_SECONDS


def test_anonymous_user_quota_applies_to_unauthenticated_clients(
    operator: RawClient, limited: RawClient, topic: str
) -> None:
    set_quota(operator, ANONYMOUS, producer_byte_rate=RATE)
    answer = limited.request(
        request_builders.produce_request(topic, request_builders.batch(bytes(3 * RATE))), 9, ProduceResponse
    )
    assert answer.throttle_time_ms > 0


def test_node_stops_promptly_while_clients_are_throttled(chronik_broker_factory: BrokerFactory) -> None:
    broker = chronik_broker_factory()
    broker.create_topic("t")
    with RawClient(broker.bootstrap) as client:
        client.client_id = "limited"
        limit(client, producer_byte_rate=100)
        answer = client.request(
            request_builders.produce_request("t", request_builders.batch(bytes(RATE))), 9, ProduceResponse
        )
        assert answer.throttle_time_ms > 100_000
        began = time.monotonic()
        broker.stop()
        assert time.monotonic() - began < 30, "the shutdown does not wait for the throttle time"
        assert client.wait_for_close()


def test_connection_limits_per_ip_address_apply_immediately(own: Broker, operator: RawClient) -> None:
    def set_config(name: str, value: str) -> None:
        assert (
            request_builders.alter_configs(operator, request_builders.BROKER, "", (name, request_builders.SET, value))
            is ErrorCode.NONE
        )

    def is_accepted(address: str) -> bool:
        host, _, port = own.bootstrap.rpartition(":")
        with socket.create_connection((host, int(port)), 10, source_address=(address, 0)) as plain:
            plain.sendall(bytes.fromhex("0000000a0012000000000001ffff"))
            try:
                return plain.recv(4) != b""
            except ConnectionResetError:
                return False

    assert is_accepted("127.0.0.5")
    try:
        set_config("max.connections.per.ip.overrides", "127.0.0.5:0")
        assert not is_accepted("127.0.0.5")
        assert is_accepted("127.0.0.6")
        set_config("max.connections.per.ip.overrides", "")
        assert is_accepted("127.0.0.5")
        set_quota(operator, {"ip": "127.0.0.5"}, connection_creation_rate=1)
        assert [is_accepted("127.0.0.5") for _ in range(11)] == [True] * 10 + [False]
        assert is_accepted("127.0.0.6")
    finally:
        set_quota(operator, {"ip": "127.0.0.5"}, connection_creation_rate=None)
        set_config("max.connections.per.ip.overrides", "")
