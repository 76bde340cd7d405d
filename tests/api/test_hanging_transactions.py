"""KIP-890: a partition rejects records of a transaction that its coordinator would not end there."""

from __future__ import annotations

import itertools

import pytest

from chronik.protocol.errors import ErrorCode
from chronik.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from chronik.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from chronik.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from chronik.protocol.messages.produce import ProduceRequest, ProduceResponse
from chronik.protocol.records import Record, encode_batch
from chronik.testing import Broker
from tests.api import request_builders
from tests.chaos.clients import wait_for
from tests.raw import RawClient

OK = ErrorCode.NONE
V1, V1_NEWER, V2 = 9, 11, 12
"""Produce versions of clients that add partitions themselves (V1), and of clients that rely on the broker (V2)."""

_numbers = itertools.count()


class TransactionalProducer:
    """A transactional producer that is controlled by the test and tracks its sequence numbers."""

    def __init__(self, client: RawClient, topic: str) -> None:
        self.client = client
        self.topic = topic
        self.id = f"tx-{topic}"
        request = InitProducerIdRequest(transactional_id=self.id, transaction_timeout_ms=60_000)
        given = client.request(request, 4, InitProducerIdResponse)
        assert given.error_code == OK
        self.producer_id, self.epoch = given.producer_id, given.producer_epoch
        self.sequences: dict[int, int] = {}

    def add(self, *partitions: int) -> ErrorCode:
        topics = [AddPartitionsToTxnTopic(name=self.topic, partitions=list(partitions))]
        request = AddPartitionsToTxnRequest(
            transactional_id=self.id, producer_id=self.producer_id, producer_epoch=self.epoch, topics=topics
        )
        (result,) = self.client.request(request, 3, AddPartitionsToTxnResponse).results_by_topic
        (code,) = {each.error_code for each in result.results_by_partition}
        return ErrorCode(code)

    def write(
        self, version: int, partition: int = 0, *, epoch: int | None = None, is_duplicate: bool = False
    ) -> ErrorCode:
        sequence = self.sequences.get(partition, 0) - is_duplicate
        request = self.record(partition, sequence, self.epoch if epoch is None else epoch)
        answer = self.client.request(request, version, ProduceResponse).responses[0].partition_responses[0]
        if answer.error_code == OK:
            self.sequences[partition] = sequence + 1
        return ErrorCode(answer.error_code)

    def record(self, partition: int, sequence: int, epoch: int) -> ProduceRequest:
        records = encode_batch(
            [Record(0, 1, None, b"value")],
            producer_id=self.producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
            transactional=True,
        )
        request = request_builders.produce_request(self.topic, records, partition)
        request.transactional_id = self.id
        return request

    def end(self, *, commit: bool = True, version: int = 4) -> ErrorCode:
        request = EndTxnRequest(
            transactional_id=self.id, producer_id=self.producer_id, producer_epoch=self.epoch, committed=commit
        )
        answer = self.client.request(request, version, EndTxnResponse)
        if version >= 5 and answer.error_code == OK:
            self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
            self.sequences.clear()
        return ErrorCode(answer.error_code)


@pytest.fixture
def producer(chronik_broker: Broker, client: RawClient) -> TransactionalProducer:
    topic = f"hanging-{next(_numbers)}"
    chronik_broker.create_topic(topic, partitions=2)
    return TransactionalProducer(client, topic)


def test_batch_with_producer_id_of_another_transactional_id_is_rejected(chronik_broker: Broker) -> None:
    """WRITE is authorized for the request's transactional id, so it must not cover the producer id of another."""
    topics = [f"owned-{next(_numbers)}", f"other-{next(_numbers)}"]
    for topic in topics:
        chronik_broker.create_topic(topic)
    with RawClient(chronik_broker.bootstrap) as client:
        owner, other = (TransactionalProducer(client, topic) for topic in topics)
        assert owner.add(0) == OK
        assert owner.write(V1) == OK
        request = owner.record(0, 1, owner.epoch)
        request.transactional_id = other.id
        answer = client.request(request, V1, ProduceResponse).responses[0].partition_responses[0]
        assert answer.error_code == ErrorCode.INVALID_PRODUCER_ID_MAPPING
        assert owner.write(V1) == OK


@pytest.mark.parametrize(
    ("version", "refusal"), [(V1, ErrorCode.INVALID_TXN_STATE), (V1_NEWER, ErrorCode.TRANSACTION_ABORTABLE)]
)
def test_record_outside_an_open_transaction_is_rejected(
    producer: TransactionalProducer, version: int, refusal: ErrorCode
) -> None:
    assert producer.write(version) is refusal
    assert producer.add(0) is OK
    assert producer.write(version) is OK
    assert producer.write(version, 1) is refusal, "the partition is not part of the transaction"
    assert producer.end() is OK
    # Until the marker is written, the partition's transaction is open, and a record would be part of it, as in Kafka.
    assert producer.add(1) is OK, "after the markers of the first transaction are written"
    assert producer.write(version) is refusal
    assert producer.write(version, 1) is OK


def test_duplicate_batch_is_acknowledged_until_transaction_end(producer: TransactionalProducer) -> None:
    producer.add(0)
    assert producer.write(V1) is OK
    assert producer.write(V1, is_duplicate=True) is OK
    producer.end()
    # EndTxn returns when the decision is stored, before the markers are.
    assert wait_for(lambda: producer.add(0) is not ErrorCode.CONCURRENT_TRANSACTIONS, 60)
    assert producer.write(V1, is_duplicate=True) is ErrorCode.UNKNOWN_PRODUCER_ID


def test_records_of_fenced_producer_are_rejected(producer: TransactionalProducer) -> None:
    producer.add(0, 1)
    assert producer.write(V1) is OK
    second = TransactionalProducer(producer.client, producer.topic)
    assert (second.producer_id, second.epoch) == (producer.producer_id, producer.epoch + 2)
    for partition in (0, 1):
        assert producer.write(V1_NEWER, partition) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert producer.end() is ErrorCode.PRODUCER_FENCED
    assert second.add(0) is OK
    assert second.write(V1) is OK


def test_v2_produce_adds_partition_to_transaction(producer: TransactionalProducer) -> None:
    for _ in range(3):
        epoch = producer.epoch
        for partition in (0, 1, 0):
            assert producer.write(V2, partition) is OK
        assert producer.end(version=5) is OK
        assert producer.epoch == epoch + 1


def test_v2_late_record_is_not_added_to_next_transaction(producer: TransactionalProducer) -> None:
    assert producer.write(V2) is OK
    late = producer.epoch
    producer.end(version=5)
    assert producer.write(V2, 1) is OK
    for partition in (0, 1):
        assert producer.write(V2, partition, epoch=late) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert producer.end(version=5) is OK


def test_v2_first_sequence_of_an_epoch_must_be_zero(producer: TransactionalProducer) -> None:
    producer.write(V2)
    producer.end(version=5)
    producer.sequences[0] = 5
    assert producer.write(V2) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    producer.sequences[0] = 0
    assert producer.write(V2) is OK


def test_non_transactional_record_within_transaction_is_rejected(producer: TransactionalProducer) -> None:
    producer.add(0)
    producer.write(V1)
    records = encode_batch(
        [Record(0, 1, None, b"v")], producer_id=producer.producer_id, producer_epoch=producer.epoch, base_sequence=1
    )
    answer = request_builders.produce(producer.client, producer.topic, records)
    assert answer.error_code == ErrorCode.INVALID_TXN_STATE
