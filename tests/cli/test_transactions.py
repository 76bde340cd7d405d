"""`chronik transactions`, compared with Kafka's own tool: `list` and `describe` during an open transaction, and
`find-hanging` and `abort` on a broker with hanging transactions.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator

import pytest
from confluent_kafka import Producer

from chronik.protocol.errors import ErrorCode
from chronik.protocol.records import Record, encode_batch
from chronik.testing import Broker
from tests.api import request_builders
from tests.cli import unverified_node
from tests.cli.command_line import CommandResult, run_chronik
from tests.clients.kafka_tools import ToolFailed, run_tool
from tests.raw import RawClient

pytestmark = pytest.mark.slow

WAIT_SECONDS = 60
TIMEOUT_MS = 600_000
"""Long enough for Kafka's tool, which takes most of a minute on a busy machine."""

PRODUCER, EPOCH = 999, 4
HOUR_MS = 3_600_000


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


class UnverifiedTransactionsBroker(Broker):
    @property
    def command(self) -> list[str]:
        return [sys.executable, "-P", unverified_node.__file__]


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with UnverifiedTransactionsBroker() as broker:
        yield broker


@pytest.fixture
def topic(broker: Broker, request: pytest.FixtureRequest) -> str:
    """Create a topic whose partition 1 has a plain record and a record of a transaction that has hung for an hour."""
    name: str = request.node.name.replace("_", "-")
    broker.create_topic(name, partitions=2)
    started_ms = time.time_ns() // 1_000_000 - HOUR_MS
    hanging = encode_batch(
        [Record(0, started_ms, b"k", b"v")],
        producer_id=PRODUCER,
        producer_epoch=EPOCH,
        base_sequence=0,
        transactional=True,
    )
    with RawClient(broker.bootstrap) as client:
        for batch in (request_builders.batch(b"plain"), hanging):
            assert request_builders.produce(client, name, batch, partition=1).error_code == ErrorCode.NONE
    return name


def cli(broker: Broker, *arguments: str) -> CommandResult:
    return run_chronik("transactions", *arguments, bootstrap=broker.bootstrap)


def test_find_hanging_by_topic_and_by_broker(broker: Broker, topic: str) -> None:
    (found,) = cli(broker, "find-hanging", "--topic", topic, "--json").json
    assert (found["topic"], found["partition"], found["start_offset"]) == (topic, 1, 1)
    assert (found["producer_id"], found["producer_epoch"], found["coordinator_epoch"]) == (PRODUCER, EPOCH, -1)
    assert found["duration_min"] in (60, 61)
    lines = cli(broker, "find-hanging", "--broker-id", "1").lines
    assert lines[0].split()[:4] == ["TOPIC", "PARTITION", "PRODUCER", "ID"]
    assert topic in [line.split()[0] for line in lines]
    assert cli(broker, "find-hanging", "--topic", topic, "--partition", "0", "--json").json == []
    assert cli(broker, "find-hanging", "--topic", topic, "--max-transaction-timeout", "90", "--json").json == []


def test_hanging_transaction_is_aborted_by_start_offset(broker: Broker, topic: str) -> None:
    target = ("--topic", topic, "--partition", "1")
    nothing = cli(broker, "abort", *target, "--start-offset", "0")
    assert (nothing.code, nothing.err) == (1, f"chronik: no open transaction starts at offset 0 of {topic}-1\n")
    aborted = cli(broker, "abort", *target, "--start-offset", "1")
    assert aborted.lines == [f"aborted the transaction of producer {PRODUCER} in {topic}-1"]
    assert cli(broker, "find-hanging", "--topic", topic, "--json").json == []


def test_hanging_transaction_is_aborted_by_producer(broker: Broker, topic: str) -> None:
    target = ("abort", "--topic", topic, "--partition", "1", "--producer-id", str(PRODUCER))
    wrong = cli(broker, *target, "--producer-epoch", str(EPOCH + 1), "--coordinator-epoch", "-1")
    assert (wrong.code, "epoch" in wrong.err) == (1, True)
    cli(broker, *target, "--producer-epoch", str(EPOCH), "--coordinator-epoch", "-1").lines  # noqa: B018
    assert cli(broker, "find-hanging", "--topic", topic, "--json").json == []


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("find-hanging",), "no partitions selected: use --topic or --broker-id"),
        (("find-hanging", "--broker-id", "1", "--partition", "0"), "--partition requires --topic"),
        (("find-hanging", "--broker-id", "9"), "broker 9 is not available"),
        (("abort", "--topic", "t", "--partition", "0"), "no transaction selected"),
        (("abort", "--topic", "t", "--partition", "0", "--producer-id", "1"), "must be used together"),
    ],
)
def test_missing_transaction_options_are_rejected(broker: Broker, arguments: tuple[str, ...], expected: str) -> None:
    result = cli(broker, *arguments)
    assert result.code == 1
    assert expected in result.err


def test_kafka_tool_finds_and_aborts_hanging_transaction(broker: Broker, topic: str) -> None:
    found = run_tool("kafka-transactions", broker.bootstrap, "find-hanging", "--topic", topic)
    row = found.splitlines()[1].split()
    assert row[:6] == [topic, "1", str(PRODUCER), str(EPOCH), "-1", "1"]
    abort = ("abort", "--topic", topic, "--partition", "1", "--start-offset", "1")
    run_tool("kafka-transactions", broker.bootstrap, *abort)
    assert len(run_tool("kafka-transactions", broker.bootstrap, "find-hanging", "--topic", topic).splitlines()) == 1
