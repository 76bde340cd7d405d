"""Tables with given records and dead-letter records, as landing would write them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

from chronik.pipeline.records.columns import HEADERS_TYPE, RecordColumns
from chronik.pipeline.tables.catalog import open_or_create_table
from chronik.pipeline.tables.commit_plan import PartitionRange, TaskOutput
from chronik.pipeline.tables.layout import ERROR, VALUE, Partitioning, TableKind, build_table_batch, system_columns
from chronik.pipeline.tables.parquet import PartitionedParquetWriter
from chronik.pipeline.tables.storage import TableStorage, dead_letters_uri, table_uri
from chronik.pipeline.tables.topic_table import TableSpec, TopicTable
from chronik.pipeline.tables.values.column_conversion import decode_json_values
from chronik.pipeline.tables.values.inference import infer_fields
from chronik.pipeline.tables.values.json_rows import decode_rows
from tests.pipeline.table_fixtures import NOON_2024_05_01_MS

Headers = Sequence[tuple[str, bytes | None]]

TOPIC = "orders"
TOPIC_ID = "AAAAAAAAAAAAAAAAAAAAAQ"
DECODE_ERROR = "decoding failed with earlier rules"


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
    uri = dead_letters_uri(str(root), TOPIC) if kind is TableKind.DEAD_LETTERS else table_uri(str(root), TOPIC)
    return open_or_create_table(uri, TableSpec(TOPIC, TOPIC_ID, kind, partitioning))


def commit_rows(committer: TopicTable, partition: int, rows: RecordColumns, *, end: int | None = None) -> None:
    """Commit all rows at once, up to `end` or the offset after the last row."""
    offsets = rows.offset.to_pylist()
    span = PartitionRange(partition, committer.next_offsets().get(partition, offsets[0]), end or offsets[-1] + 1)
    own = system_columns(partition, rows)
    if committer.spec.kind is TableKind.DECODED:
        committer.add_columns(infer_fields(decode_json_values(own[VALUE].to_pylist()).objects))
    schema = committer.snapshot().schema
    if committer.spec.kind is TableKind.DECODED:
        own = decode_rows(own, schema).rows
    if committer.spec.kind is TableKind.DEAD_LETTERS:
        own |= {ERROR: pa.array([DECODE_ERROR] * len(offsets), pa.string())}
    storage = TableStorage(committer.uri)
    with PartitionedParquetWriter(storage, schema, committer.spec.partitioning.columns) as writer:
        writer.write(build_table_batch(own, schema))
    committer.commit([TaskOutput((span,), writer.files)])
