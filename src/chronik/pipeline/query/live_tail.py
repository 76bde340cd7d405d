"""The live tail of a topic as rows of its table, read by the tasks of a query.

The records never pass through the driver. Each task reads its ranges from the brokers and converts the records as
landing does.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from chronik.formats.registry_client import RegistrySettings
from chronik.pipeline.query.spark_schema import to_spark_schema
from chronik.pipeline.records.columns import ColumnSelection
from chronik.pipeline.source.offset_ranges import OffsetRange, split_ranges_evenly
from chronik.pipeline.source.options import ReadSettings
from chronik.pipeline.source.range_reader import read_columns
from chronik.pipeline.tables.layout import (
    HEADERS,
    KEY,
    OFFSET,
    RESCUED,
    VALUE,
    VALUE_CRC32C,
    TableKind,
    build_table_batch,
    system_columns,
)
from chronik.pipeline.tables.partitioning import PARTITION_KEY
from chronik.pipeline.tables.values.data_format import JSON_VALUES, RecordFormat
from chronik.pipeline.tables.values.row_decoder import DECODE_BATCH_ROWS, RowDecoder
from chronik.pipeline.tables.values.table_schema import INFERRED, TableSchema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

RECORDS_PER_TASK: Final = 100_000
"""Maximum number of records that one task reads. A task costs about 50 ms, as much as reading ten thousand records, so
a short tail is read by one task even if it spans many partitions."""

RangesByTask = tuple[tuple[OffsetRange, ...], ...]
"""The offset ranges that each task reads."""


@dataclass(frozen=True, slots=True)
class TailScan:
    """The parameters for reading a live tail, the records of a topic that are not in its table yet."""

    settings: ReadSettings
    kind: TableKind
    schema: pa.Schema
    """Schema of the table."""
    names: tuple[str, ...]
    """The columns to return, in this order."""
    tasks: RangesByTask
    value_schema: TableSchema = INFERRED
    """The declared schema of the table's values."""
    partition_by: tuple[str, ...] = ()
    """The partition columns of the table."""
    format: RecordFormat = JSON_VALUES
    """The formats of the records' keys and values."""
    registry: RegistrySettings | None = None


def plan_tail_tasks(ranges: Iterable[OffsetRange], records_max: int = RECORDS_PER_TASK) -> RangesByTask:
    """Divide ranges into tasks: split long ranges and combine short ones."""
    tasks: list[list[OffsetRange]] = []
    size = records_max
    for part_range in split_ranges_evenly(ranges, records_max=records_max):
        if size + part_range.size > records_max:
            tasks.append([])
            size = 0
        tasks[-1].append(part_range)
        size += part_range.size
    return tuple(map(tuple, tasks))


def build_tail_dataframe(spark: SparkSession, tail: TailScan) -> DataFrame:
    """Build a DataFrame of a topic's live tail, the records that are not in its table yet."""
    schema = to_spark_schema(_build_result_schema(tail))
    if not tail.tasks:
        return spark.createDataFrame([], schema)
    numbers = spark.range(0, len(tail.tasks), 1, len(tail.tasks))  # one partition per task
    return numbers.mapInArrow(partial(_read_tail_tasks, tail), schema)


def _read_tail_tasks(tail: TailScan, numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in numbers:
        for number in batch.column(0).to_pylist():
            for target in tail.tasks[number]:
                yield from read_tail_rows(tail, target)


def read_tail_rows(tail: TailScan, target: OffsetRange) -> Iterator[pa.RecordBatch]:
    """Read an offset range of the live tail as rows with columns of the table.

    Raises:
        DataLossError: Records were deleted since the snapshot.
        ClientError: No broker responds.
        KafkaError: A broker rejects a request.
        CorruptRecords: A batch is damaged.
    """
    decoding_schema = _build_decoding_schema(tail)
    own = {*decoding_schema.names, OFFSET} | (_list_decoded_fields(tail) if tail.kind is TableKind.DECODED else set())
    wanted = ColumnSelection(key=KEY in own, value=VALUE in own or VALUE_CRC32C in own, headers=HEADERS in own)
    decoder = None
    if tail.kind is TableKind.DECODED:
        decoder = RowDecoder(tail.value_schema, decoding_schema, tail.partition_by, tail.format, tail.registry)
    for records in read_columns(target, tail.settings, wanted):
        for rows in _convert_rows(decoder, system_columns(target.partition, records, own), decoding_schema):
            yield rows.select(list(tail.names))


def _list_decoded_fields(tail: TailScan) -> set[str]:
    """Return the parts of a record that are needed to decode it. Headers may name schemas."""
    fields = {VALUE}
    if tail.format.is_typed or tail.format.has_typed_keys:
        fields.add(HEADERS)
    if tail.format.has_decoded_keys:
        fields.add(KEY)
    return fields


def _convert_rows(decoder: RowDecoder | None, own: dict[str, pa.Array], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    if decoder is None:
        yield build_table_batch(own, schema)
        return
    for start in range(0, len(own[OFFSET]), DECODE_BATCH_ROWS):
        part = {name: values.slice(start, DECODE_BATCH_ROWS) for name, values in own.items()}
        # A record that cannot be decoded will land as a dead-letter record, not as a row.
        for decoded in decoder.decode_rows_in_parts(part):
            yield build_table_batch(decoded.rows, schema)


def _build_decoding_schema(tail: TailScan) -> pa.Schema:
    """Return the schema for decoding: all columns if the others determine `_rescued`, or which records are rows."""
    is_computed = any(PARTITION_KEY in (field.metadata or {}) for field in _build_result_schema(tail))
    needs_all = RESCUED in tail.names or is_computed or tail.value_schema.rejects_records
    return tail.schema if needs_all else _build_result_schema(tail)


def _build_result_schema(tail: TailScan) -> pa.Schema:
    return pa.schema([tail.schema.field(name) for name in tail.names])
