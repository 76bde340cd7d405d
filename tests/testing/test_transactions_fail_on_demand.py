from __future__ import annotations

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer

from chronik.testing import Broker, BrokerFailed

SECONDS = 30


def transactional(chronik_broker: Broker, transactional_id: str = "pay") -> Producer:
    producer = Producer({"bootstrap.servers": chronik_broker.bootstrap, "transactional.id": transactional_id})
    producer.init_transactions(SECONDS)
    return producer


def begun(chronik_broker: Broker) -> Producer:
    chronik_broker.create_topic("bills")
    producer = transactional(chronik_broker)
    producer.begin_transaction()
    producer.produce("bills", b"a bill")
    assert producer.flush(SECONDS) == 0
    return producer


def test_a_producer_is_fenced_as_by_a_second_one(chronik_broker: Broker) -> None:
    producer = begun(chronik_broker)
    chronik_broker.fence("pay")
    with pytest.raises(KafkaException) as caught:
        producer.commit_transaction(SECONDS)
    assert caught.value.args[0].code() == KafkaError._FENCED


def test_a_transaction_takes_too_long_at_once(chronik_broker: Broker) -> None:
    producer = begun(chronik_broker)
    chronik_broker.time_out("pay")
    with pytest.raises(KafkaException) as caught:
        producer.commit_transaction(SECONDS)
    assert caught.value.args[0].code() == KafkaError._FENCED
    with pytest.raises(BrokerFailed, match="cannot time out: INVALID_TXN_STATE"):
        chronik_broker.time_out("pay")
    with pytest.raises(BrokerFailed, match="cannot time out: TRANSACTIONAL_ID_NOT_FOUND"):
        chronik_broker.time_out("nobody")


def test_a_coordinator_that_has_moved_is_found_again(chronik_broker: Broker) -> None:
    producer = begun(chronik_broker)
    chronik_broker.move_coordinator(times=2)
    producer.commit_transaction(SECONDS)
    asked = [request.api for request in chronik_broker.last_requests(100)]
    assert asked.count("EndTxn") == 3
    assert asked.count("FindCoordinator") > 1
