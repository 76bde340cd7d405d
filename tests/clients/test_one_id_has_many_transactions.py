"""One transactional id, transaction after transaction: also beyond the epochs that there are, 32,767 for a producer id,
of which clients of transactions v2 take one for each."""

from __future__ import annotations

import pytest

from tests.long import count

from .running import Clients, unique
from .stories import READ_COMMITTED, READ_UNCOMMITTED, TIMEOUT_MS

TRANSACTIONS = count(300, 40_000)
AT_A_TIME = 100
"""Of one command, which has an answer within two minutes on however slow a machine."""


@pytest.mark.parametrize("name", ["java-4", "confluent"])
def test_every_transaction_of_an_id_goes_through(clients: Clients, name: str) -> None:
    client, reader = clients.get(name), clients.get("confluent")
    topic = clients.create_topic(unique("many"), 1)
    producer = client.open_producer(unique("many"), TIMEOUT_MS)
    for first in range(0, TRANSACTIONS, AT_A_TIME):
        producer.commit_many(topic, first, AT_A_TIME)
    producer.close()
    for isolation in (READ_COMMITTED, READ_UNCOMMITTED):
        received, problem = reader.consume({topic: TRANSACTIONS}, None, isolation=isolation)
        assert problem is None
        assert [record.value for record in received] == [str(number).encode() for number in range(TRANSACTIONS)]
