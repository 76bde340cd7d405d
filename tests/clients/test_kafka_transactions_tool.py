"""Kafka's kafka-transactions tool: list, describe, find hanging and abort transactions."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import zip_longest

import pytest

from .client_process import ClientPool, TransactionalProducer, unique_name, wait_for
from .drivers.wire import Record
from .kafka_tools import ToolFailed, run_tool
from .transaction_scenario import FENCED, READ_COMMITTED, assert_rejected

TOOL = "kafka-transactions"
TIMEOUT_MS = 600_000
"""Long, because starting the tool's JVM may take minutes on a machine with other load."""


@contextmanager
def open_transaction(clients: ClientPool, transactional_id: str, topic: str) -> Iterator[TransactionalProducer]:
    """Open a transaction with one record in partition 0."""
    producer = clients.get("confluent").open_producer(transactional_id, TIMEOUT_MS)
    producer.begin()
    producer.send(topic, [Record(b"key", b"value", partition=0)])
    yield producer
    producer.close()


def run_and_parse_table(bootstrap: str, *arguments: str) -> list[dict[str, str]]:
    """Run the tool and return its table as dicts. The last cell may be empty."""
    head, *lines = run_tool(TOOL, bootstrap, *arguments).strip().splitlines()
    return [dict(zip_longest(head.split(), line.split(), fillvalue="")) for line in lines]


def describe_transaction(bootstrap: str, transactional_id: str) -> dict[str, str]:
    (described,) = run_and_parse_table(bootstrap, "describe", "--transactional-id", transactional_id)
    return described


def test_list_and_describe_show_open_transaction_until_commit(clients: ClientPool, bootstrap: str) -> None:
    topic, transactional_id = clients.create_topic(unique_name("listed"), 1), unique_name("listed")
    with open_transaction(clients, transactional_id, topic) as producer:
        (listed,) = (
            row for row in run_and_parse_table(bootstrap, "list") if row["TransactionalId"] == transactional_id
        )
        described = describe_transaction(bootstrap, transactional_id)
        assert listed["TransactionState"] == described["TransactionState"] == "Ongoing"
        assert listed["ProducerId"] == described["ProducerId"]
        assert listed["Coordinator"] == described["CoordinatorId"]
        assert described["TransactionTimeoutMs"] == str(TIMEOUT_MS)
        assert described["TopicPartitions"] == f"{topic}-0"
        assert 0 <= int(described["TransactionDurationMs"]) < TIMEOUT_MS
        producer.commit()
        wait_for(
            "the commit",
            lambda: describe_transaction(bootstrap, transactional_id)["TransactionState"] == "CompleteCommit",
        )


def test_describe_of_unknown_transactional_id_fails(bootstrap: str) -> None:
    with pytest.raises(ToolFailed) as raised:
        run_tool(TOOL, bootstrap, "describe", "--transactional-id", unique_name("nobody"))
    assert "failed because the ID could not be found" in str(raised.value)


def test_describe_producers_shows_open_transaction(clients: ClientPool, bootstrap: str) -> None:
    topic, transactional_id = clients.create_topic(unique_name("written"), 1), unique_name("written")
    clients.get("confluent").produce(topic, [Record(b"key", b"plain", partition=0)])
    with open_transaction(clients, transactional_id, topic) as producer:
        (row,) = run_and_parse_table(bootstrap, "describe-producers", "--topic", topic, "--partition", "0")
        described = describe_transaction(bootstrap, transactional_id)
        assert (row["ProducerId"], row["ProducerEpoch"]) == (described["ProducerId"], described["ProducerEpoch"])
        assert (row["LastSequence"], row["CurrentTransactionStartOffset"]) == ("0", "1")
        producer.abort()

        def start() -> str:
            (row,) = run_and_parse_table(bootstrap, "describe-producers", "--topic", topic, "--partition", "0")
            return row["CurrentTransactionStartOffset"]

        wait_for("the end of the transaction", lambda: start() == "None")


def test_find_hanging_ignores_transaction_known_to_coordinator(clients: ClientPool, bootstrap: str) -> None:
    topic = clients.create_topic(unique_name("sought"), 1)
    with open_transaction(clients, unique_name("sought"), topic) as producer:
        (broker,) = clients.get("confluent").admin("describe_cluster")["nodes"]
        wanted = ("--broker-id", str(broker["id"]), "--max-transaction-timeout", "0")
        assert run_and_parse_table(bootstrap, "find-hanging", *wanted) == []
        producer.commit()


def test_force_terminate_fences_producer(clients: ClientPool, bootstrap: str) -> None:
    topic, transactional_id = clients.create_topic(unique_name("ended"), 1), unique_name("ended")
    with open_transaction(clients, transactional_id, topic) as producer:
        run_tool(TOOL, bootstrap, "forceTerminateTransaction", "--transactionalId", transactional_id)
        assert_rejected(producer.commit, FENCED)
    assert describe_transaction(bootstrap, transactional_id)["TransactionState"] in ("CompleteAbort", "Empty")


def test_abort_in_one_partition_rejects_known_transaction(clients: ClientPool, bootstrap: str) -> None:
    """Kafka would abort it there, and half of the transaction could be committed."""
    topic, transactional_id = clients.create_topic(unique_name("kept"), 1), unique_name("kept")
    with open_transaction(clients, transactional_id, topic) as producer:
        where = ("--topic", topic, "--partition", "0", "--start-offset", "0")
        with pytest.raises(ToolFailed):
            run_tool(TOOL, bootstrap, "abort", *where)
        producer.commit()
    received, problem = clients.get("confluent").consume({topic: 1}, None, isolation=READ_COMMITTED)
    assert problem is None
    assert [record.value for record in received] == [b"value"]


def test_abort_fails_without_open_transaction_at_offset(clients: ClientPool, bootstrap: str) -> None:
    topic = clients.create_topic(unique_name("closed"), 1)
    with open_transaction(clients, unique_name("closed"), topic) as producer:
        producer.commit()
    with pytest.raises(ToolFailed) as raised:
        run_tool(TOOL, bootstrap, "abort", "--topic", topic, "--partition", "0", "--start-offset", "0")
    assert "Could not find any open transactions starting at offset 0" in str(raised.value)
