"""Helpers to write rows and dead-letter records to tables, as landing would, and to read tables without delta-rs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date
from pathlib import Path

import crc32c
import pyarrow as pa
import pyarrow.dataset as ds

from chronik.client.producer import Producer
from chronik.client.records import OutgoingRecord
from chronik.pipeline.records.columns import HEADERS_TYPE, RecordColumns
from chronik.pipeline.table_maintenance.merges import (
    CompactionStats,
    commit_merged_file,
    merge_table_files,
    plan_merges,
)
from chronik.pipeline.tables.catalog import open_or_create_table, open_table
from chronik.pipeline.tables.commit_plan import PartitionRange, TaskOutput
from chronik.pipeline.tables.layout import (
    ERROR,
    OFFSET,
    PARTITION,
    VALUE,
    VALUE_CRC32C,
    TableKind,
    build_table_batch,
    initial_schema,
    system_columns,
)
from chronik.pipeline.tables.parquet import PartitionedParquetWriter
from chronik.pipeline.tables.partitioning import Partitioning
from chronik.pipeline.tables.storage import TableStorage, build_dead_letters_uri, table_uri
from chronik.pipeline.tables.table_files import scan
from chronik.pipeline.tables.topic_table import TableSnapshot, TableSpec, TopicTable
from chronik.pipeline.tables.values.row_decoder import infer_statistics
from chronik.testing import Broker

SPEC = TableSpec("orders", "AAAAAAAAAAAAAAAAAAAAAQ")
NOON_2024_05_01_MS = 1_714_564_800_000

Headers = Sequence[tuple[str, bytes | None]]

TOPIC = "orders"
TOPIC_ID = "AAAAAAAAAAAAAAAAAAAAAQ"
DECODE_ERROR = "decoding failed with earlier rules"


def open_test_table(directory: Path, spec: TableSpec = SPEC) -> TopicTable:
    return open_or_create_table(str(directory), spec)


def build_batch(
    span: PartitionRange, schema: pa.Schema | None = None, *, timestamps_ms: Sequence[int] | None = None
) -> pa.RecordBatch:
    """Return one record per offset, each with a distinct value."""
    offsets = range(span.start, span.end)
    values: list[bytes | None] = [b"value %d/%d" % (span.partition, offset) for offset in offsets]
    records = RecordColumns(
        offset=pa.array(offsets, pa.int64()),
        timestamp_ms=pa.array(timestamps_ms or [NOON_2024_05_01_MS + offset for offset in offsets], pa.int64()),
        timestamp_type=pa.array([0 for _ in offsets], pa.int32()),
        key=pa.array([b"key" for _ in offsets], pa.binary()),
        value=pa.array(values, pa.binary()),
        headers=pa.nulls(len(offsets), HEADERS_TYPE),
    )
    return build_table_batch(system_columns(span.partition, records), schema or initial_schema(TableKind.RAW))


def write_task_output(
    directory: Path,
    *spans: PartitionRange,
    schema: pa.Schema | None = None,
    partitioning: Partitioning = Partitioning.DATE,
) -> TaskOutput:
    schema = schema or initial_schema(TableKind.RAW, partitioning)
    with PartitionedParquetWriter(TableStorage(str(directory)), schema, partitioning.columns) as writer:
        for span in spans:
            writer.write(build_batch(span, schema))
    return TaskOutput(spans, writer.files)


def read_rows(snapshot: TableSnapshot) -> pa.Table:
    """Return the rows of a snapshot, including the partition columns."""
    fields = [snapshot.schema.field(name) for name in snapshot.partition_by]
    partitioning = ds.partitioning(pa.schema(fields), flavor="hive")
    found = ds.dataset(list(snapshot.file_uris), schema=snapshot.schema, partitioning=partitioning, format="parquet")
    return found.to_table()


def read_offsets(snapshot: TableSnapshot) -> list[tuple[int, int]]:
    if not snapshot.file_uris:
        return []
    table = read_rows(snapshot)
    return sorted(zip(table["_partition"].to_pylist(), table["_offset"].to_pylist(), strict=True))


def expected_offsets(*spans: PartitionRange) -> list[tuple[int, int]]:
    return sorted((span.partition, offset) for span in spans for offset in range(span.start, span.end))


RecordPosition = tuple[int, int, int | None]
"""Partition, offset and CRC-32C of the value, by which a producer's journal is compared with a table."""


