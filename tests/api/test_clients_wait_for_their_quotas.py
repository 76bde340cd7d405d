"""What a client is told that exceeds a quota, in each API that limits it, and when its next request is answered."""

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
from tests.api import talk
from tests.api.limiting import set_quota
from tests.raw import RawClient

pytestmark = pytest.mark.slow

RATE = 100_000
SLACK_SECONDS = 0.05
ANONYMOUS: dict[str, str | None] = {"user": "ANONYMOUS"}
LIMITED: dict[str, str | None] = {"client_id": "limited"}


@pytest.fixture(scope="module")
def own() -> Iterator[Broker]:
    """Whose clients nobody else minds."""
    with Broker() as broker:
        yield broker


@pytest.fixture
def asker(own: Broker) -> Iterator[RawClient]:
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
def no_quotas_afterwards(asker: RawClient) -> Iterator[None]:
    yield
    keys = ("producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate")
    for entity in (LIMITED, ANONYMOUS):
        set_quota(asker, entity, **dict.fromkeys(keys))


def limit(asker: RawClient, **values: float) -> None:
    set_quota(asker, LIMITED, **values)


def seconds_until_answered(client: RawClient) -> float:
    began = time.monotonic()
    client.ask(ApiVersionsRequest(), 0, ApiVersionsResponse)
    return time.monotonic() - began


