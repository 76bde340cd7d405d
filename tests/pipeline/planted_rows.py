"""Tables with given records and dead-letter records, as landing would write them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

from chronik.pipeline.records.columns import HEADERS_TYPE, Columns
from chronik.pipeline.tables.layout import ERROR, VALUE, Kind, Partitioning, batch_of, own_columns
from chronik.pipeline.tables.opening import open_or_create
from chronik.pipeline.tables.parquet import PartitionedWriter
from chronik.pipeline.tables.spans import Landed, Span
from chronik.pipeline.tables.storage import Storage, dead_letters_uri, table_uri
from chronik.pipeline.tables.topic_table import TableSpec, TopicTable
from chronik.pipeline.tables.values.inference import infer_fields
from chronik.pipeline.tables.values.json_rows import decode_rows
from chronik.pipeline.tables.values.shaping import decode_json
from tests.pipeline.landing_rows import NOON_2024_05_01_MS

Headers = Sequence[tuple[str, bytes | None]]

TOPIC = "orders"
TOPIC_ID = "AAAAAAAAAAAAAAAAAAAAAQ"
WHY = "decoding failed with earlier rules"


def records(
    offsets: Sequence[int],
    values: Sequence[bytes | None],
    *,
    keys: Sequence[bytes | None] | None = None,
    headers: Sequence[Headers] | None = None,
    timestamps_ms: Sequence[int] | None = None,
) -> Columns:
    lists = [[{"key": name, "value": value} for name, value in each] or None for each in headers or [()] * len(offsets)]
    return Columns(
        offset=pa.array(offsets, pa.int64()),
        timestamp_ms=pa.array(timestamps_ms or [NOON_2024_05_01_MS + offset for offset in offsets], pa.int64()),
        timestamp_type=pa.array([0] * len(offsets), pa.int32()),
        key=pa.array(keys or [b"key"] * len(offsets), pa.binary()),
        value=pa.array(values, pa.binary()),
        headers=pa.array(lists, HEADERS_TYPE),
    )


def table_of(root: Path, kind: Kind, *, partitioning: Partitioning = Partitioning.DATE) -> TopicTable:
    uri = dead_letters_uri(str(root), TOPIC) if kind is Kind.DEAD_LETTERS else table_uri(str(root), TOPIC)
    return open_or_create(uri, TableSpec(TOPIC, TOPIC_ID, kind, partitioning))


def land(committer: TopicTable, partition: int, rows: Columns, *, end: int | None = None) -> None:
    """Commit all rows at once, up to `end` or the offset after the last row."""
    offsets = rows.offset.to_pylist()
    span = Span(partition, committer.next_offsets().get(partition, offsets[0]), end or offsets[-1] + 1)
    own = own_columns(partition, rows)
    if committer.spec.kind is Kind.DECODED:
        committer.add_columns(infer_fields(decode_json(own[VALUE].to_pylist()).objects))
    schema = committer.snapshot().schema
    if committer.spec.kind is Kind.DECODED:
        own = decode_rows(own, schema).rows
    if committer.spec.kind is Kind.DEAD_LETTERS:
        own |= {ERROR: pa.array([WHY] * len(offsets), pa.string())}
    storage = Storage(committer.uri)
    with PartitionedWriter(storage, schema, committer.spec.partitioning.columns) as writer:
        writer.write(batch_of(own, schema))
    committer.commit([Landed((span,), writer.files)])