class JournalledTopic:
    """A topic with a journal of all acknowledged records, which is compared with a table."""

    def __init__(self, broker: Broker, name: str) -> None:
        self.broker, self.name = broker, name
        self.acknowledged: list[RecordPosition] = []

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
                        self.acknowledged.append((partition, base_offset + number, value_checksum(next(left).value)))


def value_checksum(value: bytes | None) -> int | None:
    return None if value is None else crc32c.crc32c(value)


def read_positions(*uris: str) -> list[RecordPosition]:
    """Return the positions of all rows of the tables; a duplicate row is listed twice."""
    found: list[RecordPosition] = []
    for uri in uris:
        snapshot = open_table(uri).snapshot()
        if snapshot.file_uris:
            table = read_rows(snapshot)
            columns = (table[name].to_pylist() for name in ("_partition", "_offset", "_value_crc32c"))
            found += zip(*columns, strict=True)
    return sorted(found, key=lambda each: each[:2])


def scan_positions(options: Mapping[str, str], *uris: str) -> list[RecordPosition]:
    """Return the positions of all rows of tables in an object store, as `read_positions` does for local ones."""
    found: list[RecordPosition] = []
    for uri in uris:
        for batch in scan(open_table(uri, options).files(), [PARTITION, OFFSET, VALUE_CRC32C]):
            found += zip(*(batch[name].to_pylist() for name in (PARTITION, OFFSET, VALUE_CRC32C)), strict=True)
    return sorted(found, key=lambda each: each[:2])


def compact_table(uri: str, *, since: date | None = None) -> CompactionStats:
    """Compact one table, with a commit for each new file."""
    table, done = open_table(uri), CompactionStats()
    for join in plan_merges(table, since=since):
        done += commit_merged_file(table, join, merge_table_files(join))
    return done


def build_record_columns(
    offsets: Sequence[int],
    values: Sequence[bytes | None],
    *,
    keys: Sequence[bytes | None] | None = None,
    headers: Sequence[Headers] | None = None,
    timestamps_ms: Sequence[int] | None = None,
) -> RecordColumns:
    lists = [[{"key": name, "value": value} for name, value in each] or None for each in headers or [()] * len(offsets)]
    return RecordColumns(
        offset=pa.array(offsets, pa.int64()),
        timestamp_ms=pa.array(timestamps_ms or [NOON_2024_05_01_MS + offset for offset in offsets], pa.int64()),
        timestamp_type=pa.array([0] * len(offsets), pa.int32()),
        key=pa.array(keys or [b"key"] * len(offsets), pa.binary()),
        value=pa.array(values, pa.binary()),
        headers=pa.array(lists, HEADERS_TYPE),
    )


def create_empty_table(root: Path, kind: TableKind, *, partitioning: Partitioning = Partitioning.DATE) -> TopicTable:
    uri = build_dead_letters_uri(str(root), TOPIC) if kind is TableKind.DEAD_LETTERS else table_uri(str(root), TOPIC)
    return open_or_create_table(uri, TableSpec(TOPIC, TOPIC_ID, kind, partitioning))


def commit_rows(committer: TopicTable, partition: int, rows: RecordColumns, *, end: int | None = None) -> None:
    """Commit all rows at once, up to `end` or the offset after the last row."""
    offsets = rows.offset.to_pylist()
    span = PartitionRange(partition, committer.next_offsets().get(partition, offsets[0]), end or offsets[-1] + 1)
    own = system_columns(partition, rows)
    if committer.spec.kind is TableKind.DECODED:
        committer.add_columns(infer_statistics(own[VALUE].to_pylist()))
    schema = committer.snapshot().schema
    if committer.spec.kind is TableKind.DECODED:
        own = committer.descriptor().row_decoder().decode_rows(own).rows
    if committer.spec.kind is TableKind.DEAD_LETTERS:
        own |= {ERROR: pa.array([DECODE_ERROR] * len(offsets), pa.string())}
    with PartitionedParquetWriter(committer.storage, schema, committer.spec.partitioning.columns) as writer:
        writer.write(build_table_batch(own, schema))
    committer.commit([TaskOutput((span,), writer.files)])