@pytest.mark.parametrize("acks", [1, -1])
@pytest.mark.parametrize("version", [3, 9, 12])
def test_a_producer_is_told_to_wait_and_its_next_request_does(
    asker: RawClient, limited: RawClient, topic: str, acks: int, version: int
) -> None:
    limit(asker, producer_byte_rate=RATE)
    request = talk.produce_request(topic, talk.batch(bytes(RATE * 3 // 2)), acks=acks)
    answer = limited.ask(request, version, ProduceResponse)
    began = time.monotonic()
    told = answer.throttle_time_ms / 1000
    assert answer.responses[0].partition_responses[0].error_code == ErrorCode.NONE
    assert 0 < told < 1.1, "it is told what is left of a second: the answer itself does not wait"
    limited.send(ApiVersionsRequest(), 0)
    assert seconds_until_answered(asker) < told, "others do not wait"
    limited.receive(ApiVersionsRequest(), 0, ApiVersionsResponse)
    assert time.monotonic() - began >= told - SLACK_SECONDS


def test_a_producer_that_wants_no_answer_waits_too(asker: RawClient, limited: RawClient, topic: str) -> None:
    limit(asker, producer_byte_rate=RATE)
    limited.send(talk.produce_request(topic, talk.batch(bytes(RATE)), acks=0), 9)
    assert seconds_until_answered(limited) > 0.4


def test_requests_that_were_sent_ahead_wait_one_by_one(asker: RawClient, limited: RawClient, topic: str) -> None:
    limit(asker, producer_byte_rate=RATE)
    request = talk.produce_request(topic, talk.batch(bytes(RATE // 2)))
    began = time.monotonic()
    for _ in range(4):
        limited.send(request, 9)
    for _ in range(4):
        limited.receive(request, 9, ProduceResponse)
    assert 1.0 - SLACK_SECONDS < time.monotonic() - began < 20.0


@pytest.mark.parametrize("version", [4, 11])
def test_a_consumer_gets_nothing_for_a_while(asker: RawClient, limited: RawClient, topic: str, version: int) -> None:
    talk.produce(asker, topic, talk.batch(bytes(RATE * 3 // 2)))
    limit(asker, consumer_byte_rate=RATE)
    request = talk.fetch_request((topic, 0, 0))
    first = limited.ask(request, version, FetchResponse)
    assert first.throttle_time_ms == 0
    assert len(first.responses[0].partitions[0].records or b"") > RATE
    second = limited.ask(request, version, FetchResponse)
    assert 0 < second.throttle_time_ms < 1100
    assert (second.error_code, second.responses, second.session_id) == (ErrorCode.NONE, [], 0)
    began = time.monotonic()
    third = limited.ask(request, version, FetchResponse)
    assert time.monotonic() - began > second.throttle_time_ms / 1000 - SLACK_SECONDS
    assert third.throttle_time_ms == 0
    assert third.responses


def test_an_answer_is_no_larger_than_the_quota_allows_at_once(asker: RawClient, limited: RawClient, topic: str) -> None:
    for _ in range(20):
        talk.produce(asker, topic, talk.batch(bytes(RATE // 10)))
    limit(asker, consumer_byte_rate=RATE)
    answer = limited.ask(talk.fetch_request((topic, 0, 0)), 11, FetchResponse)
    assert RATE * 0.3 < len(answer.responses[0].partitions[0].records or b"") <= RATE * 0.5


def test_a_session_goes_on_after_an_empty_answer(asker: RawClient, limited: RawClient, topic: str) -> None:
    talk.produce(asker, topic, talk.batch(bytes(RATE * 3 // 2)))
    limit(asker, consumer_byte_rate=RATE)
    wanted = (topic, 0, 0)
    first = limited.ask(talk.fetch_request(wanted, session=(0, 0)), 11, FetchResponse)
    assert first.session_id > 0
    again = limited.ask(talk.fetch_request(wanted, session=(first.session_id, 1)), 11, FetchResponse)
    assert (again.session_id, again.responses) == (first.session_id, [])
    assert again.throttle_time_ms > 0
    third = limited.ask(talk.fetch_request(wanted, session=(first.session_id, 2)), 11, FetchResponse)
    assert third.error_code == ErrorCode.NONE
    assert third.responses
    begun = limited.ask(talk.fetch_request(wanted, session=(0, 0)), 11, FetchResponse)
    assert (begun.session_id, begun.responses) == (0, []), "none begins with an empty answer"


def test_a_fetch_that_waited_is_looked_at_again(own: Broker, asker: RawClient, limited: RawClient, topic: str) -> None:
    """Others may have fetched by the same quota meanwhile."""
    limit(asker, consumer_byte_rate=RATE)
    waiting = talk.fetch_request((topic, 0, 0), min_bytes=1, max_wait_ms=10_000)
    limited.send(waiting, 11)
    with RawClient(own.bootstrap) as other:
        other.client_id = "limited"
        full = f"{topic}-full"
        own.create_topic(full)
        talk.produce(asker, full, talk.batch(bytes(3 * RATE)))
        assert other.ask(talk.fetch_request((full, 0, 0)), 11, FetchResponse).responses
        talk.produce(asker, topic, talk.batch(b"x"))
        answer = limited.receive(waiting, 11, FetchResponse)
        assert answer.throttle_time_ms > 0
        assert answer.responses == []


def test_requests_that_take_the_loop_are_waited_for(asker: RawClient, limited: RawClient) -> None:
    limit(asker, request_percentage=0.01)
    deadline = time.monotonic() + 20
    told = 0
    while not told and time.monotonic() < deadline:
        told = limited.ask(MetadataRequest(topics=None), 9, MetadataResponse).throttle_time_ms
    assert 0 < told <= 1000
    assert seconds_until_answered(limited) > told / 1000 - SLACK_SECONDS


def create(client: RawClient, name: str, count: int, version: int) -> tuple[ErrorCode, int]:
    topic = CreatableTopic(name=name, num_partitions=count, replication_factor=1)
    answer = client.ask(CreateTopicsRequest(topics=[topic], timeout_ms=10_000), version, CreateTopicsResponse)
    return ErrorCode(answer.topics[0].error_code), answer.throttle_time_ms


def test_topics_are_refused_to_clients_that_know_the_error(asker: RawClient, limited: RawClient, topic: str) -> None:
    limit(asker, controller_mutation_rate=1)
    assert create(limited, f"{topic}-a", 12, 6) == (ErrorCode.NONE, 0), "what is held and one more"
    code, told = create(limited, f"{topic}-b", 1, 6)
    assert code is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert 0 < told <= 1000
    deletion = DeleteTopicsRequest(topics=[DeleteTopicState(name=f"{topic}-a")], timeout_ms=10_000)
    assert limited.ask(deletion, 6, DeleteTopicsResponse).responses[0].error_code == ErrorCode.NONE
    growth = CreatePartitionsRequest(topics=[CreatePartitionsTopic(name=topic, count=2)], timeout_ms=10_000)
    refused = limited.ask(growth, 3, CreatePartitionsResponse)
    assert refused.results[0].error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert refused.throttle_time_ms > 5000, "twelve partitions were deleted"


def test_a_slip_costs_nothing_of_a_quota(asker: RawClient, limited: RawClient, topic: str) -> None:
    limit(asker, controller_mutation_rate=1)
    for name, count in ((f"{topic}-huge", 2**31 - 1), (topic, 1000)):
        code, told = create(limited, name, count, 6)
        assert code not in (ErrorCode.NONE, ErrorCode.THROTTLING_QUOTA_EXCEEDED)
        assert told == 0
    assert create(limited, f"{topic}-a", 1, 6) == (ErrorCode.NONE, 0)


def test_clients_that_do_not_know_the_error_wait_for_their_topics(
    asker: RawClient, limited: RawClient, topic: str
) -> None:
    limit(asker, controller_mutation_rate=1)
    code, told = create(limited, f"{topic}-a", 13, 5)
    assert code is ErrorCode.NONE
    assert 0 < told <= 2000
    assert seconds_until_answered(limited) > told / 1000 - SLACK_SECONDS


def test_a_quota_of_a_user_holds_for_whoever_does_not_say_who_it_is(
    asker: RawClient, limited: RawClient, topic: str
) -> None:
    set_quota(asker, ANONYMOUS, producer_byte_rate=RATE)
    answer = limited.ask(talk.produce_request(topic, talk.batch(bytes(3 * RATE))), 9, ProduceResponse)
    assert answer.throttle_time_ms > 0


def test_a_node_stops_while_clients_wait(chronik_broker_factory: BrokerFactory) -> None:
    broker = chronik_broker_factory()
    broker.create_topic("t")
    with RawClient(broker.bootstrap) as client:
        client.client_id = "limited"
        limit(client, producer_byte_rate=100)
        answer = client.ask(talk.produce_request("t", talk.batch(bytes(RATE))), 9, ProduceResponse)
        assert answer.throttle_time_ms > 100_000
        began = time.monotonic()
        broker.stop()
        assert time.monotonic() - began < 30, "it does not wait as long as its client has to"
        assert client.is_closed_by_broker()


def test_an_address_has_so_many_connections(own: Broker, asker: RawClient) -> None:
    def set_(name: str, value: str) -> None:
        assert talk.alter(asker, talk.BROKER, "", (name, talk.SET, value)) is ErrorCode.NONE

    def is_let_in(address: str) -> bool:
        host, _, port = own.bootstrap.rpartition(":")
        with socket.create_connection((host, int(port)), 10, source_address=(address, 0)) as plain:
            plain.sendall(bytes.fromhex("0000000a0012000000000001ffff"))
            try:
                return plain.recv(4) != b""
            except ConnectionResetError:
                return False

    assert is_let_in("127.0.0.5")
    try:
        set_("max.connections.per.ip.overrides", "127.0.0.5:0")
        assert not is_let_in("127.0.0.5")
        assert is_let_in("127.0.0.6")
        set_("max.connections.per.ip.overrides", "")
        assert is_let_in("127.0.0.5")
        set_quota(asker, {"ip": "127.0.0.5"}, connection_creation_rate=1)
        assert [is_let_in("127.0.0.5") for _ in range(11)] == [True] * 10 + [False]
        assert is_let_in("127.0.0.6")
    finally:
        set_quota(asker, {"ip": "127.0.0.5"}, connection_creation_rate=None)
        set_("max.connections.per.ip.overrides", "")
