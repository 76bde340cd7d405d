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


def begun(broker: Broker) -> Producer:
    producer = transactional(broker)
    producer.begin_transaction()
    producer.produce("bills", b"a bill")
    assert producer.flush(SECONDS) == 0
    return producer


def test_a_producer_is_fenced_as_by_a_second_one(broker: Broker) -> None:
    producer = begun(broker)
    broker.fence("pay")
    with pytest.raises(KafkaException) as caught:
        producer.commit_transaction(SECONDS)
    assert caught.value.args[0].code() == KafkaError._FENCED


def test_a_transaction_takes_too_long_at_once(broker: Broker) -> None:
    producer = begun(broker)
    broker.time_out("pay")
    with pytest.raises(KafkaException) as caught:
        producer.commit_transaction(SECONDS)
    assert caught.value.args[0].code() == KafkaError._FENCED
    with pytest.raises(BrokerFailed, match="cannot time out: INVALID_TXN_STATE"):
        broker.time_out("pay")
    with pytest.raises(BrokerFailed, match="cannot time out: TRANSACTIONAL_ID_NOT_FOUND"):
        broker.time_out("nobody")


def test_a_coordinator_that_has_moved_is_found_again(broker: Broker) -> None:
    producer = begun(broker)
    broker.move_coordinator(times=2)
    producer.commit_transaction(SECONDS)
    asked = [request.api for request in broker.last_requests(100)]
    assert asked.count("EndTxn") == 3
    assert asked.count("FindCoordinator") > 1
