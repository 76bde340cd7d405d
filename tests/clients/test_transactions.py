"""Transactions of every client on three nodes: committed, aborted, fenced, timed out and left open by a crash.

Every client reads the records of every other through every node, with both isolation levels.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field

import pytest

from tests.cluster.brokers import Brokers, running_brokers

from .client_process import ClientPool, CommandFailed, DriverDied, unique_name
from .drivers.wire import ReceivedRecord
from .transaction_scenario import PARTITIONS, READ_COMMITTED, READ_UNCOMMITTED, ScenarioRunner, TransactionScenario

NAMES = ("confluent", "kafka-python", "aiokafka", "kafkajs", "java-3.9", "java-4")


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Brokers]:
    with running_brokers(tmp_path_factory.mktemp("brokers")) as running:
        yield running


@pytest.fixture(scope="module")
def bootstrap(brokers: Brokers) -> str:
    return brokers.bootstrap


@pytest.fixture(scope="module")
def clients(bootstrap: str) -> Iterator[ClientPool]:
    with closing(ClientPool(bootstrap, frozenset())) as running:
        yield running


@dataclass
class ScenarioData:
    """The scenarios, each written once, and what each reader has read."""

    brokers: Brokers
    clients: ClientPool
    stories: dict[str, TransactionScenario]
    read: dict[tuple[str, str, str], tuple[dict[str, list[ReceivedRecord]], str | None]] = field(default_factory=dict)

    def read_by(self, reader: str, isolation: str, address: str) -> tuple[dict[str, list[ReceivedRecord]], str | None]:
        """Return all topics' records as a reader sees them; read once and cached."""
        key = (reader, isolation, address)
        if key not in self.read:
            self.read[key] = self._read_all(*key)
        return self.read[key]

    def _read_all(
        self, reader: str, isolation: str, address: str
    ) -> tuple[dict[str, list[ReceivedRecord]], str | None]:
        client = self.clients.get(reader)
        wanted = {story.topic: story.count(isolation) for story in self.stories.values() if story.failure is None}
        group = None if client.client.reads_without_group else unique_name("readers")
        by_topic: dict[str, list[ReceivedRecord]] = defaultdict(list)
        try:
            received, problem = client.consume(wanted, group, isolation=isolation, bootstrap=address)
        except (CommandFailed, DriverDied) as failure:
            return by_topic, str(failure)
        for record in received:
            by_topic[record.topic].append(record)
        return by_topic, problem


@pytest.fixture(scope="module")
def scenario_data(brokers: Brokers, clients: ClientPool) -> ScenarioData:
    stories = {}
    for name in NAMES:
        if clients.missing_reason(name) is None:
            writer = ScenarioRunner(clients, name)
            try:
                writer.run()
            except (AssertionError, CommandFailed, DriverDied) as failure:  # fails only the tests of this writer
                writer.story.failure = str(failure)
            stories[name] = writer.story
    return ScenarioData(brokers, clients, stories)


@pytest.mark.parametrize("writer", NAMES)
def test_client_completes_transaction_scenario(scenario_data: ScenarioData, clients: ClientPool, writer: str) -> None:
    assert clients.get(writer).capabilities["transactions"]
    assert scenario_data.stories[writer].failure is None


@pytest.mark.parametrize("writer", NAMES)
@pytest.mark.parametrize("isolation", [READ_COMMITTED, READ_UNCOMMITTED])
@pytest.mark.parametrize("reader", NAMES)
def test_client_reads_transactions_of_every_client_through_every_node(
    scenario_data: ScenarioData, clients: ClientPool, reader: str, isolation: str, writer: str
) -> None:
    clients.get(reader), clients.get(writer)
    story = scenario_data.stories[writer]
    assert story.failure is None
    for address in scenario_data.brokers.addresses:
        by_topic, problem = scenario_data.read_by(reader, isolation, address)
        assert problem is None, f"through {address}: {problem}"
        for partition in range(PARTITIONS):
            values = [each.value for each in by_topic[story.topic] if each.partition == partition]
            expected = [value.encode() for value in story.values(isolation)]
            assert values == expected, f"partition {partition} through {address}"
