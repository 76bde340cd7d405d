from __future__ import annotations

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer

from chronik.testing import Broker, BrokerFailed
from chronik.testing.plugin import BrokerFactory

SECONDS = 30


def transactional(broker: Broker, transactional_id: str = "pay") -> Producer:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": transactional_id})
    producer.init_transactions(SECONDS)
    return producer


@pytest.fixture
def broker(chronik_broker_factory: BrokerFactory) -> Broker:
    broker = chronik_broker_factory()
    broker.create_topic("bills")
    return broker


def producer_in_transaction(broker: Broker) -> Producer:
    producer = transactional(broker)
    producer.begin_transaction()
    producer.produce("bills", b"a bill")
    assert producer.flush(SECONDS) == 0
    return producer


def test_fence_fences_the_producer(broker: Broker) -> None:
    producer = producer_in_transaction(broker)
    broker.fence("pay")
    with pytest.raises(KafkaException) as caught:
        producer.commit_transaction(SECONDS)
    assert caught.value.args[0].code() == KafkaError._FENCED


def test_time_out_aborts_open_transaction(broker: Broker) -> None:
    producer = producer_in_transaction(broker)
    broker.time_out_transaction("pay")
    with pytest.raises(KafkaException) as caught:
        producer.commit_transaction(SECONDS)
    assert caught.value.args[0].code() == KafkaError._FENCED
    with pytest.raises(BrokerFailed, match="cannot time out: INVALID_TXN_STATE"):
        broker.time_out_transaction("pay")
    with pytest.raises(BrokerFailed, match="cannot time out: TRANSACTIONAL_ID_NOT_FOUND"):
        broker.time_out_transaction("nobody")


def test_move_coordinator_makes_producer_find_coordinator_again(broker: Broker) -> None:
    producer = producer_in_transaction(broker)
    broker.move_coordinator(times=2)
    producer.commit_transaction(SECONDS)
    api_names = [request.api for request in broker.last_requests(100)]
    assert api_names.count("EndTxn") == 3
    assert api_names.count("FindCoordinator") > 1
