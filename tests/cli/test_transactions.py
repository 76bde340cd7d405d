"""`chronik transactions list` and `describe`, compared with Kafka's own tool, during an open transaction."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import Producer

from chronik.testing import Broker
from tests.cli.command_line import CommandResult, run_chronik
from tests.clients.kafka_tools import ToolFailed, run_tool

pytestmark = pytest.mark.slow

WAIT_SECONDS = 60
TIMEOUT_MS = 600_000
"""Long enough for Kafka's tool, which takes most of a minute on a busy machine."""


class TransactionsCli:
    """`chronik transactions` during an open transaction with one record in partition 1 of a topic."""

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
        self.producer.init_transactions(WAIT_SECONDS)
        self.producer.begin_transaction()
        self.producer.produce(topic, b"open", partition=1)
        assert self.producer.flush(WAIT_SECONDS) == 0

    def __call__(self, *arguments: str) -> CommandResult:
        return run_chronik("transactions", *arguments, bootstrap=self.bootstrap)

    def list_states(self, *filters: str) -> dict[str, str]:
        found = self("list", "--json", *filters).json
        return {each["transactional_id"]: each["transaction_state"] for each in found}


@pytest.fixture
def transactions_cli(chronik_broker: Broker, chronik_topic: str) -> Iterator[TransactionsCli]:
    transactions_cli = TransactionsCli(chronik_broker, chronik_topic)
    yield transactions_cli
    transactions_cli.producer.abort_transaction(WAIT_SECONDS)


@pytest.mark.chronik_topic(partitions=2)
def test_transactions_list_applies_filters(transactions_cli: TransactionsCli) -> None:
    assert transactions_cli.list_states()[transactions_cli.name] == "Ongoing"
    assert transactions_cli.name in transactions_cli.list_states("--transactional-id-pattern", "tx-.*")
    assert transactions_cli.name not in transactions_cli.list_states("--transactional-id-pattern", "tx-")
    assert transactions_cli.name not in transactions_cli.list_states("--duration-filter", "3600000")
    lines = transactions_cli("list").lines
    assert lines[0].split() == ["TRANSACTIONAL", "ID", "COORDINATOR", "PRODUCER", "ID", "TRANSACTION", "STATE"]
    (row,) = [each.split() for each in lines if transactions_cli.name in each]
    assert (row[0], row[1], row[3]) == (transactions_cli.name, "1", "Ongoing")
    kafka_output = run_tool("kafka-transactions", transactions_cli.bootstrap, "list")
    assert row in [each.split() for each in kafka_output.splitlines()]


@pytest.mark.chronik_topic(partitions=2)
def test_transactions_describe_matches_kafka_tool(transactions_cli: TransactionsCli) -> None:
    (described,) = transactions_cli("describe", transactions_cli.name, "--json").json
    assert (described["coordinator_id"], described["transaction_state"]) == (1, "Ongoing")
    assert described["transaction_timeout_ms"] == TIMEOUT_MS
    assert described["transaction_duration_ms"] >= 0
    assert described["topic_partitions"] == [[transactions_cli.topic, 1]]
    row = transactions_cli("describe", transactions_cli.name).lines[1].split()
    assert (row[1], row[-1]) == (transactions_cli.name, f"{transactions_cli.topic}-1")
    kafka_output = run_tool(
        "kafka-transactions", transactions_cli.bootstrap, "describe", "--transactional-id", transactions_cli.name
    )
    kafka_row = kafka_output.splitlines()[1].split()
    assert (kafka_row[:7], kafka_row[-1]) == (row[:7], row[-1])


@pytest.mark.chronik_topic(partitions=2)
def test_ongoing_transaction_cannot_be_aborted(transactions_cli: TransactionsCli) -> None:
    """Only its producer or its timeout may end an open transaction."""
    target = ("abort", "--topic", transactions_cli.topic, "--partition", "1", "--start-offset", "0")
    result = transactions_cli(*target)
    assert (result.code, "The transaction's state does not allow this" in result.err) == (1, True)
    with pytest.raises(ToolFailed, match="INVALID_TXN_STATE"):
        run_tool("kafka-transactions", transactions_cli.bootstrap, *target)
    assert transactions_cli("find-hanging", "--topic", transactions_cli.topic, "--json").json == []


def test_unknown_transactional_id_prints_one_line_error(chronik_broker: Broker) -> None:
    result = run_chronik("transactions", "describe", "nobody", bootstrap=chronik_broker.bootstrap)
    assert (result.code, result.err.count("\n")) == (1, 1)
    assert "transactional id nobody" in result.err
