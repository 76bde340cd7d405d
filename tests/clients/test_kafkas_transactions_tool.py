"""kafka-transactions, Apache Kafka's own tool, unmodified: transactions are listed, described, looked for and ended."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import zip_longest

import pytest

from .drivers.wire import Record
from .kafka_tools import ToolFailed, run_tool
from .running import Clients, TransactionalProducer, unique, wait_for
from .stories import FENCED, READ_COMMITTED, refused

TOOL = "kafka-transactions"
TIMEOUT_MS = 600_000
"""The tool is a Java virtual machine that starts, which may take minutes on a machine that does much else."""


@contextmanager
def left_open(clients: Clients, transactional_id: str, topic: str) -> Iterator[TransactionalProducer]:
    """A transaction with one record in partition 0."""
    producer = clients.get("confluent").open_producer(transactional_id, TIMEOUT_MS)
    producer.begin()
    producer.send(topic, [Record(b"key", b"value", partition=0)])
    yield producer
    producer.close()


def rows(bootstrap: str, *arguments: str) -> list[dict[str, str]]:
    """The table that the tool prints, by its headings. The last cell may be empty."""
    head, *lines = run_tool(TOOL, bootstrap, *arguments).strip().splitlines()
    return [dict(zip_longest(head.split(), line.split(), fillvalue="")) for line in lines]


def state_of(bootstrap: str, transactional_id: str) -> dict[str, str]:
    (described,) = rows(bootstrap, "describe", "--transactional-id", transactional_id)
    return described


def test_an_open_transaction_is_listed_and_described_until_it_ends(clients: Clients, bootstrap: str) -> None:
    topic, transactional_id = clients.create_topic(unique("listed"), 1), unique("listed")
    with left_open(clients, transactional_id, topic) as producer:
        (listed,) = (row for row in rows(bootstrap, "list") if row["TransactionalId"] == transactional_id)
        described = state_of(bootstrap, transactional_id)
        assert listed["TransactionState"] == described["TransactionState"] == "Ongoing"
        assert listed["ProducerId"] == described["ProducerId"]
        assert listed["Coordinator"] == described["CoordinatorId"]
        assert described["TransactionTimeoutMs"] == str(TIMEOUT_MS)
        assert described["TopicPartitions"] == f"{topic}-0"
        assert 0 <= int(described["TransactionDurationMs"]) < TIMEOUT_MS
        producer.commit()
        wait_for("the commit", lambda: state_of(bootstrap, transactional_id)["TransactionState"] == "CompleteCommit")


def test_what_is_not_there_cannot_be_described(bootstrap: str) -> None:
    with pytest.raises(ToolFailed) as refusal:
        run_tool(TOOL, bootstrap, "describe", "--transactional-id", unique("nobody"))
    assert "failed because the ID could not be found" in str(refusal.value)


def test_the_producers_of_a_partition_are_described(clients: Clients, bootstrap: str) -> None:
    topic, transactional_id = clients.create_topic(unique("written"), 1), unique("written")
    clients.get("confluent").produce(topic, [Record(b"key", b"plain", partition=0)])
    with left_open(clients, transactional_id, topic) as producer:
        (row,) = rows(bootstrap, "describe-producers", "--topic", topic, "--partition", "0")
        described = state_of(bootstrap, transactional_id)
        assert (row["ProducerId"], row["ProducerEpoch"]) == (described["ProducerId"], described["ProducerEpoch"])
        assert (row["LastSequence"], row["CurrentTransactionStartOffset"]) == ("0", "1")
        producer.abort()

        def start() -> str:
            (row,) = rows(bootstrap, "describe-producers", "--topic", topic, "--partition", "0")
            return row["CurrentTransactionStartOffset"]

        wait_for("the end of the transaction", lambda: start() == "None")


def test_a_transaction_that_its_coordinator_knows_does_not_hang(clients: Clients, bootstrap: str) -> None:
    topic = clients.create_topic(unique("sought"), 1)
    with left_open(clients, unique("sought"), topic) as producer:
        (broker,) = clients.get("confluent").admin("describe_cluster")["nodes"]
        wanted = ("--broker-id", str(broker["id"]), "--max-transaction-timeout", "0")
        assert rows(bootstrap, "find-hanging", *wanted) == []
        producer.commit()


def test_an_id_is_terminated_by_force(clients: Clients, bootstrap: str) -> None:
    topic, transactional_id = clients.create_topic(unique("ended"), 1), unique("ended")
    with left_open(clients, transactional_id, topic) as producer:
        run_tool(TOOL, bootstrap, "forceTerminateTransaction", "--transactionalId", transactional_id)
        refused(producer.commit, FENCED)
    assert state_of(bootstrap, transactional_id)["TransactionState"] in ("CompleteAbort", "Empty")


def test_a_known_transaction_is_not_aborted_in_one_partition_alone(clients: Clients, bootstrap: str) -> None:
    """Kafka does what it is told, and half of a transaction may be committed."""
    topic, transactional_id = clients.create_topic(unique("kept"), 1), unique("kept")
    with left_open(clients, transactional_id, topic) as producer:
        where = ("--topic", topic, "--partition", "0", "--start-offset", "0")
        with pytest.raises(ToolFailed):
            run_tool(TOOL, bootstrap, "abort", *where)
        producer.commit()
    received, problem = clients.get("confluent").consume({topic: 1}, None, isolation=READ_COMMITTED)
    assert problem is None
    assert [record.value for record in received] == [b"value"]


def test_nothing_is_aborted_where_no_transaction_begins(clients: Clients, bootstrap: str) -> None:
    topic = clients.create_topic(unique("closed"), 1)
    with left_open(clients, unique("closed"), topic) as producer:
        producer.commit()
    with pytest.raises(ToolFailed) as refusal:
        run_tool(TOOL, bootstrap, "abort", "--topic", topic, "--partition", "0", "--start-offset", "0")
    assert "Could not find any open transactions starting at offset 0" in str(refusal.value)
