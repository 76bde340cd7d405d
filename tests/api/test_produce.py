"""Produce: idempotent producers, acknowledgements, timeouts and deleted topics."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import cast

import pytest

from chronik.api import produce
from chronik.api.shared.context import RequestContext, Services
from chronik.broker.requests.decompression import BatchDecompressor
from chronik.broker.requests.produced_records import ProduceRules, ValidatedRecords
from chronik.broker.requests.rejected_batches import RejectedBatches
from chronik.broker.uncommitted import NodeUncommittedBytes, UncommittedBytes
from chronik.clock import ManualClock
from chronik.limits import INSPECTED_ON_LOOP_BYTES_MAX, PARTITION_UNCOMMITTED_BYTES_MAX
from chronik.log.partition_log import AppendInfo
from chronik.log.producer_state import ProducerStateManager
from chronik.protocol.batch import parse_header
from chronik.protocol.errors import ErrorCode, KafkaError
from chronik.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from chronik.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from chronik.protocol.records import Record, encode_batch
from chronik.request_reply import ConnectedClient
from chronik.testing import Broker
from tests.api import request_builders
from tests.raw import RawClient


def sequenced(producer: int, sequence: int, epoch: int = 0) -> bytes:
    records = [Record(0, -1, b"k", b"%d" % sequence)]
    return encode_batch(records, producer_id=producer, producer_epoch=epoch, base_sequence=sequence)


def new_producer(client: RawClient) -> int:
    response = client.request(InitProducerIdRequest(transactional_id=None), 4, InitProducerIdResponse)
    assert (response.error_code, response.producer_epoch) == (ErrorCode.NONE, 0)
    return response.producer_id


def test_duplicate_batch_returns_original_offset(client: RawClient, chronik_topic: str) -> None:
    producer = new_producer(client)
    for sequence in range(3):
        assert request_builders.produce(client, chronik_topic, sequenced(producer, sequence)).base_offset == sequence
    retried = request_builders.produce(client, chronik_topic, sequenced(producer, 1))
    assert (retried.error_code, retried.base_offset) == (ErrorCode.NONE, 1)
    assert request_builders.values(request_builders.fetch(client, chronik_topic, 0)) == [b"0", b"1", b"2"]


def test_sequence_gap_returns_out_of_order_sequence_number(client: RawClient, chronik_topic: str) -> None:
    producer = new_producer(client)
    request_builders.produce(client, chronik_topic, sequenced(producer, 0))
    gap = request_builders.produce(client, chronik_topic, sequenced(producer, 2))
    assert gap.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_batches_after_rejected_batch_get_the_same_error(client: RawClient) -> None:
    """This happens if a node becomes leader while several batches are in flight."""
    producer = new_producer(client)
    topic = f"not-yet-{producer}"
    assert (
        request_builders.produce(client, topic, sequenced(producer, 0)).error_code
        == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    )
    request_builders.describe_topic(client, topic, create=True)
    assert (
        request_builders.produce(client, topic, sequenced(producer, 1)).error_code
        == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    )
    for sequence in range(3):
        assert request_builders.produce(client, topic, sequenced(producer, sequence)).base_offset == sequence
    assert request_builders.values(request_builders.fetch(client, topic, 0)) == [b"0", b"1", b"2"]


def test_fenced_node_rejects_and_remembers_batch() -> None:
    refused = RejectedBatches(ManualClock())
    services = cast(Services, SimpleNamespace(authorizer=None, is_fenced=lambda: True, rejected_batches=refused))
    request = request_builders.produce_request("topic", sequenced(7, 0))
    response = produce.handle(services, request, RequestContext(12, "client", ConnectedClient("host", 1, 1))).response
    assert isinstance(response, ProduceResponse)
    answer = response.responses[0].partition_responses[0]
    assert answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert answer.current_leader.leader_id == -1, "a fenced node may not know the leader"
    assert not response.node_endpoints
    assert len(refused) == 1


def test_newer_producer_epoch_fences_older_and_starts_at_zero(client: RawClient, chronik_topic: str) -> None:
    producer = new_producer(client)
    assert request_builders.produce(client, chronik_topic, sequenced(producer, 0, epoch=1)).error_code == ErrorCode.NONE
    older = request_builders.produce(client, chronik_topic, sequenced(producer, 1, epoch=0))
    assert older.error_code == ErrorCode.INVALID_PRODUCER_EPOCH
    wrong = request_builders.produce(client, chronik_topic, sequenced(producer, 1, epoch=2))
    assert wrong.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert request_builders.produce(client, chronik_topic, sequenced(producer, 0, epoch=2)).base_offset == 1


def test_acks_1_ignores_request_timeout(client: RawClient, chronik_topic: str) -> None:
    for number in range(20):
        request = request_builders.produce_request(chronik_topic, request_builders.batch(b"v"), acks=1, timeout_ms=0)
        answer = client.request(request, 9, ProduceResponse).responses[0].partition_responses[0]
        assert (answer.error_code, answer.base_offset) == (ErrorCode.NONE, number)


@pytest.mark.chronik_topic(configs={"cleanup.policy": "compact"})
def test_rejected_batch_returns_indexes_of_invalid_records(client: RawClient, chronik_topic: str) -> None:
    batch = encode_batch([Record(n, -1, None if n in (1, 3) else b"k", b"v") for n in range(5)])
    refused = request_builders.produce(client, chronik_topic, batch)
    assert refused.error_code == ErrorCode.INVALID_RECORD
    assert [error.batch_index for error in refused.record_errors] == [1, 3]
    assert request_builders.values(request_builders.fetch(client, chronik_topic, 0)) == []


def test_produce_to_internal_topic_is_rejected(client: RawClient) -> None:
    topic = request_builders.describe_topic(client, "__consumer_offsets", create=True)
    assert topic.is_internal
    assert len(topic.partitions) == 50
    answer = request_builders.produce(client, "__consumer_offsets", request_builders.batch(b"v"))
    assert answer.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


class FakeReplica:
    """A replica whose appends have a given outcome; None means that they stay undecided."""

    topic_id, topic_name, leader_epoch, has_enough_replicas = b"id", "topic", 3, True
    produce_rules = ProduceRules(max_message_bytes=1 << 20)
    log = SimpleNamespace(producers=ProducerStateManager(), log_start_offset=0)
    has_followers = True

    def __init__(self, index: int, outcome: ErrorCode | None) -> None:
        self.uncommitted = UncommittedBytes(NodeUncommittedBytes())
        self.index = index
        self.outcome = outcome
        self.commit_waiters = self.durability_waiters = SimpleNamespace(add=self._add)

    def append(self, incoming: ValidatedRecords) -> AppendInfo:
        return AppendInfo(7, 7, -1, 0)

    def is_committed(self, offset: int) -> bool:
        return False

    is_durable = is_committed

    def _add(self, offset: int, on_outcome: Callable[[ErrorCode], None]) -> None:
        if self.outcome is not None:
            asyncio.get_running_loop().call_soon(on_outcome, self.outcome)


def services_of(replicas: list[FakeReplica], refused: RejectedBatches) -> Services:
    topic = SimpleNamespace(internal=False, partitions=[], has_partition=lambda _: False)
    image = SimpleNamespace(brokers={}, topics={}, topics_by_id={b"id": topic})
    found = SimpleNamespace(
        get_leader=lambda _, index: replicas[index], get_leader_by_id=lambda _, index: replicas[index]
    )
    services = SimpleNamespace(
        authorizer=None,
        image=image,
        clock=ManualClock(),
        is_fenced=lambda: False,
        rejected_batches=refused,
        replicas=found,
    )
    return cast(Services, services)


def request_for(count: int, records: bytes, acks: int, timeout_ms: int) -> ProduceRequest:
    data = [PartitionProduceData(index=index, records=memoryview(bytearray(records))) for index in range(count)]
    topic = TopicProduceData(name="topic", topic_id=b"id", partition_data=data)
    return ProduceRequest(acks=acks, timeout_ms=timeout_ms, topic_data=[topic])


async def answers_to(services: Services, request: ProduceRequest, version: int) -> list[tuple[int, int]]:
    reply = produce.handle(services, request, RequestContext(version, "client", ConnectedClient("host", 1, 1)))
    assert reply.is_pipelined
    async with asyncio.timeout(10):
        response = await reply
    assert isinstance(response, ProduceResponse)
    return [(each.error_code, each.base_offset) for each in response.responses[0].partition_responses]


@pytest.mark.parametrize(("version", "key"), [(9, "topic"), (13, b"id")])
def test_batch_after_one_lost_by_its_leader_gets_the_same_error(version: int, key: str | bytes) -> None:
    """The batch was appended, failed with NOT_LEADER and was truncated: later batches must not be a sequence gap."""
    refused = RejectedBatches(ManualClock())
    services = services_of([FakeReplica(0, ErrorCode.NOT_LEADER_OR_FOLLOWER)], refused)
    answers = asyncio.run(answers_to(services, request_for(1, sequenced(7, 3), -1, 10_000), version))
    assert answers == [(ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)]
    with pytest.raises(KafkaError) as caught:
        refused.check(key, 0, parse_header(sequenced(7, 4)), ProducerStateManager())
    assert caught.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    refused.check(key, 0, parse_header(sequenced(7, 3)), ProducerStateManager())


@pytest.mark.parametrize("acks", [1, -1])
def test_too_many_uncommitted_bytes_block_the_connection(acks: int) -> None:
    replicas = [FakeReplica(0, ErrorCode.NONE), FakeReplica(1, ErrorCode.NONE)]
    services = services_of(replicas, RejectedBatches(ManualClock()))
    context = RequestContext(9, "client", ConnectedClient("host", 1, 1))

    async def scenario() -> None:
        replicas[1].uncommitted.append(1, PARTITION_UNCOMMITTED_BYTES_MAX)
        assert produce.handle(services, request_for(2, sequenced(7, 0), acks, 10_000), context).is_pipelined
        replicas[1].uncommitted.append(2, 1)
        blocking = produce.handle(services, request_for(2, sequenced(7, 1), acks, 10_000), context)
        assert not blocking.is_pipelined
        async with asyncio.timeout(10):
            response = await blocking
        assert isinstance(response, ProduceResponse)
        answers = response.responses[0].partition_responses
        assert [each.error_code for each in answers] == [ErrorCode.NONE, ErrorCode.NONE]
        other = produce.handle(services, request_for(1, sequenced(7, 2), acks, 10_000), context)
        assert other.is_pipelined, "the other partition is within its limit"

    asyncio.run(scenario())


class OutOfOrderReplica:
    """A replica that lacks the preceding batches."""

    topic_id, topic_name, index = b"id", "topic", 0
    leader_epoch, has_enough_replicas = 3, True
    produce_rules = ProduceRules(max_message_bytes=1 << 20)
    log = SimpleNamespace(producers=ProducerStateManager())

    def append(self, incoming: ValidatedRecords) -> None:
        raise KafkaError(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)


@pytest.mark.parametrize("is_confirmed", [True, False])
@pytest.mark.parametrize("value_bytes", [1, 2 * INSPECTED_ON_LOOP_BYTES_MAX], ids=["small", "large"])
def test_sequence_gap_is_reported_only_by_confirmed_leader(
    is_confirmed: bool, value_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A large batch of a compacted topic is validated in a thread first."""
    monkeypatch.setattr(OutOfOrderReplica, "produce_rules", ProduceRules(1 << 26, is_compacted=True))
    records = [Record(0, -1, b"k", bytes(value_bytes))]
    batch = encode_batch(records, producer_id=7, producer_epoch=0, base_sequence=5)
    confirmations = []

    async def read_barrier(seconds: float) -> None:
        confirmations.append(seconds)
        if not is_confirmed:
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT)

    refused, replica = RejectedBatches(ManualClock()), OutOfOrderReplica()
    image = SimpleNamespace(brokers={}, topics={}, topics_by_id={b"id": SimpleNamespace(internal=False)})
    services = SimpleNamespace(
        authorizer=None,
        image=image,
        clock=ManualClock(),
        is_fenced=lambda: False,
        rejected_batches=refused,
        replicas=SimpleNamespace(get_leader=lambda *_: replica),
        store=SimpleNamespace(is_shared=True, read_barrier=read_barrier),
        decompressor=BatchDecompressor(),
    )

    async def scenario() -> int:
        request = request_builders.produce_request("topic", batch)
        reply = produce.handle(
            cast(Services, services), request, RequestContext(9, "client", ConnectedClient("host", 1, 1))
        )
        assert not reply.is_pipelined, "the connection's next request must wait"
        response = await reply
        assert response is not None
        return response.responses[0].partition_responses[0].error_code

    expected = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER if is_confirmed else ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert asyncio.run(scenario()) == expected
    assert len(confirmations) == 1
    assert len(refused) == (0 if is_confirmed else 1)


