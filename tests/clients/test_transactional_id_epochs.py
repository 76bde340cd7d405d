"""Many transactions of one transactional id, beyond the 32,767 epochs of a producer id (v2 use one each)."""

from __future__ import annotations

import pytest

from tests.run_size import sized

from .client_process import ClientPool, unique_name
from .transaction_scenario import READ_COMMITTED, READ_UNCOMMITTED, TIMEOUT_MS

TRANSACTIONS = sized(300, 40_000)
TRANSACTIONS_PER_COMMAND = 100
"""Transactions per command, few enough for a response within two minutes on a slow machine."""


@pytest.mark.parametrize("name", ["java-4", "confluent"])
def test_transactional_id_commits_more_transactions_than_epochs(clients: ClientPool, name: str) -> None:
    client, reader = clients.get(name), clients.get("confluent")
    topic = clients.create_topic(unique_name("many"), 1)
    producer = client.open_producer(unique_name("many"), TIMEOUT_MS)
    for first in range(0, TRANSACTIONS, TRANSACTIONS_PER_COMMAND):
        producer.commit_many(topic, first, TRANSACTIONS_PER_COMMAND)
    producer.close()
    for isolation in (READ_COMMITTED, READ_UNCOMMITTED):
        received, problem = reader.consume({topic: TRANSACTIONS}, None, isolation=isolation)
        assert problem is None
        assert [record.value for record in received] == [str(number).encode() for number in range(TRANSACTIONS)]
