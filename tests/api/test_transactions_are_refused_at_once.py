"""There are no transactions here: whoever asks for one is told so by an error that clients do not retry."""

from __future__ import annotations

import confluent_kafka
import pytest

from chronik.protocol.errors import ErrorCode
from chronik.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from chronik.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from chronik.testing import Broker
from tests.raw import RawClient

TRANSACTION = 1
REFUSED = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
PATIENCE_SECONDS = 60


@pytest.mark.parametrize("version", [1, 3])
def test_there_is_no_coordinator_for_a_transaction(client: RawClient, version: int) -> None:
    request = FindCoordinatorRequest(key="t", key_type=TRANSACTION)
    response = client.ask(request, version, FindCoordinatorResponse)
    assert (response.error_code, response.node_id) == (REFUSED, -1)
    assert "no transactions" in (response.error_message or "")


@pytest.mark.parametrize("version", [4, 6])
def test_there_is_no_coordinator_for_one_of_many_transactions(client: RawClient, version: int) -> None:
    request = FindCoordinatorRequest(coordinator_keys=["t", "u"], key_type=TRANSACTION)
    response = client.ask(request, version, FindCoordinatorResponse)
    assert [(each.key, each.error_code) for each in response.coordinators] == [("t", REFUSED), ("u", REFUSED)]


@pytest.mark.parametrize("version", [0, 5])
def test_a_transactional_id_gets_no_producer_id(client: RawClient, version: int) -> None:
    request = InitProducerIdRequest(transactional_id="t", transaction_timeout_ms=1000)
    response = client.ask(request, version, InitProducerIdResponse)
    assert (response.error_code, response.producer_id) == (REFUSED, -1)


def test_a_client_gives_up_instead_of_looking_for_a_coordinator_again_and_again(chronik_broker: Broker) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": chronik_broker.bootstrap, "transactional.id": "t"})
    with pytest.raises(confluent_kafka.KafkaException) as caught:
        producer.init_transactions(PATIENCE_SECONDS)
    error = caught.value.args[0]
    assert (error.code(), error.fatal()) == (REFUSED, True)
    assert "no transactions" in error.str()
