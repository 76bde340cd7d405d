"""Interoperability: every client writes with every codec, and every client reads all of it, with and without a group.

Each writer fills one topic per codec once, and each reader reads all topics at once. A test compares one reader with
one writer.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from .client_catalog import CLIENTS
from .client_process import ClientPool, ClientProcess, CommandFailed, DriverDied, unique_name
from .drivers.wire import ReceivedRecord, Record
from .sample_data import PARTITIONS, sample_records

READERS = [
    (name, grouped)
    for name, client in CLIENTS.items()
    for grouped in (False, True)
    if grouped or client.reads_without_group
]


@dataclass
class WrittenTopic:
    """One topic: its writer and records, or why writing failed."""

    topic: str
    writer: str
    codec: str
    records: list[Record]
    failure: str | None = None


@dataclass
class InteropData:
    """All topics, and what each reader has read."""

    clients: ClientPool
    written_topics: list[WrittenTopic]
    read: dict[tuple[str, bool], tuple[dict[str, list[ReceivedRecord]], str | None]] = field(default_factory=dict)

    def written_by(self, writer: str) -> list[WrittenTopic]:
        return [written_topic for written_topic in self.written_topics if written_topic.writer == writer]

    def read_by(self, reader: ClientProcess, grouped: bool) -> tuple[dict[str, list[ReceivedRecord]], str | None]:
        """Return all records that the reader can decompress, by topic; read once and cached."""
        if (reader.name, grouped) not in self.read:
            self.read[reader.name, grouped] = self._read_all(reader, grouped)
        return self.read[reader.name, grouped]

    def _read_all(self, reader: ClientProcess, grouped: bool) -> tuple[dict[str, list[ReceivedRecord]], str | None]:
        codecs = reader.capabilities["codecs"]
        wanted = {s.topic: len(s.records) for s in self.written_topics if s.codec in codecs and s.failure is None}
        by_topic: dict[str, list[ReceivedRecord]] = defaultdict(list)
        try:
            received, problem = reader.consume(wanted, unique_name("readers") if grouped else None)
        except (CommandFailed, DriverDied) as failure:
            return by_topic, str(failure)
        for record in received:
            by_topic[record.topic].append(record)
        return by_topic, problem


@pytest.fixture(scope="module")
def interop_data(clients: ClientPool) -> InteropData:
    written_topics = [written_topic for writer in clients.get_all() for written_topic in _plan_topics(writer)]
    clients.create_topics([written_topic.topic for written_topic in written_topics], PARTITIONS)
    for written_topic in written_topics:
        try:
            clients.get(written_topic.writer).produce(written_topic.topic, written_topic.records, written_topic.codec)
        except (CommandFailed, DriverDied) as failure:  # fails only the tests of this writer
            written_topic.failure = str(failure)
    return InteropData(clients, written_topics)


def _plan_topics(writer: ClientProcess) -> Iterator[WrittenTopic]:
    for codec in writer.capabilities["codecs"]:
        records = sample_records(writer.capabilities)
        yield WrittenTopic(unique_name(f"interop-{writer.name}-{codec}"), writer.name, codec, records)


@pytest.mark.parametrize("writer", CLIENTS)
@pytest.mark.parametrize(
    ("reader", "grouped"), READERS, ids=[f"{name}-{'group' if grouped else 'alone'}" for name, grouped in READERS]
)
def test_client_reads_records_written_by_another_client(
    interop_data: InteropData, clients: ClientPool, reader: str, grouped: bool, writer: str
) -> None:
    reader_client, writer_client = clients.get(reader), clients.get(writer)
    by_topic, problem = interop_data.read_by(reader_client, grouped)
    written_topics = [s for s in interop_data.written_by(writer) if s.codec in reader_client.capabilities["codecs"]]
    assert written_topics, f"{reader} and {writer} have no common codec, not even none"
    with_headers = reader_client.capabilities["headers"] and writer_client.capabilities["headers"]
    for written_topic in written_topics:
        assert written_topic.failure is None, (
            f"{writer} could not write with {written_topic.codec}: {written_topic.failure}"
        )
        received = by_topic[written_topic.topic]
        assert len(received) == len(written_topic.records), f"{written_topic.topic}: {problem}"
        for partition in range(PARTITIONS):
            _compare_partition(written_topic, received, partition, with_headers)


def _compare_partition(
    written_topic: WrittenTopic, received: list[ReceivedRecord], partition: int, with_headers: bool
) -> None:
    written = [record for record in written_topic.records if record.partition == partition]
    in_partition = [record for record in received if record.partition == partition]
    assert [record.offset for record in in_partition] == list(range(len(written))), written_topic.topic
    for sent, received_record in zip(written, in_partition, strict=True):
        assert received_record.key == sent.key, f"{written_topic.topic}: key of {sent.key!r}"
        assert received_record.value == sent.value, f"{written_topic.topic}: value of {sent.key!r}"
        assert received_record.headers == (sent.headers if with_headers else ()), (
            f"{written_topic.topic}: headers of {sent.key!r}"
        )
        if sent.timestamp_ms is not None:
            assert received_record.timestamp_ms == sent.timestamp_ms, f"{written_topic.topic}: time of {sent.key!r}"


@pytest.mark.parametrize("writer", CLIENTS)
def test_compressed_records_stay_compressed_in_log(interop_data: InteropData, clients: ClientPool, writer: str) -> None:
    """The log of compressible records must be smaller than without compression."""
    clients.get(writer)
    admin = clients.get("kafka-python")
    sizes = {
        written_topic.codec: sum(size for _, size in admin.admin("describe_log_dirs", topic=written_topic.topic))
        for written_topic in interop_data.written_by(writer)
    }
    plain = sizes.pop("none")
    assert sizes
    assert {codec: size for codec, size in sizes.items() if not 0 < size < plain / 2} == {}
