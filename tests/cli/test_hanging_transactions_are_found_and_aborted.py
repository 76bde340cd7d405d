"""`chronik transactions find-hanging` and `abort`, and Kafka's own tool, on a broker whose log has what hangs."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator

import pytest

from chronik.protocol.errors import ErrorCode
from chronik.protocol.records import Record, encode_batch
from chronik.testing import Broker
from tests.api import talk
from tests.cli import trusting_node
from tests.cli.running import Outcome, chronik
from tests.clients.kafka_tools import run_tool
from tests.raw import RawClient

pytestmark = pytest.mark.slow

PRODUCER, EPOCH = 999, 4
HOUR_MS = 3_600_000


class TrustingBroker(Broker):
    @property
    def command(self) -> list[str]:
        return [sys.executable, "-P", trusting_node.__file__]


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with TrustingBroker() as broker:
        yield broker


@pytest.fixture
def topic(broker: Broker, request: pytest.FixtureRequest) -> str:
    """Its partition 1 has a record, then one of a transaction that hangs since an hour."""
    name: str = request.node.name.replace("_", "-")
    broker.create_topic(name, partitions=2)
    begun_ms = time.time_ns() // 1_000_000 - HOUR_MS
    hanging = encode_batch(
        [Record(0, begun_ms, b"k", b"v")],
        producer_id=PRODUCER,
        producer_epoch=EPOCH,
        base_sequence=0,
        transactional=True,
    )
    with RawClient(broker.bootstrap) as client:
        for batch in (talk.batch(b"plain"), hanging):
            assert talk.produce(client, name, batch, partition=1).error_code == ErrorCode.NONE
    return name


def cli(broker: Broker, *arguments: str) -> Outcome:
    return chronik("transactions", *arguments, bootstrap=broker.bootstrap)


def test_what_hangs_is_found_by_its_topic_and_by_its_broker(broker: Broker, topic: str) -> None:
    (found,) = cli(broker, "find-hanging", "--topic", topic, "--json").json
    assert (found["topic"], found["partition"], found["start_offset"]) == (topic, 1, 1)
    assert (found["producer_id"], found["producer_epoch"], found["coordinator_epoch"]) == (PRODUCER, EPOCH, -1)
    assert found["duration_min"] in (60, 61)
    lines = cli(broker, "find-hanging", "--broker-id", "1").lines
    assert lines[0].split()[:4] == ["TOPIC", "PARTITION", "PRODUCER", "ID"]
    assert topic in [line.split()[0] for line in lines]
    assert cli(broker, "find-hanging", "--topic", topic, "--partition", "0", "--json").json == []
    assert cli(broker, "find-hanging", "--topic", topic, "--max-transaction-timeout", "90", "--json").json == []


def test_what_hangs_is_aborted_by_where_it_begins(broker: Broker, topic: str) -> None:
    where = ("--topic", topic, "--partition", "1")
    nothing = cli(broker, "abort", *where, "--start-offset", "0")
    assert (nothing.code, nothing.err) == (1, f"chronik: no open transaction begins at offset 0 of {topic}-1\n")
    aborted = cli(broker, "abort", *where, "--start-offset", "1")
    assert aborted.lines == [f"aborted the transaction of producer {PRODUCER} in {topic}-1"]
    assert cli(broker, "find-hanging", "--topic", topic, "--json").json == []


def test_what_hangs_is_aborted_by_its_producer(broker: Broker, topic: str) -> None:
    where = ("abort", "--topic", topic, "--partition", "1", "--producer-id", str(PRODUCER))
    wrong = cli(broker, *where, "--producer-epoch", str(EPOCH + 1), "--coordinator-epoch", "-1")
    assert (wrong.code, "epoch" in wrong.err) == (1, True)
    cli(broker, *where, "--producer-epoch", str(EPOCH), "--coordinator-epoch", "-1").lines  # noqa: B018
    assert cli(broker, "find-hanging", "--topic", topic, "--json").json == []


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("find-hanging",), "where? Give --topic, or --broker-id"),
        (("find-hanging", "--broker-id", "1", "--partition", "0"), "--partition: of which --topic?"),
        (("find-hanging", "--broker-id", "9"), "broker 9 is not there"),
        (("abort", "--topic", "t", "--partition", "0"), "which transaction?"),
        (("abort", "--topic", "t", "--partition", "0", "--producer-id", "1"), "all three of them"),
    ],
)
def test_what_is_not_said_is_asked_for(broker: Broker, arguments: tuple[str, ...], told: str) -> None:
    refused = cli(broker, *arguments)
    assert refused.code == 1
    assert told in refused.err


def test_kafkas_own_tool_finds_and_aborts_it(broker: Broker, topic: str) -> None:
    found = run_tool("kafka-transactions", broker.bootstrap, "find-hanging", "--topic", topic)
    row = found.splitlines()[1].split()
    assert row[:6] == [topic, "1", str(PRODUCER), str(EPOCH), "-1", "1"]
    abort = ("abort", "--topic", topic, "--partition", "1", "--start-offset", "1")
    run_tool("kafka-transactions", broker.bootstrap, *abort)
    assert len(run_tool("kafka-transactions", broker.bootstrap, "find-hanging", "--topic", topic).splitlines()) == 1
