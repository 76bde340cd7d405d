"""Helpers to write rows to tables, and to read tables without delta-rs."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from pathlib import Path

import crc32c
import pyarrow as pa
import pyarrow.dataset as ds

from chronik.client.producer import Producer
from chronik.client.records import OutgoingRecord
from chronik.pipeline.records.columns import HEADERS_TYPE, Columns
from chronik.pipeline.tables.layout import Kind, Partitioning, batch_of, own_columns, schema_of
from chronik.pipeline.tables.opening import open_or_create, open_table
from chronik.pipeline.tables.parquet import PartitionedWriter
from chronik.pipeline.tables.spans import Landed, Span
from chronik.pipeline.tables.storage import Storage
from chronik.pipeline.tables.topic_table import Snapshot, TableSpec, TopicTable
from chronik.pipeline.upkeep.compact import Compacted, commit_join, join_files, plan_joins
from chronik.testing import Broker

SPEC = TableSpec("orders", "AAAAAAAAAAAAAAAAAAAAAQ")
NOON_2024_05_01_MS = 1_714_564_800_000


def opened(directory: Path, spec: TableSpec = SPEC) -> TopicTable:
    return open_or_create(str(directory), spec)


def batch(span: Span, schema: pa.Schema | None = None, *, timestamps_ms: Sequence[int] | None = None) -> pa.RecordBatch:
    """Return one record per offset, each with a distinct value."""
    offsets = range(span.start, span.end)
    values: list[bytes | None] = [b"value %d/%d" % (span.partition, offset) for offset in offsets]
    records = Columns(
        offset=pa.array(offsets, pa.int64()),
        timestamp_ms=pa.array(timestamps_ms or [NOON_2024_05_01_MS + offset for offset in offsets], pa.int64()),
        timestamp_type=pa.array([0 for _ in offsets], pa.int32()),
        key=pa.array([b"key" for _ in offsets], pa.binary()),
        value=pa.array(values, pa.binary()),
        headers=pa.nulls(len(offsets), HEADERS_TYPE),
    )
    return batch_of(own_columns(span.partition, records), schema or schema_of(Kind.RAW))


def landed(
    directory: Path, *spans: Span, schema: pa.Schema | None = None, partitioning: Partitioning = Partitioning.DATE
) -> Landed:
    schema = schema or schema_of(Kind.RAW, partitioning)
    with PartitionedWriter(Storage(str(directory)), schema, partitioning.columns) as writer:
        for span in spans:
            writer.write(batch(span, schema))
    return Landed(spans, writer.files)


def rows(snapshot: Snapshot) -> pa.Table:
    """Return the rows of a snapshot, including the partition columns."""
    fields = [snapshot.schema.field(name) for name in snapshot.partition_by]
    partitioning = ds.partitioning(pa.schema(fields), flavor="hive")
    found = ds.dataset(list(snapshot.file_uris), schema=snapshot.schema, partitioning=partitioning, format="parquet")
    return found.to_table()


def offsets(snapshot: Snapshot) -> list[tuple[int, int]]:
    if not snapshot.file_uris:
        return []
    table = rows(snapshot)
    return sorted(zip(table["_partition"].to_pylist(), table["_offset"].to_pylist(), strict=True))


def every(*spans: Span) -> list[tuple[int, int]]:
    return sorted((span.partition, offset) for span in spans for offset in range(span.start, span.end))


Position = tuple[int, int, int | None]
"""Partition, offset and CRC-32C of the value, by which a producer's journal is compared with a table."""


class JournalledTopic:
    """A topic with a journal of all acknowledged records, which is compared with a table."""

    def __init__(self, broker: Broker, name: str) -> None:
        self.broker, self.name = broker, name
        self.journal: list[Position] = []

    def send(self, records: Sequence[OutgoingRecord]) -> None:
        """Produce records that specify their partition."""
        by_partition: dict[int | None, list[OutgoingRecord]] = {}
        for record in records:
            by_partition.setdefault(record.partition, []).append(record)
        with self.broker.cluster() as cluster:
            producer = Producer(cluster)
            for chosen in by_partition.values():
                left = iter(chosen)
                for partition, base_offset, count in producer.send(self.name, chosen):
                    for number in range(count):
                        self.journal.append((partition, base_offset + number, crc_of(next(left).value)))


def crc_of(value: bytes | None) -> int | None:
    return None if value is None else crc32c.crc32c(value)


def positions(*uris: str) -> list[Position]:
    """Return the positions of all rows of the tables; a duplicate row is listed twice."""
    found: list[Position] = []
    for uri in uris:
        snapshot = open_table(uri).snapshot()
        if snapshot.file_uris:
            table = rows(snapshot)
            columns = (table[name].to_pylist() for name in ("_partition", "_offset", "_value_crc32c"))
            found += zip(*columns, strict=True)
    return sorted(found, key=lambda each: each[:2])


def compact(uri: str, *, since: date | None = None) -> Compacted:
    """Compact one table, with a commit for each new file."""
    table, done = open_table(uri), Compacted()
    for join in plan_joins(table, since=since):
        done += commit_join(table, join, join_files(join))
    return done
