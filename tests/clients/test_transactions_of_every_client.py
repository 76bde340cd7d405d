"""Transactions of every client that has them, on three nodes: committed, aborted, fenced by a second instance, timed
out, and left behind by a crash; each read by every client, as committed and as it stands, through every node."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field

import pytest

from tests.cluster.brokers import Brokers, running_brokers

from .drivers.wire import Received
from .running import Clients, CommandFailed, DriverDied, unique
from .stories import PARTITIONS, READ_COMMITTED, READ_UNCOMMITTED, Story, Writer

NAMES = ("confluent", "kafka-python", "aiokafka", "kafkajs", "java-3.9", "java-4")


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Brokers]:
    with running_brokers(tmp_path_factory.mktemp("brokers")) as running:
        yield running


@pytest.fixture(scope="module")
def bootstrap(brokers: Brokers) -> str:
    return brokers.bootstrap


@pytest.fixture(scope="module")
def clients(bootstrap: str) -> Iterator[Clients]:
    with closing(Clients(bootstrap, frozenset())) as running:
        yield running


@dataclass
class Library:
    """The stories, each written once, and what each reader has read of them."""

    brokers: Brokers
    clients: Clients
    stories: dict[str, Story]
    read: dict[tuple[str, str, str], tuple[dict[str, list[Received]], str | None]] = field(default_factory=dict)

    def read_by(self, reader: str, isolation: str, address: str) -> tuple[dict[str, list[Received]], str | None]:
        """All topics in one go, whichever test asks first."""
        key = (reader, isolation, address)
        if key not in self.read:
            self.read[key] = self._read_all(*key)
        return self.read[key]

    def _read_all(self, reader: str, isolation: str, address: str) -> tuple[dict[str, list[Received]], str | None]:
        client = self.clients.get(reader)
        wanted = {story.topic: story.count(isolation) for story in self.stories.values() if story.failure is None}
        group = None if client.client.reads_without_group else unique("readers")
        by_topic: dict[str, list[Received]] = defaultdict(list)
        try:
            received, problem = client.consume(wanted, group, isolation=isolation, bootstrap=address)
        except (CommandFailed, DriverDied) as failure:
            return by_topic, str(failure)
        for record in received:
            by_topic[record.topic].append(record)
        return by_topic, problem


@pytest.fixture(scope="module")
def library(brokers: Brokers, clients: Clients) -> Library:
    stories = {}
    for name in NAMES:
        if clients.missing(name) is None:
            writer = Writer(clients, name)
            try:
                writer.write()
            except (AssertionError, CommandFailed, DriverDied) as failure:  # fails its own tests, not those of others
                writer.story.failure = str(failure)
            stories[name] = writer.story
    return Library(brokers, clients, stories)


@pytest.mark.parametrize("writer", NAMES)
def test_a_client_commits_aborts_is_fenced_times_out_and_crashes(
    library: Library, clients: Clients, writer: str
) -> None:
    assert clients.get(writer).capabilities["transactions"]
    assert library.stories[writer].failure is None


@pytest.mark.parametrize("writer", NAMES)
@pytest.mark.parametrize("isolation", [READ_COMMITTED, READ_UNCOMMITTED])
@pytest.mark.parametrize("reader", NAMES)
def test_every_client_reads_what_was_committed_through_every_node(
    library: Library, clients: Clients, reader: str, isolation: str, writer: str
) -> None:
    clients.get(reader), clients.get(writer)
    story = library.stories[writer]
    assert story.failure is None
    for address in library.brokers.addresses:
        by_topic, problem = library.read_by(reader, isolation, address)
        assert problem is None, f"through {address}: {problem}"
        for partition in range(PARTITIONS):
            values = [each.value for each in by_topic[story.topic] if each.partition == partition]
            expected = [value.encode() for value in story.values(isolation)]
            assert values == expected, f"partition {partition} through {address}"
