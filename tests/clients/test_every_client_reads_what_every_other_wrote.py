"""Every client writes with every codec it has; every client reads it all, with a group and without.

Each writer fills one topic per codec, once; each reader reads all topics in one go. A test compares one reader with one
writer.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from .catalogue import CLIENTS
from .drivers.wire import Received, Record
from .running import Clients, CommandFailed, DriverDied, RunningClient, unique
from .samples import PARTITIONS, sample_records

READERS = [
    (name, grouped)
    for name, client in CLIENTS.items()
    for grouped in (False, True)
    if grouped or client.reads_without_group
]


@dataclass
class Shelf:
    """One topic: who wrote it and what, or why that failed."""

    topic: str
    writer: str
    codec: str
    records: list[Record]
    failure: str | None = None


@dataclass
class Library:
    clients: Clients
    shelves: list[Shelf]
    read: dict[tuple[str, bool], tuple[dict[str, list[Received]], str | None]] = field(default_factory=dict)

    def written_by(self, writer: str) -> list[Shelf]:
        return [shelf for shelf in self.shelves if shelf.writer == writer]

    def read_by(self, reader: RunningClient, grouped: bool) -> tuple[dict[str, list[Received]], str | None]:
        """Everything that the reader can decompress, by topic; read once, whichever test asks first."""
        if (reader.name, grouped) not in self.read:
            self.read[reader.name, grouped] = self._read_all(reader, grouped)
        return self.read[reader.name, grouped]

    def _read_all(self, reader: RunningClient, grouped: bool) -> tuple[dict[str, list[Received]], str | None]:
        codecs = reader.capabilities["codecs"]
        wanted = {s.topic: len(s.records) for s in self.shelves if s.codec in codecs and s.failure is None}
        by_topic: dict[str, list[Received]] = defaultdict(list)
        try:
            received, problem = reader.consume(wanted, unique("readers") if grouped else None)
        except (CommandFailed, DriverDied) as failure:
            return by_topic, str(failure)
        for record in received:
            by_topic[record.topic].append(record)
        return by_topic, problem


@pytest.fixture(scope="module")
def library(clients: Clients) -> Library:
    shelves = [shelf for writer in clients.all_present() for shelf in _empty_shelves(writer)]
    clients.create_topics([shelf.topic for shelf in shelves], PARTITIONS)
    for shelf in shelves:
        try:
            clients.get(shelf.writer).produce(shelf.topic, shelf.records, shelf.codec)
        except (CommandFailed, DriverDied) as failure:  # fails the tests of this writer, not of the others
            shelf.failure = str(failure)
    return Library(clients, shelves)


def _empty_shelves(writer: RunningClient) -> Iterator[Shelf]:
    for codec in writer.capabilities["codecs"]:
        records = sample_records(writer.capabilities)
        yield Shelf(unique(f"interop-{writer.name}-{codec}"), writer.name, codec, records)


@pytest.mark.parametrize("writer", CLIENTS)
@pytest.mark.parametrize(
    ("reader", "grouped"), READERS, ids=[f"{name}-{'group' if grouped else 'alone'}" for name, grouped in READERS]
)
def test_a_client_reads_exactly_what_another_wrote(
    library: Library, clients: Clients, reader: str, grouped: bool, writer: str
) -> None:
    reading, writing = clients.get(reader), clients.get(writer)
    by_topic, problem = library.read_by(reading, grouped)
    shelves = [s for s in library.written_by(writer) if s.codec in reading.capabilities["codecs"]]
    assert shelves, f"{reader} and {writer} have no codec in common, not even none"
    with_headers = reading.capabilities["headers"] and writing.capabilities["headers"]
    for shelf in shelves:
        assert shelf.failure is None, f"{writer} could not write with {shelf.codec}: {shelf.failure}"
        received = by_topic[shelf.topic]
        assert len(received) == len(shelf.records), f"{shelf.topic}: {problem}"
        for partition in range(PARTITIONS):
            _compare_partition(shelf, received, partition, with_headers)


def _compare_partition(shelf: Shelf, received: list[Received], partition: int, with_headers: bool) -> None:
    written = [record for record in shelf.records if record.partition == partition]
    here = [record for record in received if record.partition == partition]
    assert [record.offset for record in here] == list(range(len(written))), shelf.topic
    for sent, came in zip(written, here, strict=True):
        assert came.key == sent.key, f"{shelf.topic}: key of {sent.key!r}"
        assert came.value == sent.value, f"{shelf.topic}: value of {sent.key!r}"
        assert came.headers == (sent.headers if with_headers else ()), f"{shelf.topic}: headers of {sent.key!r}"
        if sent.timestamp_ms is not None:
            assert came.timestamp_ms == sent.timestamp_ms, f"{shelf.topic}: time of {sent.key!r}"


@pytest.mark.parametrize("writer", CLIENTS)
def test_compressed_records_stay_compressed_in_the_log(library: Library, clients: Clients, writer: str) -> None:
    """Also the proof that a writer compressed at all: the same records, most of them compressible, in less room."""
    clients.get(writer)
    admin = clients.get("kafka-python")
    sizes = {
        shelf.codec: sum(size for _, size in admin.admin("describe_log_dirs", topic=shelf.topic))
        for shelf in library.written_by(writer)
    }
    plain = sizes.pop("none")
    assert sizes
    assert {codec: size for codec, size in sizes.items() if not 0 < size < plain / 2} == {}
