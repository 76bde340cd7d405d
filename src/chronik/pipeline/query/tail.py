"""The live tail of a topic as rows of its table: what the tasks of a query run.

The tail never passes through the driver. Tasks get their ranges by number; each reads them from the brokers and makes
rows of them with what landing uses.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from chronik.pipeline.reading.options import ReadSettings
from chronik.pipeline.reading.ranges import OffsetRange, split
from chronik.pipeline.reading.reader import read_columns
from chronik.pipeline.records.columns import Wanted
from chronik.pipeline.tables.layout import (
    HEADERS,
    KEY,
    OFFSET,
    RESCUED,
    VALUE,
    VALUE_CRC32C,
    Kind,
    batch_of,
    own_columns,
)
from chronik.pipeline.tables.values.json_rows import ROWS_AT_ONCE, decode_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

RECORDS_PER_TASK: Final = 100_000
"""A task costs some 50 ms whatever it does, as much as reading some ten thousand records: a short tail is read by one,
however many partitions it is spread over."""

RangesByTask = tuple[tuple[OffsetRange, ...], ...]


@dataclass(frozen=True, slots=True)
class Tail:
    """All that a task needs to know."""

    settings: ReadSettings
    kind: Kind
    schema: pa.Schema
    """The table's schema."""
    names: tuple[str, ...]
    """The columns that are wanted, in this order."""
    tasks: RangesByTask


def tasks_of(ranges: Iterable[OffsetRange], records_max: int = RECORDS_PER_TASK) -> RangesByTask:
    """Cuts long ranges, and puts short ones together."""
    tasks: list[list[OffsetRange]] = []
    size = records_max
    for piece in split(ranges, records_max=records_max):
        if size + piece.size > records_max:
            tasks.append([])
            size = 0
        tasks[-1].append(piece)
        size += piece.size
    return tuple(map(tuple, tasks))


def tail_frame(spark: SparkSession, tail: Tail) -> DataFrame:
    from pyspark.sql.pandas.types import from_arrow_schema

    schema = from_arrow_schema(_wanted_schema(tail))
    if not tail.tasks:
        return spark.createDataFrame([], schema)
    numbers = spark.range(0, len(tail.tasks), 1, len(tail.tasks))  # a task for each number
    return numbers.mapInArrow(partial(_read, tail), schema)


def _read(tail: Tail, numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in numbers:
        for number in batch.column(0).to_pylist():
            for target in tail.tasks[number]:
                yield from rows_of(tail, target)


def rows_of(tail: Tail, target: OffsetRange) -> Iterator[pa.RecordBatch]:
    """Raises DataLoss, ClientError, KafkaError, CorruptRecords."""
    made = _made_schema(tail)
    own = {*made.names, OFFSET} | ({VALUE} if tail.kind is Kind.DECODED else set())
    wanted = Wanted(key=KEY in own, value=VALUE in own or VALUE_CRC32C in own, headers=HEADERS in own)
    for records in read_columns(target, tail.settings, wanted):
        for rows in _rows(tail.kind, own_columns(target.partition, records, own), made):
            yield rows.select(list(tail.names))


def _rows(kind: Kind, own: dict[str, pa.Array], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    if kind is not Kind.DECODED:
        yield batch_of(own, schema)
        return
    for start in range(0, len(own[OFFSET]), ROWS_AT_ONCE):
        part = {name: values.slice(start, ROWS_AT_ONCE) for name, values in own.items()}
        # What cannot be decoded will be a dead letter, and is no row of the table.
        yield batch_of(decode_rows(part, schema).rows, schema)


def _made_schema(tail: Tail) -> pa.Schema:
    """What is rescued is what has no column in the table: to know that takes all of them, wanted or not."""
    return tail.schema if RESCUED in tail.names else _wanted_schema(tail)


def _wanted_schema(tail: Tail) -> pa.Schema:
    return pa.schema([tail.schema.field(name) for name in tail.names])