@pytest.mark.parametrize(
    ("version", "deleted"), [(9, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), (13, ErrorCode.UNKNOWN_TOPIC_ID)]
)
@pytest.mark.parametrize("acks", [1, -1])
def test_each_partition_has_its_own_acknowledgement_result(
    version: int, deleted: ErrorCode, acks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(produce, "TIMEOUT_SECONDS_MAX", 0.01)
    outcomes = [
        ErrorCode.NONE,
        None,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    ]
    replicas = [FakeReplica(index, outcome) for index, outcome in enumerate(outcomes)]
    services = services_of(replicas, RejectedBatches(ManualClock()))
    request = request_for(len(replicas), sequenced(7, 0), acks, 10)
    assert asyncio.run(answers_to(services, request, version)) == [
        (ErrorCode.NONE, 7),
        (ErrorCode.REQUEST_TIMED_OUT, -1),
        (deleted, -1),
        (ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, -1),
    ]


def test_failed_produce_with_acks_0_closes_connection(chronik_broker: Broker, chronik_topic: str) -> None:
    chronik_broker.fail("Produce", "NOT_LEADER_OR_FOLLOWER")
    with RawClient(chronik_broker.bootstrap) as client:
        client.send(request_builders.produce_request(chronik_topic, request_builders.batch(b"v"), acks=0), 9)
        assert client.wait_for_close()
