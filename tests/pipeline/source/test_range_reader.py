"""Tests that read ranges from a broker over both transports, without Spark."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest

from chronik.client.cluster import ClusterClient
from chronik.client.producer import Producer
from chronik.client.records import OutgoingRecord, TopicPartition
from chronik.pipeline.errors import OptionError
from chronik.pipeline.records.columns import ColumnSelection, RecordColumns, convert_records_to_columns
from chronik.pipeline.source import fetch_transport, segment_transport
from chronik.pipeline.source.offset_ranges import OffsetRange
from chronik.pipeline.source.options import COLUMN_NAMES, IsolationLevel, ReadSettings, Transport
from chronik.pipeline.source.range_reader import read_range
from chronik.pipeline.source.schema import arrow_schema, build_record_batch
from chronik.protocol.compression import Codec
from chronik.testing import Broker

SEGMENTS = {"segment.bytes": str(1024 * 1024)}


@pytest.fixture
def cluster(chronik_broker: Broker) -> Iterator[ClusterClient]:
    with chronik_broker.cluster() as cluster:
        yield cluster


def settings(broker: Broker, transport: Transport, isolation: IsolationLevel) -> ReadSettings:
    return ReadSettings(
        broker.bootstrap,
        isolation=isolation,
        columns=COLUMN_NAMES,
        transport=transport,
        segment_dirs=("/nowhere", str(broker.data_dir)),
    )


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reduce the chunk size, so that a few megabytes are many chunks."""
    monkeypatch.setattr(fetch_transport, "CHUNK_BYTES", 100_000)
    monkeypatch.setattr(segment_transport, "CHUNK_BYTES", 100_000)


def fill(cluster: ClusterClient, topic: str) -> None:
    randomness = random.Random(1)  # incompressible, so that compressed records fill several segments
    for codec in (*Codec, *Codec):
        records = [OutgoingRecord(randomness.randbytes(240), b"k%d" % number) for number in range(1500)]
        Producer(cluster, codec=codec).send(topic, records)


@pytest.mark.usefixtures("small_chunks")
@pytest.mark.chronik_topic(configs=SEGMENTS)
@pytest.mark.parametrize("transport", Transport)
@pytest.mark.parametrize("isolation", IsolationLevel)
def test_range_has_same_records_as_consumer(
    chronik_broker: Broker, cluster: ClusterClient, chronik_topic: str, transport: Transport, isolation: IsolationLevel
) -> None:
    fill(cluster, chronik_topic)
    folders = chronik_broker.data_dir.glob("topics/*/0")
    assert max(len(list(directory.glob("*.log"))) for directory in folders) > 2
    expected = chronik_broker.records(chronik_topic)
    assert len(expected) == 15_000
    for start, end in ((0, 15_000), (777, 9001), (14_999, 15_000)):
        found = list(
            read_range(OffsetRange(chronik_topic, 0, start, end), settings(chronik_broker, transport, isolation))
        )
        rows = pa.Table.from_batches(found)
        assert rows["offset"].to_pylist() == list(range(start, end))
        assert rows["value"].to_pylist() == [record.value for record in expected[start:end]]
        assert rows["key"].to_pylist() == [record.key for record in expected[start:end]]
        assert set(rows["topic"].to_pylist()) == {chronik_topic}


@pytest.mark.usefixtures("small_chunks")
def test_read_continues_after_broker_restart(
    chronik_broker: Broker, cluster: ClusterClient, chronik_topic: str
) -> None:
    fill(cluster, chronik_topic)
    rows = read_range(
        OffsetRange(chronik_topic, 0, 0, 15_000),
        settings(chronik_broker, Transport.FETCH, IsolationLevel.READ_UNCOMMITTED),
    )
    offsets = next(rows)["offset"].to_pylist()
    assert len(offsets) < 15_000
    chronik_broker.restart()
    for batch in rows:
        offsets += batch["offset"].to_pylist()
    assert offsets == list(range(15_000))


def test_closing_reader_early_stops_fetch_thread(
    chronik_broker: Broker, cluster: ClusterClient, chronik_topic: str
) -> None:
    fill(cluster, chronik_topic)
    target = OffsetRange(chronik_topic, 0, 0, 15_000)
    rows = read_range(target, settings(chronik_broker, Transport.FETCH, IsolationLevel.READ_UNCOMMITTED))
    assert next(rows).num_rows
    assert isinstance(rows, Iterator)
    rows.close()  # type: ignore[attr-defined]
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("chronik-fetch")]


def test_error_names_directories_without_the_partition(
    chronik_broker: Broker, cluster: ClusterClient, chronik_topic: str, tmp_path: Path
) -> None:
    elsewhere = ReadSettings(chronik_broker.bootstrap, transport=Transport.SEGMENTS, segment_dirs=(str(tmp_path),))
    with pytest.raises(OptionError, match=f"none of {tmp_path} has {chronik_topic}-0"):
        list(read_range(OffsetRange(chronik_topic, 0, 0, 1), elsewhere))


def test_timestamps_out_of_microsecond_range_are_null() -> None:
    milliseconds = [0, -1, 1_700_000_000_123, 2**63 - 1, -(2**63), 2**63 // 1000 + 1]
    empty = convert_records_to_columns([], ColumnSelection())
    columns = RecordColumns(
        offset=pa.array(range(6), pa.int64()),
        timestamp_ms=pa.array(milliseconds, pa.int64()),
        timestamp_type=pa.array([0] * 6, pa.int32()),
        key=empty.key,
        value=empty.value,
        headers=empty.headers,
    )
    times = build_record_batch(TopicPartition("t", 0), columns, ("timestamp",)).column(0)
    assert times.is_valid().to_pylist() == [True, True, True, False, False, False]
    assert times[2].as_py() == datetime(2023, 11, 14, 22, 13, 20, 123000, UTC)


def test_empty_record_batch_has_same_columns() -> None:
    rows = build_record_batch(TopicPartition("t", 0), convert_records_to_columns([], ColumnSelection()), COLUMN_NAMES)
    assert rows.schema == arrow_schema(COLUMN_NAMES)
