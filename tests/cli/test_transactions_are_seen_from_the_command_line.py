"""`chronik transactions list` and `describe`, beside Kafka's own tool, while a producer has a transaction open."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import Producer

from chronik.testing import Broker
from tests.cli.running import Outcome, chronik
from tests.clients.kafka_tools import ToolFailed, run_tool

pytestmark = pytest.mark.slow

PATIENCE_SECONDS = 60
TIMEOUT_MS = 600_000
"""Kafka's tool alone takes most of a minute on a machine that does much else."""


class Line:
    """The command line, while a transaction with one record in partition 1 of a topic is open."""

    def __init__(self, broker: Broker, topic: str) -> None:
        self.topic = topic
        self.name = f"tx-{topic}"
        self.bootstrap = broker.bootstrap
        config = {
            "bootstrap.servers": broker.bootstrap,
            "transactional.id": self.name,
            "transaction.timeout.ms": TIMEOUT_MS,
        }
        self.producer = Producer(config)
        self.producer.init_transactions(PATIENCE_SECONDS)
        self.producer.begin_transaction()
        self.producer.produce(topic, b"open", partition=1)
        assert self.producer.flush(PATIENCE_SECONDS) == 0

    def __call__(self, *arguments: str) -> Outcome:
        return chronik("transactions", *arguments, bootstrap=self.bootstrap)

    def listed(self, *filters: str) -> dict[str, str]:
        found = self("list", "--json", *filters).json
        return {each["transactional_id"]: each["transaction_state"] for each in found}


@pytest.fixture
def line(chronik_broker: Broker, chronik_topic: str) -> Iterator[Line]:
    line = Line(chronik_broker, chronik_topic)
    yield line
    line.producer.abort_transaction(PATIENCE_SECONDS)


@pytest.mark.chronik_topic(partitions=2)
def test_transactions_are_listed_and_filtered(line: Line) -> None:
    assert line.listed()[line.name] == "Ongoing"
    assert line.name in line.listed("--transactional-id-pattern", "tx-.*")
    assert line.name not in line.listed("--transactional-id-pattern", "tx-")
    assert line.name not in line.listed("--duration-filter", "3600000")
    lines = line("list").lines
    assert lines[0].split() == ["TRANSACTIONAL", "ID", "COORDINATOR", "PRODUCER", "ID", "TRANSACTION", "STATE"]
    (row,) = [each.split() for each in lines if line.name in each]
    assert (row[0], row[1], row[3]) == (line.name, "1", "Ongoing")
    theirs = run_tool("kafka-transactions", line.bootstrap, "list")
    assert row in [each.split() for each in theirs.splitlines()]


@pytest.mark.chronik_topic(partitions=2)
def test_a_transaction_is_described(line: Line) -> None:
    (described,) = line("describe", line.name, "--json").json
    assert (described["coordinator_id"], described["transaction_state"]) == (1, "Ongoing")
    assert described["transaction_timeout_ms"] == TIMEOUT_MS
    assert described["transaction_duration_ms"] >= 0
    assert described["topic_partitions"] == [[line.topic, 1]]
    row = line("describe", line.name).lines[1].split()
    assert (row[1], row[-1]) == (line.name, f"{line.topic}-1")
    theirs = run_tool("kafka-transactions", line.bootstrap, "describe", "--transactional-id", line.name)
    their_row = theirs.splitlines()[1].split()
    assert (their_row[:7], their_row[-1]) == (row[:7], row[-1])


@pytest.mark.chronik_topic(partitions=2)
def test_an_open_transaction_is_not_aborted_from_outside(line: Line) -> None:
    """Its producer ends it, or its timeout."""
    where = ("abort", "--topic", line.topic, "--partition", "1", "--start-offset", "0")
    refused = line(*where)
    assert (refused.code, "The transaction's state does not allow this" in refused.err) == (1, True)
    with pytest.raises(ToolFailed, match="INVALID_TXN_STATE"):
        run_tool("kafka-transactions", line.bootstrap, *where)
    assert line("find-hanging", "--topic", line.topic, "--json").json == []


def test_an_id_that_there_is_not_is_an_error_of_one_line(chronik_broker: Broker) -> None:
    refused = chronik("transactions", "describe", "nobody", bootstrap=chronik_broker.bootstrap)
    assert (refused.code, refused.err.count("\n")) == (1, 1)
    assert "transactional id nobody" in refused.err
